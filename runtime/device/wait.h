// Every wait of every kernel. A wait polls at system scope, ends with acquire semantics (except
// PollUntil), and has a deadline: it ends in a FailureRecord, never in a hang. Where ranks may be
// masked (mask.h), a wait also ends when the rank that it waits for is masked.
//
// Epochs are call numbers that only grow; 44 bits (epoch.h) last for decades. "Arrived" means at
// least the expected epoch, so that a writer which is already one call ahead is not missed.
#ifndef OCTET_RUNTIME_DEVICE_WAIT_H_
#define OCTET_RUNTIME_DEVICE_WAIT_H_

#include <cstdint>

#include "device_ops.h"
#include "octet/peers.h"
#include "runtime/device/epoch.h"
#include "runtime/device/failure_record.h"
#include "runtime/device/mask.h"

namespace octet::device {

// Reading the clock costs more than a poll, and reading the abort word is a round trip to the host:
// if thousands of waves did that at each poll, all other work on the GPU would stall.
inline constexpr uint32_t kPollsPerClockCheck = 256;
inline constexpr uint64_t kTicksPerAbortCheck = kClockHz / 1000;

// Writes a record if it is the rank's first of its kind and, for a failure, tells the whole node to
// stop waiting.
// NOLINTNEXTLINE(readability-function-size): each of them is part of every wait
__device__ inline void Fail(const FailurePort& port, FailureKind kind, const Site& site,
                            uint64_t expected, uint64_t seen, uint64_t waited_ticks) {
  const int index = RecordIndex(kind);
  if (ExchangeRelaxed<Scope::kDevice>(port.claimed + index, 1U) == 0) {
    FailureRecord* record = port.records + index;
    record->kind = kind;
    record->client = port.client;
    record->caller = port.caller;
    record->site = site.site;
    record->peer = site.peer;
    record->index = site.index;
    record->expected = expected;
    record->seen = seen;
    record->waited_ticks = waited_ticks;
    StoreRelease<Scope::kSystem>(&record->complete, 1U);
  }
  if (kind != FailureKind::kReleased) StoreRelease<Scope::kSystem>(port.abort_word, 1U);
}

// Returns whether a wait or check of this rank has called Fail since the node last recovered. Reads
// the GPU's own memory, so that kernels can check at their start: the data for kernels enqueued
// after the failed one has not arrived. Callers may see different answers while a kernel of the
// rank runs.
__device__ inline bool HasFailed(const FailurePort& port) {
  uint32_t claimed = 0;
  for (int i = 0; i < kRecordsOfARank; ++i) {
    claimed |= LoadRelaxed<Scope::kDevice>(port.claimed + i);
  }
  return claimed != 0;
}

// Where ranks may be masked, waits for credits get half the time: otherwise a rank that waits for
// the credit of a silent rank would itself seem silent to the ranks that wait for its data.
__device__ inline uint64_t DeadlineOf(const FailurePort& port, const Site& site) {
  const bool half = port.masks != nullptr && site.awaited == Awaited::kCredit;
  return half ? port.deadline_ticks / 2 : port.deadline_ticks;
}

// The block's longest waits for data from each rank, in ticks: [kMaxRanks], in shared memory, so
// that recording a wait does not cost another one.
__device__ inline uint64_t* LongestWaitsOfBlock() {
  __shared__ uint64_t longest[kMaxRanks];
  return longest;
}

// All threads of a block whose waits are measured must call it before the first wait; a barrier of
// the block must follow.
__device__ inline void ResetLongestWaits(const FailurePort& port) {
  if (!port.measures_waits || threadIdx.x >= kMaxRanks) return;
  LongestWaitsOfBlock()[threadIdx.x] = 0;
}

// Sets `*longest` to the maximum of all values: a thread that has taken out a greater value puts it
// back.
__device__ inline void NoteLongest(uint64_t* longest, uint64_t ticks) {
  for (uint64_t before; (before = ExchangeRelaxed<Scope::kBlock>(longest, ticks)) > ticks;) {
    ticks = before;
  }
}

// The rest of PollUntil, for a word that had not arrived at the first poll; `seen` is its value
// then.
template <typename T, typename Arrived>
// NOLINTNEXTLINE(readability-function-size): each of them is part of every wait
__device__ inline bool PollOn(const FailurePort& port, const T* word, const Site& site,
                              uint64_t expected, uint64_t* start, Arrived arrived, T seen) {
  const AwaitedRank awaited(site.peer);
  uint64_t abort_checked = 0;
  uint32_t polls = 0;
  do {
    if (++polls % kPollsPerClockCheck == 0) {
      const uint64_t now = Clock();
      if (*start == 0) *start = now;
      if (abort_checked == 0) abort_checked = now;
      if (IsMasked(port, site.peer)) return false;
      const bool expired = now - *start > DeadlineOf(port, site);
      bool released = false;
      if (!expired && now - abort_checked > kTicksPerAbortCheck) {
        abort_checked = now;
        released = LoadRelaxed<Scope::kSystem>(port.abort_word) != 0;
      }
      if (expired || released) {
        // This thread may not have run, and thus not polled, for a while.
        seen = LoadRelaxed<Scope::kSystem>(word);
        if (arrived(seen)) return true;
        if (expired && MaskRank(port, site.peer)) return false;
        Fail(port, expired ? FailureKind::kDeadline : FailureKind::kReleased, site, expected, seen,
             now - *start);
        return false;
      }
    }
    Pause(polls);
    seen = LoadRelaxed<Scope::kSystem>(word);
  } while (!arrived(seen));
  return true;
}

// Polls `word` until `arrived(value)` and then returns true, without acquiring: for words that
// contain all the data themselves. Otherwise like WaitUntil. kMeasured: enters the wait in
// LongestWaitsOfBlock, if FailurePort::measures_waits.
template <bool kMeasured = false, typename T, typename Arrived>
// NOLINTNEXTLINE(readability-function-size): each of them is part of every wait
__device__ inline bool PollUntil(const FailurePort& port, const T* word, const Site& site,
                                 uint64_t expected, uint64_t* start, Arrived arrived) {
  const T seen = LoadRelaxed<Scope::kSystem>(word);
  if (arrived(seen)) return true;
  const bool measured = kMeasured && port.measures_waits && site.peer >= 0;
  if (measured && *start == 0) *start = Clock();
  const bool came = PollOn(port, word, site, expected, start, arrived, seen);
  if (measured) NoteLongest(LongestWaitsOfBlock() + site.peer, Clock() - *start);
  return came;
}

// Polls `word` until `arrived(value)` and then returns true, with acquire semantics at system
// scope. Returns false if the deadline passed, the node was told to stop or the peer is masked (see
// IsMasked): the caller must then not access what the wait guards. Each caller waits by itself: one
// lane of a wave should call this and the wave should then agree (see WaveWaitEpoch). `*start` is
// when the caller began to wait, 0 if it has not yet: consecutive waits that pass the same `start`
// share one deadline.
template <bool kMeasured = false, typename T, typename Arrived>
// NOLINTNEXTLINE(readability-function-size): each of them is part of every wait
__device__ inline bool WaitUntil(const FailurePort& port, const T* word, const Site& site,
                                 uint64_t expected, uint64_t* start, Arrived arrived) {
  if (!PollUntil<kMeasured>(port, word, site, expected, start, arrived)) return false;
  AcquirePolled<Scope::kSystem>(word);
  return true;
}

// Waits for a flag to reach an epoch.
template <bool kMeasured = false>
__device__ inline bool WaitEpoch(const FailurePort& port, const uint64_t* flag, uint64_t epoch,
                                 const Site& site, uint64_t* start) {
  return WaitUntil<kMeasured>(port, flag, site, epoch, start,
                              [epoch](uint64_t seen) { return seen >= epoch; });
}
__device__ inline bool WaitEpoch(const FailurePort& port, const uint64_t* flag, uint64_t epoch,
                                 const Site& site) {
  uint64_t start = 0;
  return WaitEpoch(port, flag, epoch, site, &start);
}

// All lanes of the wave wait for one flag: lane 0 polls, then all lanes may read what it guards.
__device__ inline bool WaveWaitEpoch(const FailurePort& port, const uint64_t* flag, uint64_t epoch,
                                     const Site& site) {
  int arrived = 0;
  if (Lane() == 0) arrived = WaitEpoch(port, flag, epoch, site) ? 1 : 0;
  SyncWave();
  return Shuffle(arrived, 0) != 0;
}

// The wave waits for the flags of all lanes that have one (`flag` not null). Only one lane polls at
// a time: many pollers slow down the ranks that they wait for. Optional results: `*last_lane` is
// the lane whose flag was waited for last, -1 if all had arrived at once. `*masked`, required where
// ranks may be masked, says whether this lane's peer is masked, so that its flag may not have
// arrived. `*seen` is this lane's flag when all had arrived.
template <bool kMeasured = false>
// NOLINTNEXTLINE(readability-function-size): each of them is part of every wait
__device__ inline bool WaveWaitEpochs(const FailurePort& port, const uint64_t* flag, uint64_t epoch,
                                      const Site& site, int* last_lane = nullptr,
                                      bool* masked = nullptr, uint64_t* seen = nullptr) {
  if (last_lane != nullptr) *last_lane = -1;
  if (masked != nullptr) *masked = false;
  uint64_t start = 0;
  for (;;) {
    const uint64_t word = flag != nullptr ? LoadRelaxed<Scope::kSystem>(flag) : epoch;
    const uint64_t missing = Ballot(word < epoch);
    if (seen != nullptr) *seen = word;
    if (missing == 0) break;
    const int poller = __ffsll(static_cast<long long>(missing)) - 1;
    if (last_lane != nullptr) *last_lane = poller;
    bool failed = false;
    if (Lane() == poller) failed = !WaitEpoch<kMeasured>(port, flag, epoch, site, &start);
    if (Ballot(failed) != 0) {
      // A masked peer may have flags in several lanes.
      const bool left_out = masked != nullptr && flag != nullptr && IsMasked(port, site.peer);
      if (Ballot(failed && !left_out) != 0) return false;
      if (left_out) {
        *masked = true;
        flag = nullptr;
      }
    }
    start = Shuffle(start, poller);
  }
  if (flag != nullptr) AcquirePolled<Scope::kSystem>(flag);
  SyncWave();
  return true;
}

// Publishes what all lanes of this wave have stored: lane 0 releases at system scope after the wave
// has synchronized.
__device__ inline void WavePublish(uint64_t* flag, uint64_t epoch) {
  SyncWave();
  if (Lane() == 0) StoreRelease<Scope::kSystem>(flag, epoch);
}

// The same by several flags, one of each lane or null. A release at system scope takes a compute
// unit about half a microsecond, during which it releases nothing else; here one does for all.
__device__ inline void WavePublishFlags(uint64_t* flag, uint64_t epoch) {
  SyncWave();
  if (flag == nullptr) return;
  // By each lane, since each stores a flag.
  FenceRelease<Scope::kSystem>();
  StoreRelaxed<Scope::kSystem>(flag, epoch);
}

}  // namespace octet::device

#endif  // OCTET_RUNTIME_DEVICE_WAIT_H_
