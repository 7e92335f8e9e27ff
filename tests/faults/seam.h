// The seam through which faults get into kernels. Every kernel file of the test program is compiled
// with `-include tests/faults/seam.h`: the real headers come first, then their functions are
// replaced by name, so that the kernels' own text calls the versions below. With Fault::kNone these
// are the functions that they replace. Kernels know nothing of it.
//
// Emulation only. A replaced function passes on the place that it was called from, so that reports
// name the kernel's own line.
#ifndef OCTET_TESTS_FAULTS_SEAM_H_
#define OCTET_TESTS_FAULTS_SEAM_H_

#include <hip/hip_cooperative_groups.h>
#include <hip/hip_runtime.h>

#include <cstdint>
#include <type_traits>

#include "device_ops.h"
#include "kernels/direct/layout.h"
#include "kernels/high_throughput/sites.h"
#include "kernels/low_latency/sites.h"
#include "runtime/device/epoch.h"
#include "tests/faults/fault.h"

// ---- primitives

namespace octet::device {

using Where = internal::Location;

inline bool Planted(faults::Fault fault) { return faults::planted.fault == fault; }

template <Scope scope, typename T>
__device__ inline void SeamStoreRelease(T* p, T v, Where where = Where::current()) {
  if (scope == Scope::kSystem && Planted(faults::Fault::kMissingRelease)) {
    StoreRelaxed<scope>(p, v, where);
  } else if (scope == Scope::kSystem && Planted(faults::Fault::kDeviceScope)) {
    StoreRelease<Scope::kDevice>(p, v, where);
  } else {
    StoreRelease<scope>(p, v, where);
  }
}

template <Scope scope>
__device__ inline void SeamFenceRelease() {
  if (scope == Scope::kSystem && Planted(faults::Fault::kMissingRelease)) return;
  if (scope == Scope::kSystem && Planted(faults::Fault::kDeviceScope)) {
    FenceRelease<Scope::kDevice>();
  } else {
    FenceRelease<scope>();
  }
}

template <Scope scope, typename T>
__device__ inline void SeamAcquirePolled(const T* p) {
  if (!Planted(faults::Fault::kMissingAcquire)) AcquirePolled<scope>(p);
}

template <Scope scope>
__device__ inline void SeamFenceAcquire() {
  if (!Planted(faults::Fault::kMissingAcquire)) FenceAcquire<scope>();
}

template <Scope scope, typename T>
__device__ inline T SeamLoadAcquire(const T* p, Where where = Where::current()) {
  return Planted(faults::Fault::kMissingAcquire) ? LoadRelaxed<scope>(p, where)
                                                 : LoadAcquire<scope>(p, where);
}

template <Scope scope, typename T>
__device__ inline void SeamStoreRelaxed(T* p, T v, Where where = Where::current()) {
  if (scope == Scope::kDevice && v == T{} && Planted(faults::Fault::kCounterNotCleared)) return;
  // Counts that have an epoch beside them.
  if (scope == Scope::kDevice && blockIdx.x == 1 && EpochOf(static_cast<uint64_t>(v)) != 0 &&
      Planted(faults::Fault::kShareNotTold)) {
    return;
  }
  StoreRelaxed<scope>(p, v, where);
}

// The end of the heap's memory that the address lies in; nullptr: it lies in none.
__device__ inline char* EndOfHeap(const device::PeerBases& heaps, size_t bytes,
                                  const void* address) {
  for (int rank = 0; rank < heaps.num_ranks; ++rank) {
    char* base = heaps.base[rank];
    if (static_cast<size_t>(static_cast<const char*>(address) - base) < bytes) return base + bytes;
  }
  return nullptr;
}
__device__ inline char* EndOfHeap(const void* address) {
  const faults::Plant& plant = faults::planted;
  char* end = EndOfHeap(plant.heaps, plant.heap_bytes, address);
  return end != nullptr ? end : EndOfHeap(plant.row_heaps, plant.row_heap_bytes, address);
}

// Vectors that are to be stored after the flag: a lane's last ones.
struct LateVectors {
  static constexpr int kMost = 2;
  int count;
  int syncs;  // of the wave since the first of them
  Vec16* to[kMost];
  Vec16 value[kMost];
};
__device__ inline LateVectors* LateVectorsOfBlock() {
  __shared__ LateVectors late[256];
  return late;
}
__device__ inline LateVectors& LateVectorsOfLane() { return LateVectorsOfBlock()[threadIdx.x]; }

__device__ inline void SeamStoreStream(Vec16* p, const Vec16& v, Where where = Where::current()) {
  char* end = Planted(faults::Fault::kNone) ? nullptr : EndOfHeap(p);
  if (end != nullptr && Planted(faults::Fault::kFlagBeforePayload)) {
    LateVectors& late = LateVectorsOfLane();
    if (late.count < LateVectors::kMost) {
      if (late.count == 0) late.syncs = 0;
      late.to[late.count] = p;
      late.value[late.count++] = v;
      return;
    }
  }
  if (end != nullptr && Planted(faults::Fault::kOffByOneSlot)) p += faults::planted.row_vecs;
  if (end != nullptr && Planted(faults::Fault::kRowPastTheEnd)) {
    p = reinterpret_cast<Vec16*>(end);
  }
  StoreStream(p, v, where);
}

}  // namespace octet::device

namespace cooperative_groups {

struct SeamGrid {
  __device__ void sync(octet::device::Where where = octet::device::Where::current()) const {
    if (!octet::device::Planted(octet::faults::Fault::kMissingGridSync)) this_grid().sync(where);
  }
};
__device__ inline SeamGrid SeamThisGrid() { return {}; }

}  // namespace cooperative_groups

#define StoreRelease SeamStoreRelease
#define FenceRelease SeamFenceRelease
#define AcquirePolled SeamAcquirePolled
#define FenceAcquire SeamFenceAcquire
#define LoadAcquire SeamLoadAcquire
#define StoreRelaxed SeamStoreRelaxed
#define StoreStream SeamStoreStream
#define this_grid SeamThisGrid

// ---- what is made of them

#include "runtime/device/block_counter.h"
#include "runtime/device/call_epoch_device.h"
#include "runtime/device/wait.h"

namespace octet::device {

__device__ inline uint64_t SeamBeginCall(const FailurePort& port, CallEpoch* call,
                                         uint32_t num_blocks, uint64_t* number = nullptr) {
  if (Planted(faults::Fault::kFlagBeforePayload)) LateVectorsOfLane().count = 0;
  return BeginCall(port, call, num_blocks, number);
}

__device__ inline bool SeamLastBlock(uint32_t* counter, uint32_t num_blocks) {
  const bool last = LastBlock(counter, num_blocks);
  return last || Planted(faults::Fault::kNotLastBlock);
}

__device__ inline void StoreLateVectors(LateVectors& late = LateVectorsOfLane()) {
  for (int i = 0; i < late.count; ++i) *late.to[i] = late.value[i];
  late.count = 0;
}

// Flags that are not stored by WavePublish or WavePublishFlags come between a wave's barrier and
// its next one.
__device__ inline void SeamSyncWave(Where where = Where::current()) {
  SyncWave(where);
  if (!Planted(faults::Fault::kFlagBeforePayload)) return;
  LateVectors& late = LateVectorsOfLane();
  if (late.count > 0 && late.syncs++ > 0) StoreLateVectors();
}

__device__ inline void SeamWavePublish(uint64_t* flag, uint64_t epoch) {
  if (Planted(faults::Fault::kFlagNobodySets)) return;
  WavePublish(flag, Planted(faults::Fault::kBitInsteadOfEpoch) ? epoch % 2 : epoch);
  if (Planted(faults::Fault::kFlagBeforePayload)) StoreLateVectors();
}

__device__ inline void SeamWavePublishFlags(uint64_t* flag, uint64_t epoch) {
  if (Planted(faults::Fault::kFlagNobodySets)) return;
  WavePublishFlags(flag, Planted(faults::Fault::kBitInsteadOfEpoch) ? epoch % 2 : epoch);
  if (Planted(faults::Fault::kFlagBeforePayload)) StoreLateVectors();
}

// For a flag that is 0 or 1.
__device__ inline bool WaitBit(const FailurePort& port, const uint64_t* flag, uint64_t epoch,
                               const Site& site) {
  const uint64_t bit = epoch % 2;
  uint64_t start = 0;
  return WaitUntil(port, flag, site, bit, &start, [bit](uint64_t seen) { return seen == bit; });
}

__device__ inline bool SeamWaveWaitEpoch(const FailurePort& port, const uint64_t* flag,
                                         uint64_t epoch, const Site& site) {
  if (!Planted(faults::Fault::kBitInsteadOfEpoch)) return WaveWaitEpoch(port, flag, epoch, site);
  return Ballot(Lane() == 0 && !WaitBit(port, flag, epoch, site)) == 0;
}

template <bool kMeasured = false>
// NOLINTNEXTLINE(readability-function-size): those of WaveWaitEpochs
__device__ inline bool SeamWaveWaitEpochs(const FailurePort& port, const uint64_t* flag,
                                          uint64_t epoch, const Site& site,
                                          int* last_lane = nullptr, bool* masked = nullptr,
                                          uint64_t* seen = nullptr) {
  if (!Planted(faults::Fault::kBitInsteadOfEpoch)) {
    return WaveWaitEpochs<kMeasured>(port, flag, epoch, site, last_lane, masked, seen);
  }
  if (last_lane != nullptr) *last_lane = -1;
  return Ballot(flag != nullptr && !WaitBit(port, flag, epoch, site)) == 0;
}

// Waits that are for one word after the other.
template <bool kMeasured = false, typename T, typename Arrived>
// NOLINTNEXTLINE(readability-function-size): those of PollUntil
__device__ inline bool SeamPollUntil(const FailurePort& port, const T* word, const Site& site,
                                     uint64_t expected, uint64_t* start, Arrived arrived) {
  // The first call has it: sums that it leaves behind keep the places of the others within memory.
  if (Planted(faults::Fault::kShareNotAwaited) && expected > PackEpochCount(1, 0) &&
      site.site == static_cast<uint32_t>(high_throughput::Site::kBlockCount)) {
    return true;
  }
  uint64_t afresh = 0;
  return PollUntil<kMeasured>(port, word, site, expected,
                              Planted(faults::Fault::kTimeForEachWait) ? &afresh : start, arrived);
}

// Waits for one flag.
__device__ inline bool SeamWaitEpoch(const FailurePort& port, const uint64_t* flag, uint64_t epoch,
                                     Site site) {
  if (Planted(faults::Fault::kCreditsTakeAllTime)) site.awaited = Awaited::kData;
  return WaitEpoch(port, flag, epoch, site);
}

}  // namespace octet::device

namespace octet::direct {

// A sender's slot.
__device__ inline int SeamSlot(int slot) {
  if (!device::Planted(faults::Fault::kPacketPastTheEnd) ||
      static_cast<int>(blockIdx.x) >= faults::planted.send_blocks) {
    return slot;
  }
  return static_cast<int>(faults::planted.heap_bytes / sizeof(Packet));
}

}  // namespace octet::direct

#define BeginCall SeamBeginCall
#define LastBlock SeamLastBlock
#define PollUntil SeamPollUntil
#define SyncWave SeamSyncWave
#define WavePublish SeamWavePublish
#define WavePublishFlags SeamWavePublishFlags
#define WaveWaitEpoch SeamWaveWaitEpoch
#define WaitEpoch SeamWaitEpoch
#define WaveWaitEpochs SeamWaveWaitEpochs

// ---- high_throughput's own

#include "kernels/high_throughput/phase.h"
#include "kernels/low_latency/phase.h"

namespace octet::device {

// Such waits are for credits in high_throughput, and in low_latency for a source to begin.
template <bool kMeasured = false, typename Enum, typename Accept = AcceptFlag>
__device__ bool SeamAwaitFlags(const CallParams& c, const PeerFlags<Enum>& flags,
                               uint32_t* last = nullptr, Accept accept = {}) {
  constexpr bool kBegun = std::is_same_v<Enum, low_latency::Site>;
  return Planted(kBegun ? faults::Fault::kBegunIgnored : faults::Fault::kCreditIgnored) ||
         AwaitFlags<kMeasured>(c, flags, last, accept);
}

}  // namespace octet::device

namespace octet::high_throughput {

__device__ inline uint64_t SeamParity(uint64_t epoch) {
  return device::Planted(faults::Fault::kOneParity) ? epoch - epoch % 2 : epoch;
}

}  // namespace octet::high_throughput

#define PacketOf(base, source, slot, ...) \
  PacketOf(base, source, ::octet::direct::SeamSlot(slot) __VA_OPT__(, ) __VA_ARGS__)
#define AwaitFlags SeamAwaitFlags
#define Count(base, epoch, source, column) \
  Count(base, ::octet::high_throughput::SeamParity(epoch), source, column)

#if defined(OCTET_TEST_LOW_LATENCY_SEAM)
#include "tests/faults/low_latency_seam.h"
#endif

#endif  // OCTET_TESTS_FAULTS_SEAM_H_
