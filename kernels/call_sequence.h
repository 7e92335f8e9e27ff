// Which calls of a rank may follow which. Host only: it knows neither GPUs nor arguments.
//
// Dispatches are numbered from 1. A dispatch belongs to batch number % batches, whose memory it
// uses: it must have been received and combined before the batch comes round again. What was sent
// is received in the order of sending, dispatches and combines each by themselves.
#ifndef OCTET_KERNELS_CALL_SEQUENCE_H_
#define OCTET_KERNELS_CALL_SEQUENCE_H_

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace octet {

// The part of a call that a launch does.
enum class Phases { kSend, kReceive, kBoth };

// Of one rank; one thread at a time. A Check returns kFailedPrecondition with the reason if the
// call may not come next, and changes nothing. What has been enqueued is recorded after it.
class CallSequence {
 public:
  // `batches`: dispatches that may be outstanding at the same time.
  explicit CallSequence(int batches = 1) : batches_(static_cast<uint64_t>(batches)) {}

  uint64_t calls() const { return calls_; }  // dispatches so far

  // That dispatch calls() + 1 may be sent, or sent and received.
  absl::Status CheckDispatch(Phases phases) const {
    return CheckSend(calls_ + 1, phases, dispatches_sent_);
  }
  void RecordDispatch(Phases phases);
  absl::Status CheckDispatchReceive(uint64_t call) const {
    return CheckReceive(call, dispatches_sent_);
  }
  void RecordDispatchReceive() { dispatches_sent_.erase(dispatches_sent_.begin()); }

  absl::Status CheckCombine(uint64_t call, Phases phases) const {
    return phases == Phases::kReceive ? CheckReceive(call, combines_sent_)
                                      : CheckSend(call, phases, combines_sent_);
  }
  void RecordCombine(uint64_t call, Phases phases);

  // That `call` is among the last `batches` dispatches and not void.
  absl::Status CheckRecent(uint64_t call) const;
  // That nothing that was sent waits to be received.
  absl::Status CheckComplete() const;

  // Makes all calls so far void.
  void Void();

 private:
  // The first of `calls` that is of the same batch as `call`, 0 if none is.
  uint64_t CallOfBatch(const std::vector<uint64_t>& calls, uint64_t call) const;
  // That nothing of the call's batch waits to be received and, for kBoth, nothing of `sent`.
  absl::Status CheckSend(uint64_t call, Phases phases, const std::vector<uint64_t>& sent) const;
  // That `call` is what is to be received next of `sent`.
  absl::Status CheckReceive(uint64_t call, const std::vector<uint64_t>& sent) const;

  uint64_t batches_;
  uint64_t calls_ = 0;
  uint64_t void_calls_ = 0;  // the last that is void
  // Calls whose dispatch, or combine, was sent and not received, in the order of sending.
  std::vector<uint64_t> dispatches_sent_;
  std::vector<uint64_t> combines_sent_;
};

}  // namespace octet

#endif  // OCTET_KERNELS_CALL_SEQUENCE_H_
