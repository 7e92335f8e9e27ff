#include "tools/workload/expert_rows.h"

#include <cstddef>
#include <memory>

#include "runtime/base/status_macros.h"

namespace octet {

absl::StatusOr<std::vector<int32_t>> ExpertRows(const WorkloadSpec& spec, int rank) {
  const int num_local = spec.config.num_experts / spec.num_ranks;
  OCTET_ASSIGN_OR_RETURN(const std::unique_ptr<Workload> workload, Workload::Create(spec));
  workload->Generate(0);
  std::vector<int32_t> rows(static_cast<size_t>(num_local));
  const int first = rank * num_local;
  for (const StepInput::PerRank& source : workload->ranks()) {
    for (const int32_t expert : source.topk_idx) {
      if (expert >= first && expert < first + num_local) {
        ++rows[static_cast<size_t>(expert - first)];
      }
    }
  }
  return rows;
}

}  // namespace octet
