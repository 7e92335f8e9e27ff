// Checks the order of a rank's calls. Host only: it knows neither GPUs nor arguments.
//
// Dispatches are numbered from 1. Dispatch n uses the memory of batch n % batches; a batch can be
// used again only after its previous dispatch has been received and combined. Receives must follow
// the order of the sends, separately for dispatches and combines.
#ifndef OCTET_KERNELS_EP_BASE_CALL_SEQUENCE_H_
#define OCTET_KERNELS_EP_BASE_CALL_SEQUENCE_H_

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace octet {

// The phases of a call that one launch performs.
enum class Phases { kSend, kReceive, kBoth };

// The call order of one rank. Not thread-safe. A Check function returns kFailedPrecondition with
// the reason if the call may not come next; it changes no state. Callers use the Record functions
// after they have enqueued a call.
class CallSequence {
 public:
  // `batches`: the number of dispatches that may be outstanding at the same time.
  explicit CallSequence(int batches = 1) : batches_(static_cast<uint64_t>(batches)) {}

  uint64_t calls() const { return calls_; }  // dispatches so far

  // Checks that dispatch calls() + 1 may be sent, or sent and received.
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

  // Checks that `call` is one of the last `batches` dispatches and is not void.
  absl::Status CheckRecent(uint64_t call) const;
  // Checks that everything that was sent has been received.
  absl::Status CheckComplete() const;

  // Invalidates all calls so far.
  void Void();

 private:
  // Returns the first of `calls` that uses the same batch as `call`, or 0 if there is none.
  uint64_t CallOfBatch(const std::vector<uint64_t>& calls, uint64_t call) const;
  // Checks that nothing in the call's batch still has to be received and, for kBoth, that `sent` is
  // empty.
  absl::Status CheckSend(uint64_t call, Phases phases, const std::vector<uint64_t>& sent) const;
  // Checks that `call` is the next of `sent` to be received.
  absl::Status CheckReceive(uint64_t call, const std::vector<uint64_t>& sent) const;

  uint64_t batches_;
  uint64_t calls_ = 0;
  uint64_t void_calls_ = 0;  // the last void call
  // Calls whose dispatch (or combine) was sent but not yet received, in the order of sending.
  std::vector<uint64_t> dispatches_sent_;
  std::vector<uint64_t> combines_sent_;
};

}  // namespace octet

#endif  // OCTET_KERNELS_EP_BASE_CALL_SEQUENCE_H_
