// The GPU operations that kernels use, on NVIDIA GPUs (sm_90 and later). runtime/platform/README.md
// states the contract of every name.
#ifndef OCTET_RUNTIME_PLATFORM_NVIDIA_DEVICE_OPS_H_
#define OCTET_RUNTIME_PLATFORM_NVIDIA_DEVICE_OPS_H_

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <hip/hip_runtime.h>

#include <cstdint>

namespace octet::device {

inline constexpr int kWaveSize = 32;
// Code that few calls take: where it does not lie between that of the others, which is fetched in
// order. Of a function.
#define OCTET_OUT_OF_LINE __noinline__

inline constexpr int kMinWaveSize = 32;
inline constexpr uint64_t kClockHz = 1'000'000'000;
inline uint64_t HostClockHz() { return kClockHz; }

enum class Scope { kBlock, kDevice, kSystem };

namespace internal {

template <Scope scope>
__device__ constexpr auto ThreadScope() {
  if constexpr (scope == Scope::kBlock) {
    return __NV_THREAD_SCOPE_BLOCK;
  } else if constexpr (scope == Scope::kDevice) {
    return __NV_THREAD_SCOPE_DEVICE;
  } else {
    return __NV_THREAD_SCOPE_SYSTEM;
  }
}

inline constexpr unsigned kAllLanes = 0xffffffffU;

}  // namespace internal

// ---- position

__device__ __forceinline__ int Lane() { return static_cast<int>(threadIdx.x % kWaveSize); }
__device__ __forceinline__ int Wave() { return static_cast<int>(threadIdx.x / kWaveSize); }

// ---- scoped atomics

template <Scope scope, typename T>
__device__ __forceinline__ T LoadRelaxed(const T* p) {
  return __nv_atomic_load_n(const_cast<T*>(p), __NV_ATOMIC_RELAXED, internal::ThreadScope<scope>());
}
template <Scope scope, typename T>
__device__ __forceinline__ T LoadAcquire(const T* p) {
  return __nv_atomic_load_n(const_cast<T*>(p), __NV_ATOMIC_ACQUIRE, internal::ThreadScope<scope>());
}
template <Scope scope, typename T>
__device__ __forceinline__ void StoreRelaxed(T* p, T v) {
  __nv_atomic_store_n(p, v, __NV_ATOMIC_RELAXED, internal::ThreadScope<scope>());
}
template <Scope scope, typename T>
__device__ __forceinline__ void StoreRelease(T* p, T v) {
  __nv_atomic_store_n(p, v, __NV_ATOMIC_RELEASE, internal::ThreadScope<scope>());
}
template <Scope scope, typename T>
__device__ __forceinline__ T FetchAddRelaxed(T* p, T v) {
  return __nv_atomic_fetch_add(p, v, __NV_ATOMIC_RELAXED, internal::ThreadScope<scope>());
}
template <Scope scope, typename T>
__device__ __forceinline__ T FetchAddAcqRel(T* p, T v) {
  return __nv_atomic_fetch_add(p, v, __NV_ATOMIC_ACQ_REL, internal::ThreadScope<scope>());
}
// Adds without waiting for the old value.
template <Scope scope, typename T>
__device__ __forceinline__ void AddRelease(T* p, T v) {
  static_cast<void>(
      __nv_atomic_fetch_add(p, v, __NV_ATOMIC_RELEASE, internal::ThreadScope<scope>()));
}
template <Scope scope, typename T>
__device__ __forceinline__ T ExchangeRelaxed(T* p, T v) {
  return __nv_atomic_exchange_n(p, v, __NV_ATOMIC_RELAXED, internal::ThreadScope<scope>());
}
// PTX has one fence for both directions. The compiler's builtin emits the more expensive fence.sc.
template <Scope scope>
__device__ __forceinline__ void FenceAcquire() {
  if constexpr (scope == Scope::kBlock) {
    asm volatile("fence.acq_rel.cta;" ::: "memory");
  } else if constexpr (scope == Scope::kDevice) {
    asm volatile("fence.acq_rel.gpu;" ::: "memory");
  } else {
    asm volatile("fence.acq_rel.sys;" ::: "memory");
  }
}
template <Scope scope>
__device__ __forceinline__ void FenceRelease() {
  FenceAcquire<scope>();
}

// A fence would wait for the caller's own stores to peers. An acquiring load in each poll would
// invalidate the L1 each time, which starves the other waves of the SM.
template <Scope scope, typename T>
__device__ __forceinline__ void AcquirePolled(const T* p) {
  static_cast<void>(LoadAcquire<scope>(p));
}

// ---- waves

__device__ __forceinline__ void SyncWave() { __syncwarp(); }
__device__ __forceinline__ void SyncBlockStores() { __syncthreads(); }
template <typename T>
__device__ __forceinline__ T Shuffle(T v, int lane) {
  return __shfl_sync(internal::kAllLanes, v, lane);
}
template <typename T>
__device__ __forceinline__ T ShuffleXor(T v, int mask) {
  return __shfl_xor_sync(internal::kAllLanes, v, mask);
}
// Returns the value of the lane `delta` below; a lane without one gets its own value.
template <typename T>
__device__ __forceinline__ T ShuffleUp(T v, int delta) {
  return __shfl_up_sync(internal::kAllLanes, v, delta);
}
// Bit i is set if lane i's predicate holds.
__device__ __forceinline__ uint64_t Ballot(bool predicate) {
  return __ballot_sync(internal::kAllLanes, predicate);
}

// Returns the largest value of all lanes.
__device__ __forceinline__ uint32_t LargestOfWave(uint32_t v) {
  return __reduce_max_sync(internal::kAllLanes, v);
}
__device__ __forceinline__ uint64_t LargestOfWave(uint64_t v) {
  constexpr int kHalf = 32;
  const auto high = static_cast<uint32_t>(v >> kHalf);
  const uint32_t largest = __reduce_max_sync(internal::kAllLanes, high);
  const uint32_t low = high == largest ? static_cast<uint32_t>(v) : 0;
  return static_cast<uint64_t>(largest) << kHalf | __reduce_max_sync(internal::kAllLanes, low);
}

// ---- rows of 16 bytes

struct alignas(16) Vec16 {
  uint32_t w[4];
};

__device__ __forceinline__ Vec16 LoadStream(const Vec16* p) {
  Vec16 v;
  asm volatile("ld.global.L1::no_allocate.v4.u32 {%0,%1,%2,%3}, [%4];"
               : "=r"(v.w[0]), "=r"(v.w[1]), "=r"(v.w[2]), "=r"(v.w[3])
               : "l"(p)
               : "memory");
  return v;
}
__device__ __forceinline__ void StoreStream(Vec16* p, const Vec16& v) {
  asm volatile("st.global.L1::no_allocate.v4.u32 [%0], {%1,%2,%3,%4};" ::"l"(p), "r"(v.w[0]),
               "r"(v.w[1]), "r"(v.w[2]), "r"(v.w[3])
               : "memory");
}
__device__ __forceinline__ Vec16 LoadOnce16(const Vec16* p) {
  Vec16 v;
  asm volatile(
      "{.reg .b128 q; .reg .b64 lo, hi;\n"
      "ld.relaxed.sys.global.b128 q, [%4];\n"
      "mov.b128 {lo, hi}, q; mov.b64 {%0,%1}, lo; mov.b64 {%2,%3}, hi;}"
      : "=r"(v.w[0]), "=r"(v.w[1]), "=r"(v.w[2]), "=r"(v.w[3])
      : "l"(p)
      : "memory");
  return v;
}
__device__ __forceinline__ void StoreOnce16(Vec16* p, const Vec16& v) {
  asm volatile(
      "{.reg .b128 q; .reg .b64 lo, hi;\n"
      "mov.b64 lo, {%1,%2}; mov.b64 hi, {%3,%4}; mov.b128 q, {lo, hi};\n"
      "st.relaxed.sys.global.b128 [%0], q;}" ::"l"(p),
      "r"(v.w[0]), "r"(v.w[1]), "r"(v.w[2]), "r"(v.w[3])
      : "memory");
}

__device__ __forceinline__ void Prefetch(const void* p) {
  asm volatile("prefetch.global.L2 [%0];" ::"l"(p));
}

// ---- waiting and time

// While it lives, the thread polls for something from `rank`. Only emulated GPUs keep it, for
// reports and debuggers.
struct AwaitedRank {
  __device__ __forceinline__ explicit AwaitedRank(int /*rank*/) {}
};

__device__ __forceinline__ void Pause(uint32_t polls = 0) {
  __nanosleep(polls < 16 ? 20 : (polls < 64 ? 100 : 400));
}
__device__ __forceinline__ uint64_t Clock() {
  uint64_t t;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(t)::"memory");
  return t;
}

// ---- 16-bit floating point, in pairs

__device__ __forceinline__ float2 UnpackBf16(uint32_t pair) {
  return make_float2(__uint_as_float(pair << 16), __uint_as_float(pair & 0xffff0000U));
}
__device__ __forceinline__ uint32_t PackBf16(float first, float second) {
  const __nv_bfloat162 v = __floats2bfloat162_rn(first, second);
  return *reinterpret_cast<const uint32_t*>(&v);
}
__device__ __forceinline__ float2 UnpackFp16(uint32_t pair) {
  return __half22float2(*reinterpret_cast<const __half2*>(&pair));
}
__device__ __forceinline__ uint32_t PackFp16(float first, float second) {
  const __half2 v = __floats2half2_rn(first, second);
  return *reinterpret_cast<const uint32_t*>(&v);
}

}  // namespace octet::device

#endif  // OCTET_RUNTIME_PLATFORM_NVIDIA_DEVICE_OPS_H_
