#include "octet/expert_parallel.h"

#include <algorithm>
#include <memory>
#include <optional>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "kernels/auto_choice.h"
#include "kernels/direct/direct.h"
#include "kernels/direct/layout.h"
#include "kernels/high_throughput/high_throughput.h"
#include "kernels/high_throughput/layout.h"
#include "kernels/low_latency/layout.h"
#include "kernels/low_latency/low_latency.h"
#include "kernels/strategy_base.h"
#include "kernels/tuning.h"
#include "runtime/status_macros.h"

namespace octet {
namespace {

template <typename Strategy>
absl::StatusOr<std::unique_ptr<ExpertParallel>> Make(Node& node, const EpConfig& config,
                                                     const ExpertParallelOptions& options,
                                                     Contract contract) {
  auto strategy = std::make_unique<Strategy>(node, config, options);
  OCTET_RETURN_IF_ERROR(strategy->Init(contract));
  return strategy;
}

absl::StatusOr<std::unique_ptr<ExpertParallel>> CreateStrategy(Node& node, const EpConfig& config,
                                                               const ExpertParallelOptions& options,
                                                               Contract contract) {
  switch (config.strategy) {
    case Strategy::kAuto:
      break;
    case Strategy::kDirect:
      return Make<direct::Direct>(node, config, options, contract);
    case Strategy::kHighThroughput:
      return Make<high_throughput::HighThroughput>(node, config, options, contract);
    case Strategy::kLowLatency:
      return Make<low_latency::LowLatency>(node, config, options, contract);
  }
  return absl::InvalidArgumentError("unknown strategy");
}

// Whether a measured launch shape may take the place of the strategy's own.
bool LeavesTuningOpen(const EpConfig& config) {
  return config.tuning == Tuning() && config.max_blocks == 0;
}

// `config`: with all choices made but the tuning.
HeapSize HeapBytesOf(EpConfig config, int num_ranks, const TuningTable& table) {
  if (config.strategy == Strategy::kLowLatency) {
    return HeapSizeOf(low_latency::MakeLayout(config, num_ranks));
  }
  // More parts take more room.
  const bool direct = config.strategy == Strategy::kDirect;
  if (config.tuning.row_parts == 0) {
    const int measured = LeavesTuningOpen(config) ? table.MostRowParts(num_ranks, config) : 0;
    const int chosen = direct ? direct::ChooseRowParts(config)
                              : high_throughput::ChooseRowParts(config, num_ranks);
    config.tuning.row_parts = std::max(measured, chosen);
  }
  return direct ? HeapSizeOf(direct::MakeLayout(config, num_ranks))
                : HeapSizeOf(high_throughput::MakeLayout(config, num_ranks));
}

absl::Status NotConfigured(absl::string_view what, absl::string_view field) {
  return absl::FailedPreconditionError(
      absl::StrCat("there are no ", what, ": EpConfig::", field, " does not ask for them"));
}

absl::Status NoMasks() { return NotConfigured("masks", "failure_policy"); }

absl::Status NoStatistics() { return NotConfigured("statistics", "statistics"); }

}  // namespace

absl::StatusOr<RankSet> ExpertParallel::MaskedRanks(Rank& /*rank*/) { return NoMasks(); }
absl::Status ExpertParallel::Mask(Rank& /*rank*/, RankSet /*ranks*/) { return NoMasks(); }
absl::Status ExpertParallel::Unmask(Rank& /*rank*/, RankSet /*still_masked*/) { return NoMasks(); }
absl::StatusOr<EpStatistics> ExpertParallel::Statistics(Rank& /*rank*/) { return NoStatistics(); }
absl::Status ExpertParallel::ResetStatistics(Rank& /*rank*/) { return NoStatistics(); }

absl::StatusOr<std::unique_ptr<ExpertParallel>> ExpertParallel::Create(
    Node& node, const EpConfig& config, const ExpertParallelOptions& options) {
  OCTET_RETURN_IF_ERROR(Validate(config, node.num_ranks()));
  TuningTable table;
  if (options.use_measured_tuning) {
    OCTET_ASSIGN_OR_RETURN(table, TuningTable::Default());
  }
  EpConfig chosen = WithAutoChosen(config, node.num_ranks(), node.topology(), table);
  const bool could_differ =
      config.strategy == Strategy::kAuto && CapableStrategies(config, node.num_ranks()).size() > 1;
  const Contract contract = could_differ ? Contract::kOfAll : Contract::kOfStrategy;
  std::optional<Tuning> measured;
  if (LeavesTuningOpen(config)) {
    measured = table.Find(node.topology(), node.num_ranks(), chosen);
  }
  if (!measured.has_value()) return CreateStrategy(node, chosen, options, contract);
  chosen.tuning = *measured;
  absl::StatusOr<std::unique_ptr<ExpertParallel>> ep =
      CreateStrategy(node, chosen, options, contract);
  if (!absl::IsInvalidArgument(ep.status())) return ep;
  return absl::InvalidArgumentError(absl::StrCat(table.origin(), ": ", ep.status().message()));
}

absl::StatusOr<Received> ExpertParallel::Dispatch(Rank& rank, const DispatchArgs& args) {
  OCTET_ASSIGN_OR_RETURN(const DispatchHandle handle, DispatchSend(rank, args));
  return DispatchReceive(rank, handle);
}

absl::Status ExpertParallel::Combine(Rank& rank, const DispatchHandle& handle,
                                     const CombineArgs& args) {
  OCTET_RETURN_IF_ERROR(CombineSend(rank, handle, args));
  return CombineReceive(rank, handle, args);
}

absl::StatusOr<HeapSize> ExpertParallel::HeapBytes(const EpConfig& config, int num_ranks) {
  OCTET_RETURN_IF_ERROR(Validate(config, num_ranks));
  OCTET_ASSIGN_OR_RETURN(const TuningTable table, TuningTable::Default());
  HeapSize most;
  EpConfig named = config;
  for (const Strategy strategy : PossibleStrategies(config, num_ranks, table)) {
    named.strategy = strategy;
    const HeapSize size = HeapBytesOf(WithAutoChosen(named, num_ranks), num_ranks, table);
    most = {.uncached = std::max(most.uncached, size.uncached),
            .cached = std::max(most.cached, size.cached)};
  }
  return most;
}

}  // namespace octet
