// The GPU operations that kernels use, on AMD GPUs (gfx90a, gfx942, gfx950).
// runtime/platform/README.md states the contract of every name; this comment describes only what is
// particular to AMD.
//
// Pointers to data that other devices may see (device and system scope, rows) are global memory,
// never __shared__, and the code tells the compiler so: a pointer read from a table would otherwise
// become a flat access, which occupies the path to the LDS as well.
//
// Sites. Operations that order memory between GPUs at system scope leave comments in the assembly,
//   "; octet.<site>.begin" ... "; octet.<site>.end",
// so that tests/isa can find them and compare the instructions in between with LLVM's memory model:
//   publish   StoreRelease       consume  LoadAcquire      poll   LoadRelaxed
//   release   FenceRelease       acquire  FenceAcquire     store  StoreRelaxed
//   atomic    FetchAdd*, Exchange*
//
// 16 indivisible bytes. The ISA has no 128-bit atomic and LLVM promises none. LoadOnce16 and
// StoreOnce16 rely on how the memory pipeline treats the 16 aligned bytes of one lane in one
// dwordx4 access: they lie in one cache line and in one 64-byte unit of the fabric, and with sc0
// sc1 the access is one request to the point of coherence, not merged with anything cached on the
// way. So one request carries all of them. RCCL's LL128 protocol assumes more (128 bytes of eight
// lanes), but this remains an observation of the hardware's design, which its documents do not
// promise.
#ifndef OCTET_RUNTIME_PLATFORM_AMD_DEVICE_OPS_H_
#define OCTET_RUNTIME_PLATFORM_AMD_DEVICE_OPS_H_

#include <hip/hip_runtime.h>

#include <cstdint>

namespace octet::device {

inline constexpr int kWaveSize = 64;
#define OCTET_OUT_OF_LINE __forceinline__  // a function that is called needs scratch

inline constexpr int kMinWaveSize = 64;
#if defined(__gfx90a__)
inline constexpr uint64_t kClockHz = 25'000'000;
#else
inline constexpr uint64_t kClockHz = 100'000'000;
#endif

// One program contains the code of all architectures, so the host asks the device.
inline uint64_t HostClockHz() {
  int khz = 0;
  const hipError_t error = hipDeviceGetAttribute(&khz, hipDeviceAttributeWallClockRate, 0);
  if (error != hipSuccess) (void)hipGetLastError();
  constexpr uint64_t kHzPerKhz = 1000;
  return error == hipSuccess && khz > 0 ? static_cast<uint64_t>(khz) * kHzPerKhz : kClockHz;
}

enum class Scope { kBlock, kDevice, kSystem };

// Emits a comment into the assembly. Also keeps the compiler from moving memory accesses across it.
#define OCTET_SITE(text)                        \
  if constexpr (scope == Scope::kSystem) {      \
    asm volatile("; octet." text ::: "memory"); \
  }

namespace internal {

template <Scope scope>
constexpr int MemoryScope() {
  if constexpr (scope == Scope::kBlock) {
    return __HIP_MEMORY_SCOPE_WORKGROUP;
  } else if constexpr (scope == Scope::kDevice) {
    return __HIP_MEMORY_SCOPE_AGENT;
  } else {
    return __HIP_MEMORY_SCOPE_SYSTEM;
  }
}

template <typename T>
using Global = __attribute__((address_space(1))) T;

// Block scope may mean __shared__ memory: the pointer stays generic.
template <Scope scope, typename T>
__device__ __forceinline__ auto Address(T* p) {
  if constexpr (scope == Scope::kBlock) {
    return p;
  } else {
    return (Global<T>*)p;
  }
}

template <Scope scope>
__device__ __forceinline__ void Acquire() {
  if constexpr (scope == Scope::kBlock) {
    __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "workgroup");
  } else if constexpr (scope == Scope::kDevice) {
    __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "agent");
  } else {
    __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "");
  }
}

// A release writes the L2 back (buffer_wbl2) and must wait until that is done. Compilers without
// LLVM's change 178316 (clang 22 among them) omit the wait where they know of no load or store in
// flight, since they do not count the write-back: the flag could overtake the rows. Hence the
// explicit wait after the fence. The wait before it ensures that the wave's stores are in the L2
// when it is written back: LLVM's sequence relies on a write-back not overtaking them, which AMD
// does not document.
template <Scope scope>
__device__ __forceinline__ void Release() {
  if constexpr (scope == Scope::kBlock) {
    __builtin_amdgcn_fence(__ATOMIC_RELEASE, "workgroup");
  } else {
    asm volatile("s_waitcnt vmcnt(0)" ::: "memory");
    if constexpr (scope == Scope::kDevice) {
      __builtin_amdgcn_fence(__ATOMIC_RELEASE, "agent");
    } else {
      __builtin_amdgcn_fence(__ATOMIC_RELEASE, "");
    }
    asm volatile("s_waitcnt vmcnt(0)" ::: "memory");
  }
}

// Returns the value that lane `lane` of this wave holds.
template <typename T>
__device__ __forceinline__ T Permute(T v, int lane) {
  static_assert(sizeof(T) == 4 || sizeof(T) == 8);
  int words[sizeof(T) / 4];
  __builtin_memcpy(words, &v, sizeof(T));
  for (int& word : words) word = __builtin_amdgcn_ds_bpermute(lane * 4, word);
  __builtin_memcpy(&v, words, sizeof(T));
  return v;
}

using Words4 = uint32_t __attribute__((ext_vector_type(4)));

}  // namespace internal

// ---- position

__device__ __forceinline__ int Lane() { return static_cast<int>(threadIdx.x % kWaveSize); }
__device__ __forceinline__ int Wave() { return static_cast<int>(threadIdx.x / kWaveSize); }

// ---- scoped atomics

template <Scope scope, typename T>
__device__ __forceinline__ T LoadRelaxed(const T* p) {
  OCTET_SITE("poll.begin");
  const T v = __hip_atomic_load(internal::Address<scope>(const_cast<T*>(p)), __ATOMIC_RELAXED,
                                internal::MemoryScope<scope>());
  OCTET_SITE("poll.end");
  return v;
}
template <Scope scope, typename T>
__device__ __forceinline__ T LoadAcquire(const T* p) {
  OCTET_SITE("consume.begin");
  const T v = __hip_atomic_load(internal::Address<scope>(const_cast<T*>(p)), __ATOMIC_ACQUIRE,
                                internal::MemoryScope<scope>());
  OCTET_SITE("consume.end");
  return v;
}
template <Scope scope, typename T>
__device__ __forceinline__ void StoreRelaxed(T* p, T v) {
  OCTET_SITE("store.begin");
  __hip_atomic_store(internal::Address<scope>(p), v, __ATOMIC_RELAXED,
                     internal::MemoryScope<scope>());
  OCTET_SITE("store.end");
}
template <Scope scope, typename T>
__device__ __forceinline__ void StoreRelease(T* p, T v) {
  OCTET_SITE("publish.begin");
  internal::Release<scope>();
  __hip_atomic_store(internal::Address<scope>(p), v, __ATOMIC_RELAXED,
                     internal::MemoryScope<scope>());
  OCTET_SITE("publish.end");
}
template <Scope scope, typename T>
__device__ __forceinline__ T FetchAddRelaxed(T* p, T v) {
  OCTET_SITE("atomic.begin");
  const T old = __hip_atomic_fetch_add(internal::Address<scope>(p), v, __ATOMIC_RELAXED,
                                       internal::MemoryScope<scope>());
  OCTET_SITE("atomic.end");
  return old;
}
template <Scope scope, typename T>
__device__ __forceinline__ T FetchAddAcqRel(T* p, T v) {
  OCTET_SITE("atomic_acq_rel.begin");
  internal::Release<scope>();
  const T old = __hip_atomic_fetch_add(internal::Address<scope>(p), v, __ATOMIC_RELAXED,
                                       internal::MemoryScope<scope>());
  internal::Acquire<scope>();
  OCTET_SITE("atomic_acq_rel.end");
  return old;
}
// Adds without waiting for the old value.
template <Scope scope, typename T>
__device__ __forceinline__ void AddRelease(T* p, T v) {
  OCTET_SITE("atomic_release.begin");
  internal::Release<scope>();
  static_cast<void>(__hip_atomic_fetch_add(internal::Address<scope>(p), v, __ATOMIC_RELAXED,
                                           internal::MemoryScope<scope>()));
  OCTET_SITE("atomic_release.end");
}
template <Scope scope, typename T>
__device__ __forceinline__ T ExchangeRelaxed(T* p, T v) {
  OCTET_SITE("atomic.begin");
  const T old = __hip_atomic_exchange(internal::Address<scope>(p), v, __ATOMIC_RELAXED,
                                      internal::MemoryScope<scope>());
  OCTET_SITE("atomic.end");
  return old;
}
template <Scope scope>
__device__ __forceinline__ void FenceAcquire() {
  OCTET_SITE("acquire.begin");
  internal::Acquire<scope>();
  OCTET_SITE("acquire.end");
}
template <Scope scope>
__device__ __forceinline__ void FenceRelease() {
  OCTET_SITE("release.begin");
  internal::Release<scope>();
  OCTET_SITE("release.end");
}

template <Scope scope, typename T>
__device__ __forceinline__ void AcquirePolled(const T*) {
  FenceAcquire<scope>();
}

#undef OCTET_SITE

// ---- waves

__device__ __forceinline__ void SyncWave() {
  __builtin_amdgcn_fence(__ATOMIC_RELEASE, "wavefront");
  __builtin_amdgcn_wave_barrier();
  __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "wavefront");
}
// A barrier of the block does not wait for the stores of its waves, and a release waits only for
// the stores of its own wave.
__device__ __forceinline__ void SyncBlockStores() {
  asm volatile("s_waitcnt vmcnt(0)" ::: "memory");
  __syncthreads();
}
template <typename T>
__device__ __forceinline__ T Shuffle(T v, int lane) {
  return internal::Permute(v, lane);
}
template <typename T>
__device__ __forceinline__ T ShuffleXor(T v, int mask) {
  return internal::Permute(v, Lane() ^ mask);
}
// Returns the value of the lane `delta` below; a lane without one gets its own value.
template <typename T>
__device__ __forceinline__ T ShuffleUp(T v, int delta) {
  const int lane = Lane();
  return internal::Permute(v, lane < delta ? lane : lane - delta);
}
// Bit i is set if lane i's predicate holds.
__device__ __forceinline__ uint64_t Ballot(bool predicate) {
  return __builtin_amdgcn_ballot_w64(predicate);
}

// Returns the largest value of all lanes.
__device__ __forceinline__ uint64_t LargestOfWave(uint64_t v) {
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

__device__ __forceinline__ Vec16 LoadStream(const Vec16* p) {
  return __builtin_bit_cast(
      Vec16, __builtin_nontemporal_load((const internal::Global<internal::Words4>*)p));
}
__device__ __forceinline__ void StoreStream(Vec16* p, const Vec16& v) {
  __builtin_nontemporal_store(__builtin_bit_cast(internal::Words4, v),
                              (internal::Global<internal::Words4>*)p);
}
// On gfx9 a volatile access has the cache bits of system scope and is not split.
__device__ __forceinline__ Vec16 LoadOnce16(const Vec16* p) {
  const internal::Words4 words = *(const volatile internal::Global<internal::Words4>*)p;
  return __builtin_bit_cast(Vec16, words);
}
// Unlike the load, not a volatile access: the compiler would wait for each store to arrive before
// it continues. The s_nop keeps the registers until the store has read them.
__device__ __forceinline__ void StoreOnce16(Vec16* p, const Vec16& v) {
  const auto words = __builtin_bit_cast(internal::Words4, v);
#if defined(__gfx90a__)
  asm volatile("global_store_dwordx4 %0, %1, off\ns_nop 1" ::"v"(p), "v"(words) : "memory");
#else
  asm volatile("global_store_dwordx4 %0, %1, off sc0 sc1\ns_nop 1" ::"v"(p), "v"(words) : "memory");
#endif
}

// gfx942 has no instruction for it.
__device__ __forceinline__ void Prefetch(const void* /*p*/) {}

// ---- waiting and time

// While it lives, the thread polls for something from `rank`. Only emulated GPUs keep it, for
// reports and debuggers.
struct AwaitedRank {
  __device__ __forceinline__ explicit AwaitedRank(int /*rank*/) {}
};

// The argument of s_sleep counts 64 cycles.
__device__ __forceinline__ void Pause(uint32_t polls = 0) {
  if (polls < 64) {
    __builtin_amdgcn_s_sleep(1);
  } else {
    __builtin_amdgcn_s_sleep(8);
  }
}
__device__ __forceinline__ uint64_t Clock() { return __builtin_readsteadycounter(); }

// ---- 16-bit floating point, in pairs

namespace internal {

template <typename Half>
__device__ __forceinline__ uint32_t Pack(float first, float second) {
  const auto low = __builtin_bit_cast(uint16_t, static_cast<Half>(first));
  const auto high = __builtin_bit_cast(uint16_t, static_cast<Half>(second));
  return low | static_cast<uint32_t>(high) << 16;
}

}  // namespace internal

__device__ __forceinline__ float2 UnpackBf16(uint32_t pair) {
  return make_float2(__uint_as_float(pair << 16), __uint_as_float(pair & 0xffff0000U));
}
__device__ __forceinline__ uint32_t PackBf16(float first, float second) {
  return internal::Pack<__bf16>(first, second);
}
__device__ __forceinline__ float2 UnpackFp16(uint32_t pair) {
  return make_float2(
      static_cast<float>(__builtin_bit_cast(_Float16, static_cast<uint16_t>(pair))),
      static_cast<float>(__builtin_bit_cast(_Float16, static_cast<uint16_t>(pair >> 16))));
}
__device__ __forceinline__ uint32_t PackFp16(float first, float second) {
  return internal::Pack<_Float16>(first, second);
}

}  // namespace octet::device

#endif  // OCTET_RUNTIME_PLATFORM_AMD_DEVICE_OPS_H_
