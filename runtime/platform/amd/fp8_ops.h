// Conversion to 8-bit floats on AMD GPUs. runtime/platform/README.md states the contract.
//
// The same instruction produces E4m3Fnuz on gfx942 and E4m3Fn on gfx950, and HIP's own conversions
// to the other format compile to a trap. Hence the choice by format, with software for the other
// format.
#ifndef OCTET_RUNTIME_PLATFORM_AMD_FP8_OPS_H_
#define OCTET_RUNTIME_PLATFORM_AMD_FP8_OPS_H_

#include <hip/hip_runtime.h>

#include <cstdint>
#include <type_traits>

#include "octet/fp8_format.h"
#include "octet/native_fp8.h"

namespace octet::device {

namespace internal {

#if defined(__gfx942__)
using ConvertedFp8 = E4m3Fnuz;
#elif defined(__gfx950__)
using ConvertedFp8 = E4m3Fn;
#else  // the host, and GPUs without such instructions
using ConvertedFp8 = void;
#endif

#if defined(__gfx942__) || defined(__gfx950__)
// Without the clamp, the instructions convert values that are too large to NaN.
__device__ __forceinline__ float Saturated(float value) {
  constexpr float kLargest = ConvertedFp8::kLargest;
  return value != value ? __builtin_nanf("") : __builtin_amdgcn_fmed3f(value, -kLargest, kLargest);
}
__device__ __forceinline__ uint32_t PackConverted(float a, float b, float c, float d) {
  const int low = __builtin_amdgcn_cvt_pk_fp8_f32(Saturated(a), Saturated(b), 0, false);
  return static_cast<uint32_t>(
      __builtin_amdgcn_cvt_pk_fp8_f32(Saturated(c), Saturated(d), low, true));
}
#else
__device__ uint32_t PackConverted(float a, float b, float c, float d);
#endif

}  // namespace internal

template <typename Fp8>
__device__ __forceinline__ uint32_t PackFp8(float a, float b, float c, float d) {
  if constexpr (std::is_same_v<Fp8, internal::ConvertedFp8>) {
    return internal::PackConverted(a, b, c, d);
  } else {
    return PackFp8InSoftware<Fp8>(a, b, c, d);
  }
}

}  // namespace octet::device

#endif  // OCTET_RUNTIME_PLATFORM_AMD_FP8_OPS_H_
