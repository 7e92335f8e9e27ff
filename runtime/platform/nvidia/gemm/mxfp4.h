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

// Converts byte `own` of `word`, which has two numbers: the sign, two bits of exponent and one of
// mantissa. Moved to where bfloat16 has them, they are the number times 2^-126, subnormal ones
// too. The integer multiplications move both at once, on units that the rest leaves free.
__device__ __forceinline__ uint32_t PairOfMxfp4(uint32_t word, uint32_t own, uint32_t scale) {
  const uint32_t byte = SelectBytes(word, 0, 0x4440U | own);
  const uint32_t small = byte * (1U << 6 | 1U << 18) & 0x01c001c0U;
  const uint32_t signs = byte * (1U << 12 | 1U << 24) & 0x80008000U;
  constexpr uint32_t k2Pow126 = 0x7e807e80U;
  return MultiplyBf16Pair(MultiplyBf16Pair(small, k2Pow126), scale ^ signs);
}

// Converts a block of 16 bytes. Exact; numbers beyond bfloat16, which has the exponents of float32,
// become infinities. `scale` is Bf16PairOfScale().
__device__ __forceinline__ Mxfp4Pairs PairsOfMxfp4(const uint4& block, uint32_t scale, int lane) {
  const uint32_t own = static_cast<uint32_t>(lane % 4);
  return {{{PairOfMxfp4(block.x, own, scale), PairOfMxfp4(block.y, own, scale)},
           {PairOfMxfp4(block.z, own, scale), PairOfMxfp4(block.w, own, scale)}}};
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
