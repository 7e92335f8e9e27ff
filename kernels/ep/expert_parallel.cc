#include "octet/expert_parallel.h"

#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "kernels/ep/base/strategy_base.h"
#include "kernels/ep/dispatch_product.h"
#include "kernels/ep/ep_plan.h"
#include "kernels/tuning/tuning.h"
#include "runtime/base/status_macros.h"

namespace octet {
namespace {

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

absl::Status ExpertParallel::PrepareDispatchGemm(Rank& /*rank*/,
                                                 const DispatchProduct& /*product*/) {
  return absl::UnimplementedError(absl::StrCat("the strategy ", EnumName(config().strategy),
                                               " has no dispatch that is fused with a product"));
}
absl::StatusOr<Received> ExpertParallel::DispatchGemm(Rank& rank, const DispatchArgs& /*args*/,
                                                      const DispatchProduct& product) {
  return PrepareDispatchGemm(rank, product);
}

absl::Status ExpertParallel::PrepareGemmCombine(Rank& /*rank*/, const CombineProduct& /*product*/) {
  return absl::UnimplementedError(absl::StrCat("the strategy ", EnumName(config().strategy),
                                               " has no combine that is fused with a product"));
}
absl::Status ExpertParallel::GemmCombine(Rank& rank, const DispatchHandle& /*handle*/,
                                         const CombineArgs& /*args*/,
                                         const CombineProduct& product) {
  return PrepareGemmCombine(rank, product);
}

absl::StatusOr<std::unique_ptr<ExpertParallel>> ExpertParallel::Create(
    Node& node, const EpConfig& config, const ExpertParallelOptions& options) {
  return MakeStrategy(node, config, options);
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
  OCTET_ASSIGN_OR_RETURN(const std::shared_ptr<const TuningTable> table, TuningTable::Default());
  return EpPlan::HeapBytes(config, num_ranks, *table);
}

}  // namespace octet
