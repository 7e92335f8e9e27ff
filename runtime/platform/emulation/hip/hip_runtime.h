// HIP for emulated GPUs: the host functions, and the language of kernels. Kernels (.hip files) are
// compiled as C++ with -femulated-tls, which makes `__shared__` one object per block; host code
// needs no flags.
#ifndef OCTET_RUNTIME_PLATFORM_EMULATION_HIP_HIP_RUNTIME_H_
#define OCTET_RUNTIME_PLATFORM_EMULATION_HIP_HIP_RUNTIME_H_

#include <hip/hip_runtime_api.h>

#include <cstring>
#include <memory>
#include <tuple>
#include <type_traits>
#include <utility>

#include "hip/kernel_interface.h"

// ---- declarations

#define __global__
#define __device__
#define __host__
#define __constant__
#define __forceinline__ inline __attribute__((always_inline))
#define __noinline__ __attribute__((noinline))
#define __launch_bounds__(...)
#define __grid_constant__
#define __shared__ static thread_local
#define HIP_DYNAMIC_SHARED(type, var) \
  type* var = static_cast<type*>(::octet::emulation::DynamicShared());

#define threadIdx (::octet::emulation::CurrentLane()->thread)
#define blockIdx (::octet::emulation::CurrentLane()->block_view->index)
#define blockDim (::octet::emulation::CurrentLane()->block_view->block_dim)
#define gridDim (::octet::emulation::CurrentLane()->block_view->grid_dim)
inline constexpr const int& warpSize = ::octet::emulation::wave_size;

struct float2 {
  float x, y;
};
struct alignas(16) float4 {
  float x, y, z, w;
};
struct alignas(8) int2 {
  int x, y;
};
struct alignas(16) int4 {
  int x, y, z, w;
};
struct alignas(8) uint2 {
  unsigned x, y;
};
struct alignas(16) uint4 {
  unsigned x, y, z, w;
};
inline float2 make_float2(float x, float y) { return {x, y}; }
inline float4 make_float4(float x, float y, float z, float w) { return {x, y, z, w}; }
inline int2 make_int2(int x, int y) { return {x, y}; }
inline int4 make_int4(int x, int y, int z, int w) { return {x, y, z, w}; }
inline uint2 make_uint2(unsigned x, unsigned y) { return {x, y}; }
inline uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w) { return {x, y, z, w}; }

// ---- device functions

inline void __syncthreads(
    octet::emulation::Location where = octet::emulation::Location::current()) {
  octet::emulation::SyncBlock(where);
}
inline void __threadfence_block() {
  octet::emulation::Fence(octet::emulation::MemoryOrder::kAcqRel,
                          octet::emulation::MemoryScope::kBlock);
}
inline void __threadfence() {
  octet::emulation::Fence(octet::emulation::MemoryOrder::kAcqRel,
                          octet::emulation::MemoryScope::kDevice);
}
inline void __threadfence_system() {
  octet::emulation::Fence(octet::emulation::MemoryOrder::kAcqRel,
                          octet::emulation::MemoryScope::kSystem);
}

template <typename T>
  requires(std::is_integral_v<T> && (sizeof(T) == 4 || sizeof(T) == 8))
T atomicAdd(T* address, std::type_identity_t<T> value,
            octet::emulation::Location where = octet::emulation::Location::current()) {
  return static_cast<T>(
      octet::emulation::AtomicUpdate({address, sizeof(T), octet::emulation::MemoryOrder::kRelaxed,
                                      octet::emulation::MemoryScope::kDevice, where},
                                     octet::emulation::Update::kAdd, static_cast<uint64_t>(value)));
}
template <typename T>
  requires(std::is_integral_v<T> && (sizeof(T) == 4 || sizeof(T) == 8))
T atomicMax(T* address, std::type_identity_t<T> value,
            octet::emulation::Location where = octet::emulation::Location::current()) {
  return static_cast<T>(octet::emulation::AtomicUpdate(
      {address, sizeof(T), octet::emulation::MemoryOrder::kRelaxed,
       octet::emulation::MemoryScope::kDevice, where},
      std::is_signed_v<T> ? octet::emulation::Update::kSignedMax : octet::emulation::Update::kMax,
      static_cast<uint64_t>(value)));
}
template <typename T>
  requires(std::is_integral_v<T> && (sizeof(T) == 4 || sizeof(T) == 8))
T atomicOr(T* address, std::type_identity_t<T> value,
           octet::emulation::Location where = octet::emulation::Location::current()) {
  return static_cast<T>(
      octet::emulation::AtomicUpdate({address, sizeof(T), octet::emulation::MemoryOrder::kRelaxed,
                                      octet::emulation::MemoryScope::kDevice, where},
                                     octet::emulation::Update::kOr, static_cast<uint64_t>(value)));
}
template <typename T>
  requires(std::is_integral_v<T> && (sizeof(T) == 4 || sizeof(T) == 8))
T atomicExch(T* address, std::type_identity_t<T> value,
             octet::emulation::Location where = octet::emulation::Location::current()) {
  return static_cast<T>(octet::emulation::AtomicUpdate(
      {address, sizeof(T), octet::emulation::MemoryOrder::kRelaxed,
       octet::emulation::MemoryScope::kDevice, where},
      octet::emulation::Update::kExchange, static_cast<uint64_t>(value)));
}
template <typename T>
  requires(std::is_integral_v<T> && (sizeof(T) == 4 || sizeof(T) == 8))
T atomicCAS(T* address, std::type_identity_t<T> expected, std::type_identity_t<T> desired,
            octet::emulation::Location where = octet::emulation::Location::current()) {
  return static_cast<T>(octet::emulation::AtomicCompareExchange(
      {address, sizeof(T), octet::emulation::MemoryOrder::kRelaxed,
       octet::emulation::MemoryScope::kDevice, where},
      static_cast<uint64_t>(expected), static_cast<uint64_t>(desired)));
}

inline int __popc(unsigned v) { return __builtin_popcount(v); }
inline int __popcll(unsigned long long v) { return __builtin_popcountll(v); }
inline int __ffs(int v) { return __builtin_ffs(v); }
inline int __ffsll(long long v) { return __builtin_ffsll(v); }

// ---- launching

namespace octet::emulation {

// A kernel and its arguments.
class KernelCall {
 public:
  virtual ~KernelCall() = default;
  virtual void Run() const = 0;  // on a lane
};

template <typename... Parameters>
class BoundKernel final : public KernelCall {
 public:
  BoundKernel(void (*kernel)(Parameters...), void** arguments)
      : BoundKernel(kernel, arguments, std::index_sequence_for<Parameters...>{}) {}
  void Run() const override { std::apply(kernel_, arguments_); }

 private:
  template <size_t... kIndex>
  BoundKernel(void (*kernel)(Parameters...), [[maybe_unused]] void** arguments,
              std::index_sequence<kIndex...>)
      : kernel_(kernel),
        arguments_(*static_cast<const std::remove_cvref_t<Parameters>*>(arguments[kIndex])...) {}

  void (*kernel_)(Parameters...);
  std::tuple<std::remove_cvref_t<Parameters>...> arguments_;
};

// The configuration of a launch.
struct LaunchConfig {
  dim3 grid;
  dim3 block;
  size_t shared_bytes;
  hipStream_t stream;
  bool cooperative;
};

hipError_t CheckLaunch(const void* kernel, const LaunchConfig& config);
hipError_t EnqueueKernel(const void* kernel, std::unique_ptr<KernelCall> call,
                         const LaunchConfig& config);

template <typename... Parameters>
hipError_t LaunchKernel(void (*kernel)(Parameters...), void** arguments,
                        const LaunchConfig& config) {
  const void* address = reinterpret_cast<const void*>(kernel);
  const hipError_t error = CheckLaunch(address, config);
  if (error != hipSuccess) return error;
  return EnqueueKernel(address, std::make_unique<BoundKernel<Parameters...>>(kernel, arguments),
                       config);
}

}  // namespace octet::emulation

template <typename... Parameters>
// NOLINTNEXTLINE(readability-function-size): HIP's parameters
hipError_t hipLaunchKernel(void (*kernel)(Parameters...), dim3 grid, dim3 block, void** arguments,
                           size_t shared_bytes, hipStream_t stream) {
  return octet::emulation::LaunchKernel(kernel, arguments,
                                        {grid, block, shared_bytes, stream, false});
}
// Returns hipErrorCooperativeLaunchTooLarge unless all blocks of the grid can be resident.
template <typename... Parameters>
// NOLINTNEXTLINE(readability-function-size): HIP's parameters
hipError_t hipLaunchCooperativeKernel(void (*kernel)(Parameters...), dim3 grid, dim3 block,
                                      void** arguments, size_t shared_bytes, hipStream_t stream) {
  return octet::emulation::LaunchKernel(kernel, arguments,
                                        {grid, block, shared_bytes, stream, true});
}

#endif  // OCTET_RUNTIME_PLATFORM_EMULATION_HIP_HIP_RUNTIME_H_
