// Products of 16 rows of weights with a few tokens, by one wave, on AMD GPUs: MFMA of
// 16 × 16 × 16. runtime/platform/README.md states the contract.
#ifndef OCTET_RUNTIME_PLATFORM_AMD_ROW_MMA_H_
#define OCTET_RUNTIME_PLATFORM_AMD_ROW_MMA_H_

#include <hip/hip_runtime.h>

#include <cstdint>
#include <type_traits>

#include "device_ops.h"
#include "fp8_ops.h"
#include "octet/fp4_format.h"
#include "octet/fp8_format.h"
#include "octet/fp8_scale.h"
#include "octet/native_fp8.h"
#include "runtime/platform/gemm_call.h"

namespace octet::device {

// The instruction adds over 16 columns, of which a lane has four. Which these are does not matter
// as long as both operands agree, so a lane keeps eight that follow each other in memory, and gives
// four of them to each of two products.
template <GemmElement element>
class RowMma {
 public:
  static constexpr int kRowParts = 1;
  static constexpr int kMinTokens = 16;
  static constexpr int kWaves = 4;
  static constexpr int kRing = 8 << 10;
  static constexpr int kSmallRing = 4 << 10;
  static __device__ __forceinline__ int Tokens() { return kMinTokens; }

  static __device__ __forceinline__ constexpr int FirstRow(int /*part*/) { return 0; }
  static __device__ __forceinline__ int Row(int /*part*/) { return Lane() % 16; }
  static __device__ __forceinline__ int Token() { return Lane() % 16; }
  static __device__ __forceinline__ int Group() { return Lane() / 16; }
  static __device__ __forceinline__ int SumRow(int i) { return Lane() / 16 * 4 + i; }
  static __device__ __forceinline__ int SumToken(int /*i*/) { return Lane() % 16; }

  static __device__ __forceinline__ void Multiply(const Vec16 (&rows)[kRowParts],
                                                  const Vec16& tokens, float (&sums)[4]) {
    using Sums = float __attribute__((ext_vector_type(4)));
    using Halves = uint64_t __attribute__((ext_vector_type(2)));
    Sums c = {sums[0], sums[1], sums[2], sums[3]};
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const uint64_t a = __builtin_bit_cast(Halves, rows[0])[half];
      const uint64_t b = __builtin_bit_cast(Halves, tokens)[half];
      if constexpr (element == GemmElement::kFp16) {
        using Operand = _Float16 __attribute__((ext_vector_type(4)));
        c = __builtin_amdgcn_mfma_f32_16x16x16f16(__builtin_bit_cast(Operand, a),
                                                  __builtin_bit_cast(Operand, b), c, 0, 0, 0);
      } else {
        using Operand = short __attribute__((ext_vector_type(4)));
        c = __builtin_amdgcn_mfma_f32_16x16x16bf16_1k(__builtin_bit_cast(Operand, a),
                                                      __builtin_bit_cast(Operand, b), c, 0, 0, 0);
      }
    }
#pragma unroll
    for (int i = 0; i < 4; ++i) sums[i] = c[i];
  }
};

namespace internal {

// Four FP8 numbers as bfloat16, in two words.
template <typename Fp8>
__device__ __forceinline__ void Bf16Of(uint32_t bytes, uint32_t (&out)[2]) {
  if constexpr (std::is_same_v<Fp8, ConvertedFp8>) {
    const auto low = __builtin_amdgcn_cvt_pk_f32_fp8(static_cast<int>(bytes), false);
    const auto high = __builtin_amdgcn_cvt_pk_f32_fp8(static_cast<int>(bytes), true);
    out[0] = PackBf16(low[0], low[1]);
    out[1] = PackBf16(high[0], high[1]);
  } else {
    float v[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) v[i] = FloatFromFp8(Fp8{static_cast<uint8_t>(bytes >> 8 * i)});
    out[0] = PackBf16(v[0], v[1]);
    out[1] = PackBf16(v[2], v[3]);
  }
}

}  // namespace internal

// Eight FP8 numbers as bfloat16, exactly.
__device__ __forceinline__ Vec16 Bf16FromNativeFp8(uint32_t low, uint32_t high) {
  uint32_t first[2];
  uint32_t second[2];
  internal::Bf16Of<NativeFp8>(low, first);
  internal::Bf16Of<NativeFp8>(high, second);
  return {{first[0], first[1], second[0], second[1]}};
}

inline constexpr bool kOneMxfp4Conversion = true;
__device__ __forceinline__ bool AreUsualMxfp4Scales(uint32_t /*largest*/) { return true; }
// Eight MXFP4 numbers of a word times their scale, as bfloat16, in their order.
template <bool usual>
__device__ __forceinline__ Vec16 Bf16FromMxfp4(uint32_t word, uint32_t exponent) {
  const float scale = ScaleFromUe8m0(static_cast<uint8_t>(exponent));
  Vec16 out;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const uint32_t pair = word >> (8 * i);
    out.w[i] = PackBf16(FloatFromFp4(pair) * scale, FloatFromFp4(pair >> 4) * scale);
  }
  return out;
}
__device__ __forceinline__ Vec16 InOrderOfMxfp4(const Vec16& v) { return v; }

}  // namespace octet::device

#endif  // OCTET_RUNTIME_PLATFORM_AMD_ROW_MMA_H_
