#include "kernels/ep/ep_calls.h"

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "octet/enum_names.h"

namespace octet {
namespace {

absl::Status NotConfigured(absl::string_view what, absl::string_view field) {
  return absl::FailedPreconditionError(
      absl::StrCat("there are no ", what, ": EpConfig::", field, " does not ask for them"));
}

absl::Status NoMasks() { return NotConfigured("masks", "failure_policy"); }

absl::Status NoStatistics() { return NotConfigured("statistics", "statistics"); }

absl::Status NoLoads() { return NotConfigured("loads", "loads.count"); }

absl::Status NoPhases() {
  return absl::UnimplementedError(
      "calls over several nodes have no separate phases; use Dispatch and Combine");
}

}  // namespace

absl::Status EpCalls::NoProduct(absl::string_view call) const {
  return absl::UnimplementedError(absl::StrCat("the strategy ", EnumName(config().strategy),
                                               " has no ", call, " that is fused with a product"));
}

absl::StatusOr<DispatchHandle> EpCalls::DispatchSend(Rank& /*rank*/, const DispatchArgs& /*args*/) {
  return NoPhases();
}
absl::StatusOr<Received> EpCalls::DispatchReceive(Rank& /*rank*/,
                                                  const DispatchHandle& /*handle*/) {
  return NoPhases();
}
absl::Status EpCalls::CombinePhase(Rank& /*rank*/, const CombineRequest& /*request*/,
                                   Phases /*phase*/) {
  return NoPhases();
}

absl::Status EpCalls::PrepareDispatchGemm(Rank& /*rank*/, const DispatchProduct& /*product*/) {
  return NoProduct("dispatch");
}
absl::Status EpCalls::PrepareGemmCombine(Rank& /*rank*/, const CombineProduct& /*product*/) {
  return NoProduct("combine");
}

absl::StatusOr<int> EpCalls::RowsNeeded(Rank& /*rank*/) {
  return absl::UnimplementedError(
      absl::StrCat("the strategy ", EnumName(config().strategy), " has no capacity_rows"));
}

absl::StatusOr<RankSet> EpCalls::MaskedRanks(Rank& /*rank*/) { return NoMasks(); }
absl::Status EpCalls::Mask(Rank& /*rank*/, RankSet /*ranks*/) { return NoMasks(); }
absl::Status EpCalls::Unmask(Rank& /*rank*/, RankSet /*still_masked*/) { return NoMasks(); }
absl::StatusOr<EpStatistics> EpCalls::Statistics(Rank& /*rank*/) { return NoStatistics(); }
absl::Status EpCalls::ResetStatistics(Rank& /*rank*/) { return NoStatistics(); }
absl::StatusOr<ExpertLoads> EpCalls::Loads() const { return NoLoads(); }

}  // namespace octet
