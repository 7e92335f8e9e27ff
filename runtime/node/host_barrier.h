// A barrier of host threads that spins for speed and gives up after a timeout.
#ifndef OCTET_RUNTIME_NODE_HOST_BARRIER_H_
#define OCTET_RUNTIME_NODE_HOST_BARRIER_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "runtime/base/backoff.h"
#include "runtime/base/mutex.h"

namespace octet {

// Reusable for any number of rounds. Each of `num_ranks` threads calls Arrive once per round. Spins
// if there are cores for all threads; otherwise yields and then sleeps.
//
// Each rank writes only its own cache line and reads those of all ranks. For a node's few ranks
// this is faster than a shared counter, whose line every rank must own in turn, and than a tree or
// dissemination, whose steps transfer lines one after the other: here a rank's store and loads
// overlap with those of all other ranks. The barrier also sees directly which ranks are missing.
class HostBarrier {
 public:
  // Returns the name of a `caller` of Arrive, as errors tell it; empty if it has none.
  using CallerName = std::function<std::string(uint32_t caller)>;

  // `timeout` limits one Arrive.
  HostBarrier(int num_ranks, absl::Duration timeout, CallerName name_of = nullptr);

  // Waits until all present ranks have arrived. Errors name `before`, the call that the barrier
  // belongs to; it may be empty. `caller` identifies what makes the call, 0 nothing: ranks that
  // come with different ones have not come to the same call.
  //   kDeadlineExceeded    names a rank that waited, `before` and the ranks that did not arrive;
  //                        the barrier is then aborted
  //   kCancelled, or the   after Abort, until Reset: every rank that waits or arrives gets it
  //   status of Abort
  //   kFailedPrecondition  this rank has left; or two ranks have come with different callers, both
  //                        named: the barrier is then aborted
  absl::Status Arrive(int rank, absl::string_view before = {}, uint32_t caller = 0);

  // Removes a rank that will not arrive again: the barrier no longer waits for it. If another rank
  // is waiting for it, or arrives later in a round that expected it, that wait ends with kAborted,
  // which names the rank that waited and the rank that left. Rounds at which the rank had arrived
  // before it left are not affected.
  void Leave(int rank);

  // Releases all waiting ranks with `status` (not OK). The first call wins.
  void Abort(const absl::Status& status);

  // Makes all ranks present again and clears the abort. No thread may be inside Arrive.
  void Reset();

 private:
  // One rank's wait.
  struct Waiter {
    int rank;
    absl::string_view before;
    uint64_t round;
    uint32_t caller;
  };
  // Returns false if `other`, which has arrived, has come with another caller; the barrier is then
  // aborted.
  bool CheckCaller(const Waiter& waiter, int other);
  std::string NameOf(uint32_t caller) const;
  std::string NameOrNumberOf(uint32_t caller) const;
  // Returns false if waiting on is pointless; the barrier is then aborted.
  bool CheckSlowly(const Waiter& waiter, absl::Duration waited);
  absl::Status AbortStatus() const;

  const int num_ranks_;
  const absl::Duration timeout_;
  const Backoff::Cores cores_;
  const CallerName name_of_;
  // The round at which the rank has arrived, and whether it has left. Each slot has a pair of cache
  // lines, since neighbouring lines are fetched together.
  struct alignas(128) Slot {
    std::atomic<uint64_t> word{0};
    // Of this round and the one before, by parity: no rank is further ahead of another.
    std::atomic<uint32_t> caller[2] = {0, 0};
  };
  std::unique_ptr<Slot[]> slots_;
  alignas(128) std::atomic<bool> aborted_{false};
  mutable Mutex mutex_;
  absl::Status status_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace octet

#endif  // OCTET_RUNTIME_NODE_HOST_BARRIER_H_
