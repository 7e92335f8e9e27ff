#include "kernels/expert_parallel.h"

#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/direct/direct.h"
#include "runtime/status_macros.h"

namespace octet {

absl::StatusOr<std::unique_ptr<ExpertParallel>> ExpertParallel::Create(
    Node& node, const EpConfig& config, const ExpertParallelOptions& options) {
  OCTET_RETURN_IF_ERROR(Validate(config, node.num_ranks()));
  switch (config.strategy) {
    case Strategy::kAuto:
    case Strategy::kDirect:
      return direct::Direct::Create(node, config, options);
  }
  return absl::InvalidArgumentError("unknown strategy");
}

absl::StatusOr<size_t> ExpertParallel::HeapBytes(const EpConfig& config, int num_ranks) {
  OCTET_RETURN_IF_ERROR(Validate(config, num_ranks));
  EpConfig chosen = config;
  if (chosen.tuning.row_parts == 0) chosen.tuning.row_parts = direct::ChooseRowParts(chosen);
  return direct::MakeLayout(chosen, num_ranks).bytes;
}

}  // namespace octet
