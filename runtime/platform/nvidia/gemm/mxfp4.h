// MXFP4 weights on their way from shared memory to the tensor cores: they become bfloat16 in the
// registers from which wgmma multiplies.
#ifndef OCTET_RUNTIME_PLATFORM_NVIDIA_GEMM_MXFP4_H_
#define OCTET_RUNTIME_PLATFORM_NVIDIA_GEMM_MXFP4_H_

#include <cstdint>

#include "octet/fp4_format.h"

namespace octet::device::internal {

// Four bytes of eight, of a then b, that the halves of the bytes of `selector` name.
__device__ __forceinline__ uint32_t SelectBytes(uint32_t a, uint32_t b, uint32_t selector) {
  uint32_t bytes;
  asm("prmt.b32 %0, %1, %2, %3;" : "=r"(bytes) : "r"(a), "r"(b), "r"(selector));
  return bytes;
}

__device__ __forceinline__ uint32_t MultiplyBf16Pair(uint32_t a, uint32_t b) {
  uint32_t product;
  asm("mul.rn.bf16x2 %0, %1, %2;" : "=r"(product) : "r"(a), "r"(b));
  return product;
}

// A scale as a pair of bfloat16, which has all of them.
__device__ __forceinline__ uint32_t Bf16PairOfScale(uint32_t exponent) {
  // 2^-127 is a subnormal number; 0xff becomes NaN.
  const uint32_t special = exponent == 0 ? 0x40U : 0x7fffU;
  const uint32_t bits = exponent - 1U < 254U ? exponent << 7 : special;
  return bits | bits << 16;
}

// A thread's part of a block of 32 weights of a row: of columns 16 * j + 8 * i + 2 * (Lane() % 4)
// and the next, the pair [j][i].
struct Mxfp4Pairs {
  uint32_t of[2][2];
};

// Converts a block of 16 bytes. Exact; numbers beyond bfloat16, which has the exponents of float32,
// become infinities.
__device__ __forceinline__ Mxfp4Pairs PairsOfMxfp4(const uint4& block, uint32_t exponent,
                                                   int lane) {
  // The byte of each word that has the thread's two columns. Eight numbers, in the order in which
  // pairs are numbered.
  const uint32_t own = static_cast<uint32_t>(lane % 4);
  const uint32_t selector = own | (own + 4) << 4;
  const uint32_t numbers = SelectBytes(SelectBytes(block.x, block.y, selector),
                                       SelectBytes(block.z, block.w, selector), 0x5410);
  // The upper and the lower bytes of 0, 0.5, 1, 1.5, 2, 3, 4 and 6, which numbers select.
  constexpr uint32_t kUpper[] = {0x3f3f3f00, 0x40404040};
  constexpr uint32_t kLower[] = {0xc0800000, 0xc0804000};
  const uint32_t magnitudes = numbers & 0x77777777U;
  const uint32_t even_signs = numbers << 4;  // at bit 7 of a byte, as the odd ones are in `numbers`
  const uint32_t scale = Bf16PairOfScale(exponent);
  Mxfp4Pairs pairs;
#pragma unroll
  for (int j = 0; j < 2; ++j) {
    const uint32_t four = magnitudes >> (16 * j);
    const uint32_t signs = SelectBytes(even_signs, numbers, j == 0 ? 0x5140 : 0x7362);
    const uint32_t upper = SelectBytes(kUpper[0], kUpper[1], four) | (signs & 0x80808080U);
    const uint32_t lower = SelectBytes(kLower[0], kLower[1], four);
    pairs.of[j][0] = MultiplyBf16Pair(SelectBytes(lower, upper, 0x5140), scale);
    pairs.of[j][1] = MultiplyBf16Pair(SelectBytes(lower, upper, 0x7362), scale);
  }
  return pairs;
}

// A stage's rows of weights are 64 bytes, whose four blocks of 16 bytes the copy unit swizzles.
inline constexpr int kMxfp4RowBytes = 64;
inline constexpr int kMxfp4Blocks = 4;
inline constexpr int kMxfp4ScaleBytes = 16;  // of a row, copied for a stage

// Loads block `block` of a row of a stage of weights.
__device__ __forceinline__ uint4 LoadMxfp4Block(uint32_t weights, int row, int block) {
  const uint32_t from = weights + static_cast<uint32_t>(row * kMxfp4RowBytes +
                                                        (block ^ (row / 2 % kMxfp4Blocks)) * 16);
  uint4 v;
  asm volatile("ld.shared.v4.u32 {%0,%1,%2,%3}, [%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "r"(from)
               : "memory");
  return v;
}

}  // namespace octet::device::internal

#endif  // OCTET_RUNTIME_PLATFORM_NVIDIA_GEMM_MXFP4_H_
