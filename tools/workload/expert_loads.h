// How many rows each expert of all ranks receives: what a placement is to balance.
#ifndef OCTET_TOOLS_WORKLOAD_EXPERT_LOADS_H_
#define OCTET_TOOLS_WORKLOAD_EXPERT_LOADS_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "kernels/oracle/reference.h"

namespace octet {

// Returns the number of choices of each expert, [E].
std::vector<double> LoadsOf(absl::Span<const RankInput> inputs, int num_experts);

// Reads an .npy file of any number type: [E], or [N, E], whose N parts (layers, steps) are added.
// Errors name the path: those of reading, or kInvalidArgument for another shape or type.
absl::StatusOr<std::vector<double>> ReadLoads(const std::string& path, int num_experts);

}  // namespace octet

#endif  // OCTET_TOOLS_WORKLOAD_EXPERT_LOADS_H_
