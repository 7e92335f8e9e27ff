// Products of 16 rows of weights with a few tokens, by one wave, on NVIDIA GPUs: mma.sync of
// 16 × 8 × 16. runtime/platform/README.md states the contract.
#ifndef OCTET_RUNTIME_PLATFORM_NVIDIA_ROW_MMA_H_
#define OCTET_RUNTIME_PLATFORM_NVIDIA_ROW_MMA_H_

#include <cuda_fp16.h>
#include <hip/hip_runtime.h>

#include <cstdint>

#include "device_ops.h"
#include "gemm/mxfp4.h"
#include "octet/native_fp8.h"
#include "runtime/platform/gemm_call.h"

namespace octet::device {

// The instruction adds over 16 columns, in which a lane has two of the first eight and two of the
// last eight. Which columns these are does not matter as long as both operands agree, so a lane
// keeps eight that follow each other in memory, and gives four of them to each of two products.
template <GemmElement element>
class RowMma {
 public:
  static constexpr int kRowParts = 2;
  static constexpr int kMinTokens = 8;
  static constexpr int kWaves = 16;
  static constexpr int kRing = 12 << 10;      // bytes of a wave's ring of pieces, up to 16 tokens
  static constexpr int kSmallRing = 8 << 10;  // with more
  static __device__ __forceinline__ int Tokens() { return kMinTokens; }

  static __device__ __forceinline__ constexpr int FirstRow(int part) { return part * 8; }
  static __device__ __forceinline__ int Row(int part) { return Lane() / 4 + part * 8; }
  static __device__ __forceinline__ int Token() { return Lane() / 4; }
  static __device__ __forceinline__ int Group() { return Lane() % 4; }
  static __device__ __forceinline__ int SumRow(int i) { return Lane() / 4 + i / 2 * 8; }
  static __device__ __forceinline__ int SumToken(int i) { return Lane() % 4 * 2 + i % 2; }

  static __device__ __forceinline__ void Multiply(const Vec16 (&rows)[kRowParts],
                                                  const Vec16& tokens, float (&sums)[4]) {
    Mma(rows[0].w[0], rows[1].w[0], rows[0].w[1], rows[1].w[1], tokens.w[0], tokens.w[1], sums);
    Mma(rows[0].w[2], rows[1].w[2], rows[0].w[3], rows[1].w[3], tokens.w[2], tokens.w[3], sums);
  }

 private:
  // NOLINTNEXTLINE(readability-function-size): the operands of the instruction
  static __device__ __forceinline__ void Mma(uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3,
                                             uint32_t b0, uint32_t b1, float (&c)[4]) {
    if constexpr (element == GemmElement::kFp16) {
      asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
          "{%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
          : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
          : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
    } else {
      asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
          "{%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
          : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
          : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
    }
  }
};

// Eight FP8 numbers as bfloat16, exactly.
__device__ __forceinline__ Vec16 Bf16FromNativeFp8(uint32_t low, uint32_t high) {
  Vec16 out;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const auto pair = static_cast<uint16_t>((i < 2 ? low : high) >> (i % 2 * 16));
    uint32_t halves = 0;
    asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(halves) : "h"(pair));
    const float2 floats = UnpackFp16(halves);
    out.w[i] = PackBf16(floats.x, floats.y);
  }
  return out;
}

inline constexpr bool kOneMxfp4Conversion = false;
__device__ __forceinline__ bool AreUsualMxfp4Scales(uint32_t largest) {
  return Ballot(largest > internal::kMostUsualScale) == 0;
}
// Eight MXFP4 numbers of a word times their scale, as bfloat16: pairs of number i and the one that
// is four further.
template <bool usual>
__device__ __forceinline__ Vec16 Bf16FromMxfp4(uint32_t word, uint32_t exponent) {
  using internal::MultiplyBf16Pair;
  const internal::Mxfp4Pairs pairs = internal::PairsOfMxfp4(
      word, usual ? internal::Bf16PairOfUsualScale(exponent) : internal::k2Pow126);
  Vec16 out = {{pairs.of[0], pairs.of[1], pairs.of[2], pairs.of[3]}};
  if (!usual) {
    const uint32_t scale = internal::Bf16PairOfScale(exponent);
#pragma unroll
    for (uint32_t& pair : out.w) pair = MultiplyBf16Pair(pair, scale);
  }
  return out;
}
// Eight elements of 16 bits in that order.
__device__ __forceinline__ Vec16 InOrderOfMxfp4(const Vec16& v) {
  using internal::SelectBytes;
  constexpr uint32_t kFirst = 0x5410;
  constexpr uint32_t kSecond = 0x7632;
  return {{SelectBytes(v.w[0], v.w[2], kFirst), SelectBytes(v.w[0], v.w[2], kSecond),
           SelectBytes(v.w[1], v.w[3], kFirst), SelectBytes(v.w[1], v.w[3], kSecond)}};
}

}  // namespace octet::device

#endif  // OCTET_RUNTIME_PLATFORM_NVIDIA_ROW_MMA_H_
