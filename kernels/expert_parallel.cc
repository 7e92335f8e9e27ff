#include "kernels/expert_parallel.h"

#include <algorithm>
#include <memory>
#include <optional>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "kernels/direct/direct.h"
#include "kernels/direct/layout.h"
#include "kernels/high_throughput/high_throughput.h"
#include "kernels/high_throughput/layout.h"
#include "kernels/low_latency/layout.h"
#include "kernels/low_latency/low_latency.h"
#include "kernels/tuning.h"
#include "runtime/status_macros.h"

namespace octet {
namespace {

absl::StatusOr<std::unique_ptr<ExpertParallel>> CreateStrategy(
    Node& node, const EpConfig& config, const ExpertParallelOptions& options) {
  switch (config.strategy) {
    case Strategy::kAuto:
      break;
    case Strategy::kDirect:
      return direct::Direct::Create(node, config, options);
    case Strategy::kHighThroughput:
      return high_throughput::HighThroughput::Create(node, config, options);
    case Strategy::kLowLatency:
      return low_latency::LowLatency::Create(node, config, options);
  }
  return absl::InvalidArgumentError("unknown strategy");
}

}  // namespace

absl::StatusOr<std::unique_ptr<ExpertParallel>> ExpertParallel::Create(
    Node& node, const EpConfig& config, const ExpertParallelOptions& options) {
  OCTET_RETURN_IF_ERROR(Validate(config, node.num_ranks()));
  EpConfig chosen = WithAutoChosen(config, node.num_ranks());
  if (!options.use_measured_tuning || config.tuning != Tuning() || config.max_blocks > 0) {
    return CreateStrategy(node, chosen, options);
  }
  OCTET_ASSIGN_OR_RETURN(const TuningTable table, TuningTable::Default());
  const std::optional<Tuning> measured = table.Find(node.topology(), node.num_ranks(), chosen);
  if (!measured.has_value()) return CreateStrategy(node, chosen, options);
  chosen.tuning = *measured;
  absl::StatusOr<std::unique_ptr<ExpertParallel>> ep = CreateStrategy(node, chosen, options);
  if (!absl::IsInvalidArgument(ep.status())) return ep;
  return absl::InvalidArgumentError(absl::StrCat(table.origin(), ": ", ep.status().message()));
}

absl::StatusOr<size_t> ExpertParallel::HeapBytes(const EpConfig& config, int num_ranks) {
  OCTET_RETURN_IF_ERROR(Validate(config, num_ranks));
  EpConfig chosen = WithAutoChosen(config, num_ranks);
  if (chosen.strategy == Strategy::kLowLatency) {
    return low_latency::MakeLayout(chosen, num_ranks).bytes;
  }
  if (config.tuning == Tuning()) {
    OCTET_ASSIGN_OR_RETURN(const TuningTable table, TuningTable::Default());
    chosen.tuning.row_parts = table.MostRowParts(num_ranks, chosen);
  }
  // More parts take more room.
  const bool direct = chosen.strategy == Strategy::kDirect;
  if (config.tuning.row_parts == 0) {
    chosen.tuning.row_parts =
        std::max(chosen.tuning.row_parts,
                 direct ? direct::ChooseRowParts(chosen) : high_throughput::ChooseRowParts(chosen));
  }
  return direct ? direct::MakeLayout(chosen, num_ranks).bytes
                : high_throughput::MakeLayout(chosen, num_ranks).bytes;
}

}  // namespace octet
