#include "octet/expert_parallel.h"

#include <cstdint>
#include <memory>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "kernels/ep/base/strategy_base.h"
#include "kernels/ep/ep_calls.h"
#include "kernels/ep/ep_plan.h"
#include "kernels/ep/on_all_nodes.h"
#include "kernels/nodes/hierarchical.h"
#include "kernels/nodes/options.h"
#include "kernels/placement/placed_calls.h"
#include "kernels/tuning/tuning.h"
#include "octet/domain.h"
#include "runtime/base/status_macros.h"

namespace octet {

absl::StatusOr<std::unique_ptr<EpCalls>> MakeCalls(Domain& domain, const EpConfig& config,
                                                   const ExpertParallelOptions& options) {
  if (!config.placement.empty()) return MakePlaced(domain, config, options);
  if (HasRails(domain)) return MakeHierarchical(domain, config, options);
  return MakeStrategy(domain.node(), config, options);
}

absl::StatusOr<std::unique_ptr<ExpertParallel>> ExpertParallel::Create(
    Domain& domain, const EpConfig& config, const ExpertParallelOptions& options) {
  return MakeOnAllNodes<ExpertParallel>(
      domain, "ExpertParallel::Create", [&] { return TextOf(config, options.rails); },
      [&]() -> absl::StatusOr<std::unique_ptr<ExpertParallel>> {
        OCTET_ASSIGN_OR_RETURN(std::unique_ptr<EpCalls> calls, MakeCalls(domain, config, options));
        return std::make_unique<ExpertParallel>(std::move(calls));
      },
      [&](const ExpertParallel& made) { return TextOf(made.config(), options.rails); });
}

ExpertParallel::ExpertParallel(std::unique_ptr<EpCalls> calls) : calls_(std::move(calls)) {}
ExpertParallel::~ExpertParallel() = default;

const EpConfig& ExpertParallel::config() const { return calls_->config(); }

absl::StatusOr<Received> ExpertParallel::Dispatch(Rank& rank, const DispatchArgs& args) {
  return calls_->Dispatch(rank, {.args = args});
}

absl::Status ExpertParallel::Combine(Rank& rank, const DispatchHandle& handle,
                                     const CombineArgs& args) {
  return calls_->Combine(rank, {.handle = handle, .args = args});
}

absl::StatusOr<DispatchHandle> ExpertParallel::DispatchSend(Rank& rank, const DispatchArgs& args) {
  return calls_->DispatchSend(rank, args);
}

absl::StatusOr<Received> ExpertParallel::DispatchReceive(Rank& rank, const DispatchHandle& handle) {
  return calls_->DispatchReceive(rank, handle);
}

absl::Status ExpertParallel::CombineSend(Rank& rank, const DispatchHandle& handle,
                                         const CombineArgs& args) {
  return calls_->CombinePhase(rank, {.handle = handle, .args = args}, Phases::kSend);
}

absl::Status ExpertParallel::CombineReceive(Rank& rank, const DispatchHandle& handle,
                                            const CombineArgs& args) {
  return calls_->CombinePhase(rank, {.handle = handle, .args = args}, Phases::kReceive);
}

absl::StatusOr<RankSet> ExpertParallel::MaskedRanks(Rank& rank) {
  return calls_->MaskedRanks(rank);
}
absl::Status ExpertParallel::Mask(Rank& rank, RankSet ranks) { return calls_->Mask(rank, ranks); }
absl::Status ExpertParallel::Unmask(Rank& rank, RankSet still_masked) {
  return calls_->Unmask(rank, still_masked);
}

absl::StatusOr<EpStatistics> ExpertParallel::Statistics(Rank& rank) {
  return calls_->Statistics(rank);
}
absl::Status ExpertParallel::ResetStatistics(Rank& rank) { return calls_->ResetStatistics(rank); }

absl::StatusOr<ExpertLoads> ExpertParallel::Loads() const { return calls_->Loads(); }
Traffic ExpertParallel::DispatchTraffic(int rank, absl::Span<const int32_t> topk_idx) const {
  return calls_->DispatchTraffic(rank, topk_idx);
}
Traffic ExpertParallel::CombineTraffic(int rank, absl::Span<const int32_t> topk_idx) const {
  return calls_->CombineTraffic(rank, topk_idx);
}

absl::StatusOr<HeapSize> ExpertParallel::HeapBytes(const EpConfig& config, int num_ranks) {
  OCTET_ASSIGN_OR_RETURN(const std::shared_ptr<const TuningTable> table, TuningTable::Default());
  return EpPlan::HeapBytes(config, num_ranks, *table);
}

}  // namespace octet
