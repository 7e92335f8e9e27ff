#include "runtime/node/host_barrier.h"

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "gpu_schedule.h"
#include "octet/node_failure.h"
#include "runtime/base/mutex.h"
#include "runtime/failure/failure.h"

namespace octet {
namespace {

// A slot's word holds the round in its low bits. A rank that leaves keeps its round, since slower
// ranks may not have read it yet.
constexpr uint64_t kLeftBit = uint64_t{1} << 63;

bool Passed(uint64_t word, uint64_t round) { return (word & ~kLeftBit) >= round; }

// "dispatch of 'layer 3'"; less of what is empty.
std::string CallText(absl::string_view before, absl::string_view object) {
  if (object.empty()) return std::string(before);
  return absl::StrCat(before.empty() ? "a call" : before, " of ", object);
}

std::string BarrierText(absl::string_view call) {
  return absl::StrCat("host barrier", call.empty() ? "" : " before ", call);
}

// Reading the clock costs more than a poll.
constexpr uint64_t kPollsPerSlowCheck = 64;

}  // namespace

HostBarrier::HostBarrier(int num_ranks, absl::Duration timeout, CallerName name_of)
    : num_ranks_(num_ranks),
      timeout_(timeout),
      cores_(Backoff::CoresFor(num_ranks)),
      name_of_(std::move(name_of)),
      slots_(std::make_unique<Slot[]>(num_ranks)) {}

std::string HostBarrier::NameOf(uint32_t caller) const {
  return caller != 0 && name_of_ != nullptr ? name_of_(caller) : "";
}

std::string HostBarrier::NameOrNumberOf(uint32_t caller) const {
  std::string name = NameOf(caller);
  if (!name.empty()) return name;
  return absl::StrCat("object ", caller, " of the node (it has no name)");
}

bool HostBarrier::CheckCaller(const Waiter& waiter, int other) {
  const uint32_t theirs = slots_[other].caller[waiter.round % 2].load(std::memory_order_relaxed);
  if (theirs == waiter.caller || theirs == 0 || waiter.caller == 0) return true;
  Abort(WithFailure({.rank = waiter.rank},
                    absl::FailedPreconditionError(absl::StrCat(
                        BarrierText(CallText(waiter.before, NameOrNumberOf(waiter.caller))),
                        ": rank ", other, " has come to a call of ", NameOrNumberOf(theirs),
                        "; all ranks make the same calls in the same order"))));
  return false;
}

// Checks all ranks, not only the first one that is missing.
bool HostBarrier::CheckSlowly(const Waiter& waiter, absl::Duration waited) {
  // Whichever rank returns an error, it is of the rank that waited.
  NodeFailure failure = {.kind = NodeFailure::Kind::kWait,
                         .rank = waiter.rank,
                         .waited = waited,
                         .phase = BarrierText(CallText(waiter.before, NameOf(waiter.caller))),
                         .flag = "arrival"};
  std::vector<int> missing;
  for (int rank = 0; rank < num_ranks_; ++rank) {
    const uint64_t word = slots_[rank].word.load(std::memory_order_acquire);
    if (Passed(word, waiter.round)) continue;
    if ((word & kLeftBit) != 0) {
      failure.peer = rank;
      Abort(WithFailure(failure, absl::AbortedError(absl::StrCat(failure.phase, ": rank ", rank,
                                                                 " has left Run"))));
      return false;
    }
    missing.push_back(rank);
  }
  if (waited < timeout_ || missing.empty()) return true;
  failure.peer = missing.front();
  Abort(WithFailure(failure, absl::DeadlineExceededError(absl::StrCat(
                                 failure.phase, " waited ", WaitText(waited), " for rank",
                                 missing.size() > 1 ? "s " : " ", absl::StrJoin(missing, ", ")))));
  return false;
}

absl::Status HostBarrier::Arrive(int rank, absl::string_view before, uint32_t caller) {
  if (aborted_.load(std::memory_order_acquire)) return AbortStatus();
  Slot& mine = slots_[rank];
  const uint64_t next_round = (mine.word.load(std::memory_order_relaxed) & ~kLeftBit) + 1;
  mine.caller[next_round % 2].store(caller, std::memory_order_relaxed);
  const uint64_t word = mine.word.fetch_add(1, std::memory_order_release) + 1;
  if ((word & kLeftBit) != 0) {
    return absl::FailedPreconditionError(
        absl::StrCat("rank ", rank, " comes to a barrier after it has left"));
  }

  const auto has_come = [this, word](int other) {
    return Passed(slots_[other].word.load(std::memory_order_acquire), word);
  };
  const platform::HostWait wait([&] {
    bool all_here = true;
    for (int other = 0; other < num_ranks_; ++other) all_here = all_here && has_come(other);
    return all_here || aborted_.load(std::memory_order_acquire);
  });
  std::optional<std::chrono::steady_clock::time_point> start;
  Backoff backoff(cores_);
  const Waiter waiter = {rank, before, word, caller};
  int next = 0;  // all ranks before this one have arrived
  while (true) {
    for (; next < num_ranks_ && has_come(next); ++next) {
      if (!CheckCaller(waiter, next)) return AbortStatus();
    }
    if (next == num_ranks_) return absl::OkStatus();
    if (aborted_.load(std::memory_order_acquire)) return AbortStatus();
    backoff.Wait();
    if (backoff.polls() % kPollsPerSlowCheck == 0) {
      const auto now = std::chrono::steady_clock::now();
      if (!start.has_value()) start = now;
      if (!CheckSlowly(waiter, absl::FromChrono(now - *start))) return AbortStatus();
    }
  }
}

void HostBarrier::Leave(int rank) {
  slots_[rank].word.fetch_or(kLeftBit, std::memory_order_acq_rel);
}

void HostBarrier::Abort(const absl::Status& status) {
  MutexLock lock(&mutex_);
  if (aborted_.load(std::memory_order_relaxed)) return;
  status_ = status;
  aborted_.store(true, std::memory_order_release);
}

void HostBarrier::Reset() {
  MutexLock lock(&mutex_);
  status_ = absl::OkStatus();
  for (int rank = 0; rank < num_ranks_; ++rank) {
    slots_[rank].word.store(0, std::memory_order_relaxed);
  }
  aborted_.store(false, std::memory_order_release);
}

absl::Status HostBarrier::AbortStatus() const {
  MutexLock lock(&mutex_);
  // Each rank gets a text of its own: copies of a Status share theirs by counting references, which
  // ThreadSanitizer cannot see in a distribution's Abseil.
  return WithMessage(status_, status_.message());
}

}  // namespace octet
