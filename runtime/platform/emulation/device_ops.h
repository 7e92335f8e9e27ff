// The GPU operations that kernels use, on emulated GPUs. runtime/platform/README.md states the
// contract of every name.
//
// Every atomic and every 16-byte access is checked: an access to memory of a peer that this GPU
// cannot access, to freed memory or out of bounds ends the grid with an error. Polling lanes yield:
// a lane that has seen the same value twice, with a Pause() in between, runs again only when the
// value changes (or after some time, so that it can read the clock). A lane that waits by plain
// loads, without any of these functions, is never interrupted.
//
// With OCTET_SANITIZE=weak-memory, plain loads and stores (including row copies) are as weak as the
// contract allows: a store becomes visible to other lanes only through operations that order it,
// and a load that nothing orders after it usually gets the old value (weak_memory.h). Atomics do
// not get old values of data that atomics have stored.
//
// The last parameter of each function is the source location of the call, for reports; never pass
// it.
#ifndef OCTET_RUNTIME_PLATFORM_EMULATION_DEVICE_OPS_H_
#define OCTET_RUNTIME_PLATFORM_EMULATION_DEVICE_OPS_H_

#include <hip/hip_runtime.h>

#include <bit>
#include <cstdint>
#include <type_traits>

#include "hip/kernel_interface.h"

namespace octet::device {

inline constexpr const int& kWaveSize = emulation::wave_size;
#define OCTET_OUT_OF_LINE inline

inline constexpr int kMinWaveSize = 32;
inline constexpr uint64_t kClockHz = 1'000'000'000;
inline uint64_t HostClockHz() { return kClockHz; }

enum class Scope { kBlock, kDevice, kSystem };

namespace internal {

using emulation::Location;
using emulation::MemoryOrder;
using emulation::MemoryScope;

template <Scope scope>
// NOLINTNEXTLINE(google-readability-casting): not a C cast, but an instantiated template shows one
inline constexpr MemoryScope kMemoryScope = static_cast<MemoryScope>(scope);

template <typename T>
inline uint64_t ToBits(T v) {
  static_assert(sizeof(T) == 4 || sizeof(T) == 8, "values of 4 or 8 bytes");
  if constexpr (sizeof(T) == 4) {
    return std::bit_cast<uint32_t>(v);
  } else {
    return std::bit_cast<uint64_t>(v);
  }
}
template <typename T>
inline T FromBits(uint64_t bits) {
  if constexpr (sizeof(T) == 4) {
    return std::bit_cast<T>(static_cast<uint32_t>(bits));
  } else {
    return std::bit_cast<T>(bits);
  }
}

}  // namespace internal

// ---- position

__device__ inline int Lane() { return emulation::CurrentLane()->lane; }
__device__ inline int Wave() { return emulation::CurrentLane()->wave_index; }

// ---- scoped atomics

template <Scope scope, typename T>
__device__ inline T LoadRelaxed(const T* p,
                                internal::Location where = internal::Location::current()) {
  return internal::FromBits<T>(emulation::AtomicLoad(p, sizeof(T), internal::MemoryOrder::kRelaxed,
                                                     internal::kMemoryScope<scope>, where));
}
template <Scope scope, typename T>
__device__ inline T LoadAcquire(const T* p,
                                internal::Location where = internal::Location::current()) {
  return internal::FromBits<T>(emulation::AtomicLoad(p, sizeof(T), internal::MemoryOrder::kAcquire,
                                                     internal::kMemoryScope<scope>, where));
}
template <Scope scope, typename T>
__device__ inline void StoreRelaxed(T* p, T v,
                                    internal::Location where = internal::Location::current()) {
  emulation::AtomicStore(
      {p, sizeof(T), internal::MemoryOrder::kRelaxed, internal::kMemoryScope<scope>, where},
      internal::ToBits(v));
}
template <Scope scope, typename T>
__device__ inline void StoreRelease(T* p, T v,
                                    internal::Location where = internal::Location::current()) {
  emulation::AtomicStore(
      {p, sizeof(T), internal::MemoryOrder::kRelease, internal::kMemoryScope<scope>, where},
      internal::ToBits(v));
}
template <Scope scope, typename T>
__device__ inline T FetchAddRelaxed(T* p, T v,
                                    internal::Location where = internal::Location::current()) {
  return internal::FromBits<T>(emulation::AtomicUpdate(
      {p, sizeof(T), internal::MemoryOrder::kRelaxed, internal::kMemoryScope<scope>, where},
      emulation::Update::kAdd, internal::ToBits(v)));
}
template <Scope scope, typename T>
__device__ inline T FetchAddAcqRel(T* p, T v,
                                   internal::Location where = internal::Location::current()) {
  return internal::FromBits<T>(emulation::AtomicUpdate(
      {p, sizeof(T), internal::MemoryOrder::kAcqRel, internal::kMemoryScope<scope>, where},
      emulation::Update::kAdd, internal::ToBits(v)));
}
template <Scope scope, typename T>
__device__ inline void AddRelease(T* p, T v,
                                  internal::Location where = internal::Location::current()) {
  emulation::AtomicUpdate(
      {p, sizeof(T), internal::MemoryOrder::kRelease, internal::kMemoryScope<scope>, where},
      emulation::Update::kAdd, internal::ToBits(v));
}
template <Scope scope, typename T>
__device__ inline T ExchangeRelaxed(T* p, T v,
                                    internal::Location where = internal::Location::current()) {
  return internal::FromBits<T>(emulation::AtomicUpdate(
      {p, sizeof(T), internal::MemoryOrder::kRelaxed, internal::kMemoryScope<scope>, where},
      emulation::Update::kExchange, internal::ToBits(v)));
}
template <Scope scope>
__device__ inline void FenceAcquire() {
  emulation::Fence(internal::MemoryOrder::kAcquire, internal::kMemoryScope<scope>);
}
template <Scope scope>
__device__ inline void FenceRelease() {
  emulation::Fence(internal::MemoryOrder::kRelease, internal::kMemoryScope<scope>);
}

template <Scope scope, typename T>
__device__ inline void AcquirePolled(const T* /*p*/) {
  FenceAcquire<scope>();
}

// ---- waves

__device__ inline void SyncWave(internal::Location where = internal::Location::current()) {
  emulation::SyncWave(where);
}
__device__ inline void SyncBlockStores(internal::Location where = internal::Location::current()) {
  __syncthreads(where);
}
template <typename T>
__device__ inline T Shuffle(T v, int lane,
                            internal::Location where = internal::Location::current()) {
  return internal::FromBits<T>(
      emulation::ShuffleFrom(internal::ToBits(v), lane & (kWaveSize - 1), where));
}
template <typename T>
__device__ inline T ShuffleXor(T v, int mask,
                               internal::Location where = internal::Location::current()) {
  return internal::FromBits<T>(emulation::ShuffleFrom(internal::ToBits(v), Lane() ^ mask, where));
}
// Returns the value of the lane `delta` below; a lane without one gets its own value.
template <typename T>
__device__ inline T ShuffleUp(T v, int delta,
                              internal::Location where = internal::Location::current()) {
  return internal::FromBits<T>(emulation::ShuffleFrom(internal::ToBits(v), Lane() - delta, where));
}
// Bit i is set if lane i's predicate holds.
__device__ inline uint64_t Ballot(bool predicate,
                                  internal::Location where = internal::Location::current()) {
  return emulation::BallotOf(predicate, where);
}

// Returns the largest value of all lanes.
__device__ inline uint64_t LargestOfWave(uint64_t v) {
  for (int mask = kWaveSize / 2; mask > 0; mask /= 2) {
    const uint64_t other = ShuffleXor(v, mask);
    if (other > v) v = other;
  }
  return v;
}

// ---- rows of 16 bytes

struct alignas(16) Vec16 {
  uint32_t w[4];
};

__device__ inline Vec16 LoadStream(const Vec16* p,
                                   internal::Location where = internal::Location::current()) {
  emulation::CheckRead16(p, where);
  return *p;
}
__device__ inline void StoreStream(Vec16* p, const Vec16& v,
                                   internal::Location where = internal::Location::current()) {
  emulation::CheckWrite16(p, where);
  *p = v;
}
__device__ inline Vec16 LoadOnce16(const Vec16* p,
                                   internal::Location where = internal::Location::current()) {
  Vec16 v;
  emulation::AtomicLoad16(p, &v, where);
  return v;
}
__device__ inline void StoreOnce16(Vec16* p, const Vec16& v,
                                   internal::Location where = internal::Location::current()) {
  emulation::AtomicStore16(p, &v, where);
}

__device__ inline void Prefetch(const void* /*p*/) {}

// ---- waiting and time

// While it lives, the lane polls for something from `rank`: for reports and debuggers.
class AwaitedRank {
 public:
  explicit AwaitedRank(int rank) { emulation::NoteAwaitedRank(rank); }
  ~AwaitedRank() { emulation::NoteAwaitedRank(-1); }
  AwaitedRank(const AwaitedRank&) = delete;
  AwaitedRank& operator=(const AwaitedRank&) = delete;
};

// Ignores the count: the scheduler decides better when the lane runs again.
__device__ inline void Pause(uint32_t /*polls*/ = 0,
                             internal::Location where = internal::Location::current()) {
  emulation::PauseLane(where);
}
__device__ inline uint64_t Clock() { return emulation::ReadClock(); }

// ---- 16-bit floating point, in pairs

namespace internal {

inline uint32_t RoundToBf16(float f) {
  const uint32_t bits = std::bit_cast<uint32_t>(f);
  if ((bits & 0x7fffffffU) > 0x7f800000U) return (bits >> 16) | 0x40U;  // quiet NaN
  return (bits + 0x7fffU + ((bits >> 16) & 1U)) >> 16;
}

}  // namespace internal

__device__ inline float2 UnpackBf16(uint32_t pair) {
  return make_float2(std::bit_cast<float>(pair << 16), std::bit_cast<float>(pair & 0xffff0000U));
}
__device__ inline uint32_t PackBf16(float first, float second) {
  return internal::RoundToBf16(first) | internal::RoundToBf16(second) << 16;
}
__device__ inline float2 UnpackFp16(uint32_t pair) {
  return make_float2(
      static_cast<float>(std::bit_cast<_Float16>(static_cast<uint16_t>(pair))),
      static_cast<float>(std::bit_cast<_Float16>(static_cast<uint16_t>(pair >> 16))));
}
__device__ inline uint32_t PackFp16(float first, float second) {
  const uint32_t low = std::bit_cast<uint16_t>(static_cast<_Float16>(first));
  const uint32_t high = std::bit_cast<uint16_t>(static_cast<_Float16>(second));
  return low | high << 16;
}

}  // namespace octet::device

#endif  // OCTET_RUNTIME_PLATFORM_EMULATION_DEVICE_OPS_H_
