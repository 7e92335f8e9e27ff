#include "kernels/ep/base/call_sequence.h"

#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "runtime/base/status_macros.h"

namespace octet {
namespace {

absl::Status NotReceived(absl::string_view what, uint64_t call) {
  return absl::FailedPreconditionError(absl::StrCat(
      "the ", what, " of call ", call, " of this rank has been sent but not received; call ",
      what == "dispatch" ? "DispatchReceive" : "CombineReceive", " first"));
}

}  // namespace

void CallSequence::RecordDispatch(Phases phases) {
  ++calls_;
  if (phases == Phases::kSend) dispatches_sent_.push_back(calls_);
}

void CallSequence::RecordCombine(uint64_t call, Phases phases) {
  if (phases == Phases::kSend) combines_sent_.push_back(call);
  if (phases == Phases::kReceive) combines_sent_.erase(combines_sent_.begin());
}

absl::Status CallSequence::CheckRecent(uint64_t call) const {
  if (call == 0 || call > calls_ || call + batches_ <= calls_) {
    return absl::FailedPreconditionError(absl::StrCat(
        "the handle is of dispatch ", call, " of this rank, whose last is ", calls_,
        batches_ == 1 ? "; one may be outstanding: combine it before the next dispatch"
                      : absl::StrCat("; only its last ", batches_, " can be combined")));
  }
  if (call <= void_calls_) {
    return absl::FailedPreconditionError(
        "all calls have been reset since this dispatch, after a failure or to unmask ranks; it is "
        "void: dispatch again");
  }
  return absl::OkStatus();
}

absl::Status CallSequence::CheckComplete() const {
  if (!dispatches_sent_.empty()) return NotReceived("dispatch", dispatches_sent_.front());
  if (!combines_sent_.empty()) return NotReceived("combine", combines_sent_.front());
  return absl::OkStatus();
}

void CallSequence::Void() {
  dispatches_sent_.clear();
  combines_sent_.clear();
  void_calls_ = calls_;
}

uint64_t CallSequence::CallOfBatch(const std::vector<uint64_t>& calls, uint64_t call) const {
  const auto found =
      absl::c_find_if(calls, [&](uint64_t other) { return other % batches_ == call % batches_; });
  return found != calls.end() ? *found : 0;
}

absl::Status CallSequence::CheckSend(uint64_t call, Phases phases,
                                     const std::vector<uint64_t>& sent) const {
  for (const auto& [calls, what] :
       {std::pair(&dispatches_sent_, "dispatch"), std::pair(&combines_sent_, "combine")}) {
    const uint64_t other = CallOfBatch(*calls, call);
    if (other == 0) continue;
    const absl::Status status = NotReceived(what, other);
    return absl::FailedPreconditionError(absl::StrCat(status.message(), ". At most ", batches_,
                                                      batches_ == 1 ? " dispatch" : " dispatches",
                                                      " may be outstanding"));
  }
  if (phases == Phases::kBoth && !sent.empty()) {
    return absl::FailedPreconditionError(
        absl::StrCat("what has been sent in call ", sent.front(),
                     " of this rank is to be received before a call that sends and receives"));
  }
  return absl::OkStatus();
}

absl::Status CallSequence::CheckReceive(uint64_t call, const std::vector<uint64_t>& sent) const {
  if (!sent.empty() && sent.front() == call) return absl::OkStatus();
  if (CallOfBatch(sent, call) != 0) {
    return absl::FailedPreconditionError(absl::StrCat(
        "call ", sent.front(), " of this rank has been sent before, and is to be received first"));
  }
  OCTET_RETURN_IF_ERROR(CheckSend(call, Phases::kSend, sent));
  return absl::FailedPreconditionError(
      "nothing has been sent that could be received; call DispatchSend or CombineSend first");
}

}  // namespace octet
