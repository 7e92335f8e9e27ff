// MXFP4 weights on their way from shared memory to the tensor cores: they become bfloat16 in the
// registers from which wgmma multiplies.
#ifndef OCTET_RUNTIME_PLATFORM_NVIDIA_GEMM_MXFP4_H_
#define OCTET_RUNTIME_PLATFORM_NVIDIA_GEMM_MXFP4_H_

#include <cstdint>

#include "device_ops.h"
#include "gemm/async.h"
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

// 2^126 as a pair: what converted numbers lack before they are scaled.
inline constexpr uint32_t k2Pow126 = 0x7e807e80U;
// Scales of which bfloat16 has 2^126 times as much, so that one multiplication does both: up to 2.
inline constexpr uint32_t kMostUsualScale = 128;
// Returns a pair of 2^126 times such a scale.
__device__ __forceinline__ uint32_t Bf16PairOfUsualScale(uint32_t exponent) {
  return exponent * 0x00800080U + 0x3f003f00U;
}

// Four pairs of the eight numbers of a word.
struct Mxfp4Pairs {
  uint32_t of[4];
};

// Numbers have a sign, two bits of exponent and one of mantissa. Moved to where bfloat16 has them,
// they are the numbers times 2^-126, subnormal ones too. The integer multiplications move several
// bits at once, on units that the rest leaves free. All is exact, but for numbers beyond bfloat16,
// which has the exponents of float32: they become infinities. `scale`: times 2^126.

// Converts a word. Pair i has number i and the one that is four further.
__device__ __forceinline__ Mxfp4Pairs PairsOfMxfp4(uint32_t word, uint32_t scale) {
  constexpr uint32_t kLower = 0x000f000fU;
  constexpr uint32_t kUpper = 0x00f000f0U;
  constexpr uint32_t kMoveLower = 1U << 6 | 1U << 12;
  constexpr uint32_t kMoveUpper = 1U << 2 | 1U << 8;
  constexpr uint32_t kMoved = 0x81c081c0U;
  const uint32_t second = word >> 8;
  return {{MultiplyBf16Pair((word & kLower) * kMoveLower & kMoved, scale),
           MultiplyBf16Pair((word & kUpper) * kMoveUpper & kMoved, scale),
           MultiplyBf16Pair((second & kLower) * kMoveLower & kMoved, scale),
           MultiplyBf16Pair((second & kUpper) * kMoveUpper & kMoved, scale)}};
}

// Converts byte `own` of `word`: a pair of neighbours.
__device__ __forceinline__ uint32_t PairOfMxfp4(uint32_t word, uint32_t own, uint32_t scale) {
  const uint32_t byte = SelectBytes(word, 0, 0x4440U | own);
  const uint32_t small = byte * (1U << 6 | 1U << 18) & 0x01c001c0U;
  const uint32_t signs = byte * (1U << 12 | 1U << 24) & 0x80008000U;
  return MultiplyBf16Pair(small, scale ^ signs);
}

// A stage's rows of weights are 64 bytes, whose four blocks of 16 bytes the copy unit swizzles.
inline constexpr int kMxfp4RowBytes = 64;
inline constexpr int kMxfp4Blocks = 4;
inline constexpr int kMxfp4ScaleBytes = 16;  // of a row, copied for a stage

__device__ __forceinline__ void StoreShared16(uint32_t to, const uint4& v) {
  asm volatile("st.shared.v4.u32 [%0], {%1,%2,%3,%4};" ::"r"(to), "r"(v.x), "r"(v.y), "r"(v.z),
               "r"(v.w)
               : "memory");
}
__device__ __forceinline__ uint32_t LoadSharedByte(uint32_t from) {
  uint32_t value;
  asm volatile("ld.shared.u8 %0, [%1];" : "=r"(value) : "r"(from) : "memory");
  return value;
}

// Loads block `block` of a row of a stage of weights.
__device__ __forceinline__ uint4 LoadMxfp4Block(uint32_t weights, int row, int block) {
  return LoadShared16(weights + static_cast<uint32_t>(row * kMxfp4RowBytes +
                                                      (block ^ (row / 2 % kMxfp4Blocks)) * 16));
}

// Puts the columns of a stage of A in the order in which the weights are converted, so that each
// thread converts blocks of 32 weights of its own.
//
// Two boxes of 64 columns each have 16 chunks of eight columns, which the copy unit swizzles. In
// the order that wgmma sees, chunk 4 * w + i has for each of four threads t pair i of word w of its
// block: columns i and i + 4 of chunk 4 * t + w. A lane has a row and a w.
class Mxfp4RowOrder {
 public:
  static constexpr int kRows = 8;  // that a warp does at once

  __device__ __forceinline__ explicit Mxfp4RowOrder(uint32_t box_bytes) : box_bytes_(box_bytes) {
    const uint32_t row = static_cast<uint32_t>(Lane()) % kRows;
    const uint32_t word = static_cast<uint32_t>(Lane()) / kRows;
#pragma unroll
    for (uint32_t i = 0; i < 2; ++i) from_[i] = row * kRowBytes + ((i * 4 + word) ^ row) * 16;
#pragma unroll
    for (uint32_t i = 0; i < 4; ++i) {
      to_[i] = word / 2 * box_bytes + row * kRowBytes + ((word % 2 * 4 + i) ^ row) * 16;
    }
  }

  // By a whole warp: the eight rows at `rows` of the first box.
  __device__ __forceinline__ void Reorder(uint32_t rows) const {
    uint4 v[4];
#pragma unroll
    for (uint32_t t = 0; t < 4; ++t) v[t] = LoadShared16(rows + t / 2 * box_bytes_ + from_[t % 2]);
    __syncwarp();  // all have read what others overwrite
    constexpr uint32_t kFirst = 0x5410;
    constexpr uint32_t kSecond = 0x7632;
    StoreShared16(rows + to_[0],
                  {SelectBytes(v[0].x, v[0].z, kFirst), SelectBytes(v[1].x, v[1].z, kFirst),
                   SelectBytes(v[2].x, v[2].z, kFirst), SelectBytes(v[3].x, v[3].z, kFirst)});
    StoreShared16(rows + to_[1],
                  {SelectBytes(v[0].x, v[0].z, kSecond), SelectBytes(v[1].x, v[1].z, kSecond),
                   SelectBytes(v[2].x, v[2].z, kSecond), SelectBytes(v[3].x, v[3].z, kSecond)});
    StoreShared16(rows + to_[2],
                  {SelectBytes(v[0].y, v[0].w, kFirst), SelectBytes(v[1].y, v[1].w, kFirst),
                   SelectBytes(v[2].y, v[2].w, kFirst), SelectBytes(v[3].y, v[3].w, kFirst)});
    StoreShared16(rows + to_[3],
                  {SelectBytes(v[0].y, v[0].w, kSecond), SelectBytes(v[1].y, v[1].w, kSecond),
                   SelectBytes(v[2].y, v[2].w, kSecond), SelectBytes(v[3].y, v[3].w, kSecond)});
  }

 private:
  static constexpr uint32_t kRowBytes = 128;

  uint32_t box_bytes_;
  uint32_t from_[2];
  uint32_t to_[4];
};

}  // namespace octet::device::internal

#endif  // OCTET_RUNTIME_PLATFORM_NVIDIA_GEMM_MXFP4_H_
