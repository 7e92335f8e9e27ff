#include "kernels/oracle/stand_in.h"

#include <cstddef>

#include "absl/strings/str_cat.h"
#include "kernels/ep/base/call_sequence.h"
#include "kernels/ep/base/fill_memory.h"
#include "kernels/ep/ep_calls.h"
#include "runtime/base/status_macros.h"

namespace octet {
namespace {

CombineRequest RequestOf(const DispatchHandle& handle, const ScaledCombineArgs& args) {
  return {.handle = handle, .args = args, .expert_scale = args.expert_scale};
}

}  // namespace

absl::Status ScaledCombine(ExpertParallel& ep, Rank& rank, const DispatchHandle& handle,
                           const ScaledCombineArgs& args) {
  return ep.calls().Combine(rank, RequestOf(handle, args));
}

absl::Status ScaledCombineSend(ExpertParallel& ep, Rank& rank, const DispatchHandle& handle,
                               const ScaledCombineArgs& args) {
  return ep.calls().CombinePhase(rank, RequestOf(handle, args), Phases::kSend);
}

absl::Status ScaledCombineReceive(ExpertParallel& ep, Rank& rank, const DispatchHandle& handle,
                                  const ScaledCombineArgs& args) {
  return ep.calls().CombinePhase(rank, RequestOf(handle, args), Phases::kReceive);
}

absl::Status PoisonReceived(ExpertParallel& ep, Rank& rank, int num_rows) {
  const int most = ep.config().max_rows(rank.num_ranks());
  if (num_rows < 0 || (num_rows > most && ep.calls().intranode() == nullptr)) {
    return absl::InvalidArgumentError(
        absl::StrCat("num_rows is ", num_rows, "; it must be from 0 to ", most));
  }
  for (const auto& [memory, bytes] : ep.calls().Delivered(rank, static_cast<size_t>(num_rows))) {
    OCTET_RETURN_IF_ERROR(FillBytes(rank, memory, bytes, 0xff));
  }
  return absl::OkStatus();
}

}  // namespace octet
