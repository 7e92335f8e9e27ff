// Conversion to 8-bit floats on NVIDIA GPUs (sm_90 and later). runtime/platform/README.md states
// the contract.
#ifndef OCTET_RUNTIME_PLATFORM_NVIDIA_FP8_OPS_H_
#define OCTET_RUNTIME_PLATFORM_NVIDIA_FP8_OPS_H_

#include <hip/hip_runtime.h>

#include <cstdint>
#include <type_traits>

#include "octet/fp8_format.h"
#include "octet/native_fp8.h"

namespace octet::device {

namespace internal {

__device__ __forceinline__ uint32_t PackE4m3Pair(float first, float second) {
  uint16_t pair = 0;
  asm("cvt.rn.satfinite.e4m3x2.f32 %0, %2, %1;" : "=h"(pair) : "f"(first), "f"(second));
  return pair;
}

}  // namespace internal

template <typename Fp8>
__device__ __forceinline__ uint32_t PackFp8(float a, float b, float c, float d) {
  if constexpr (std::is_same_v<Fp8, E4m3Fn>) {
    return internal::PackE4m3Pair(a, b) | internal::PackE4m3Pair(c, d) << 16;
  } else {
    return PackFp8InSoftware<Fp8>(a, b, c, d);
  }
}

}  // namespace octet::device

#endif  // OCTET_RUNTIME_PLATFORM_NVIDIA_FP8_OPS_H_
