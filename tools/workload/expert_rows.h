// How many rows each expert of a rank receives.
#ifndef OCTET_TOOLS_WORKLOAD_EXPERT_ROWS_H_
#define OCTET_TOOLS_WORKLOAD_EXPERT_ROWS_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "tools/workload/workload.h"

namespace octet {

// Returns the number of rows that each of `rank`'s E/R experts receives in step 0 of the workload:
// of the tokens of all ranks, those that choose it. The number of ranks must divide E. Rows are
// drawn as well, so a small H saves time. The same errors as Workload::Create.
absl::StatusOr<std::vector<int32_t>> ExpertRows(const WorkloadSpec& spec, int rank);

}  // namespace octet

#endif  // OCTET_TOOLS_WORKLOAD_EXPERT_ROWS_H_
