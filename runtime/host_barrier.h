// A barrier of host threads that is fast because it spins and safe because it gives up.
#ifndef OCTET_RUNTIME_HOST_BARRIER_H_
#define OCTET_RUNTIME_HOST_BARRIER_H_

#include <atomic>
#include <cstdint>
#include <memory>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "runtime/mutex.h"

namespace octet {

// Reusable for any number of rounds. Each of `num_ranks` threads calls Arrive once a round.
// Spins while there are cores for all threads, yields and then sleeps otherwise.
//
// Each rank writes only its own cache line and reads all others'. For a node's few ranks this beats
// a shared counter, whose line every rank must own in turn, and a tree or dissemination, whose
// steps each cost a line transfer one after the other: here a rank's store and its loads overlap
// with everybody else's. And who is missing is seen directly.
class HostBarrier {
 public:
  // `timeout`: how long one Arrive waits.
  HostBarrier(int num_ranks, absl::Duration timeout);

  // Returns when all present ranks have arrived. `before`: the call that the barrier belongs to,
  // for errors; may be empty.
  //   kDeadlineExceeded    names a rank that has waited, `before` and the ranks that did not come
  //   in
  //                        time; the barrier is then aborted
  //   kCancelled / the     when somebody called Abort: its Status, for everybody who waits and for
  //   status of Abort      everybody who comes later, until Reset
  //   kFailedPrecondition  this rank has left
  absl::Status Arrive(int rank, absl::string_view before = {});

  // A rank that will not come again: the others no longer wait for it. When somebody waits at
  // that moment, or arrives later, and the rank was expected, the wait ends with kAborted, naming
  // the rank that waited and the one that has left. Rounds that the rank had arrived at before it
  // left are not affected.
  void Leave(int rank);

  // Releases everybody with `status` (not ok). The first call wins.
  void Abort(const absl::Status& status);

  // All ranks present, nothing aborted. No thread may be inside Arrive.
  void Reset();

 private:
  // One rank's wait.
  struct Waiter {
    int rank;
    absl::string_view before;
    uint64_t round;
  };
  // False when there is no point in waiting on; the barrier is aborted then.
  bool CheckSlowly(const Waiter& waiter, absl::Duration waited);
  absl::Status AbortStatus() const;

  const int num_ranks_;
  const absl::Duration timeout_;
  const bool spin_;
  // One line pair each (neighbouring lines are fetched together): the round that the rank has
  // arrived at, and whether it has left.
  struct alignas(128) Slot {
    std::atomic<uint64_t> word{0};
  };
  std::unique_ptr<Slot[]> slots_;
  alignas(128) std::atomic<bool> aborted_{false};
  mutable Mutex mutex_;
  absl::Status status_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace octet

#endif  // OCTET_RUNTIME_HOST_BARRIER_H_
