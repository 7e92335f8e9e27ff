// Quantises rows to 8-bit floats while they are in registers, with the same bits as
// ReferenceQuantize() of kernels/types/fp8_rows.h.
#ifndef OCTET_KERNELS_TYPES_FP8_QUANTIZE_H_
#define OCTET_KERNELS_TYPES_FP8_QUANTIZE_H_

#include <cmath>
#include <cstdint>

#include "device_ops.h"
#include "fp8_ops.h"
#include "kernels/types/row_codec.h"
#include "octet/fp8_scale.h"

namespace octet::device {

// A lane's part of a quantised row, and the scale of its group.
template <typename Fp8>
struct QuantizedVec {
  uint32_t w[2];  // eight bytes of Fp8, in the order of the columns
  float scale;
};

namespace internal {

// Returns x / scale, rounded once, given the rounded reciprocal of `scale`. The product x ·
// reciprocal may be off by almost two units in the last place; its remainder, which is exact,
// corrects it. The result equals the division's for all x of up to eleven bits (bf16, fp16) and all
// scales of Fp8Scale(); fp8_quantize_test tries each of them. The remainder is negated so that a
// zero quotient has the sign of the division's.
__device__ __forceinline__ float Quotient(float x, float scale, float reciprocal) {
  const float near = x * reciprocal;
  return fmaf(-fmaf(near, scale, -x), reciprocal, near);
}

}  // namespace internal

// Quantises the eight columns `v` that each lane holds. A group is held by `group_lanes`
// consecutive lanes, starting at a multiple of group_lanes: 8, 16 or 32 lanes for 64, 128 or 256
// columns. Called by all lanes of a wave, with the same `group_lanes` and `format`; lanes beyond
// the end of the row pass zeros.
template <typename Codec, typename Fp8>
__device__ __forceinline__ QuantizedVec<Fp8> Quantize(const Vec16& v, int group_lanes,
                                                      ScaleFormat format) {
  // Without signs, bits are ordered like their values, NaN last. The upper halves of two words
  // decide which word is larger.
  uint32_t largest = 0;
#pragma unroll
  for (int i = 0; i < 4; ++i) {  // NOLINT(modernize-loop-convert): what unrolls needs a counter
    const uint32_t upper = v.w[i] & 0x7fff7fffU;
    const uint32_t lower = upper << 16;
    largest = upper > largest ? upper : largest;
    largest = lower > largest ? lower : largest;
  }
  for (int mask = 1; mask < group_lanes; mask *= 2) {
    const uint32_t other = ShuffleXor(largest, mask);
    largest = other > largest ? other : largest;
  }
  QuantizedVec<Fp8> out;
  out.scale = Fp8Scale<Fp8>(Codec::Unpack(largest).y, format);
  const float reciprocal = 1.0F / out.scale;
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const float2 ab = Codec::Unpack(v.w[2 * i]);
    const float2 cd = Codec::Unpack(v.w[2 * i + 1]);
    out.w[i] = PackFp8<Fp8>(internal::Quotient(ab.x, out.scale, reciprocal),
                            internal::Quotient(ab.y, out.scale, reciprocal),
                            internal::Quotient(cd.x, out.scale, reciprocal),
                            internal::Quotient(cd.y, out.scale, reciprocal));
  }
  return out;
}

// 16 bytes of a quantised row, the `index`-th.
struct PackedVec {
  Vec16 v;
  int index;
};

// Of two quantised vectors of a row, whose numbers are `index_a` and `index_b`, a lane and its
// neighbour hold the halves of 16 bytes each: returns those of `a` to even lanes, those of `b` to
// odd ones. Called by all lanes of a wave; numbers increase by one from lane to lane, and even
// lanes have even ones.
template <typename Fp8>
__device__ __forceinline__ PackedVec PackPair(const QuantizedVec<Fp8>& a,
                                              const QuantizedVec<Fp8>& b, int index_a,
                                              int index_b) {
  const bool odd = (Lane() & 1) != 0;
  const uint32_t low = ShuffleXor(odd ? a.w[0] : b.w[0], 1);
  const uint32_t high = ShuffleXor(odd ? a.w[1] : b.w[1], 1);
  return {.v = odd ? Vec16{{low, high, b.w[0], b.w[1]}} : Vec16{{a.w[0], a.w[1], low, high}},
          .index = (odd ? index_b : index_a) / 2};
}

// Stores the scale of group `group` of `groups` into a row of scales. Called by one lane; the
// stores are plain. The last group's store also clears the padding.
__device__ __forceinline__ void StoreScale(uint32_t* scales, int groups, int group,
                                           ScaleFormat format, float scale) {
  if (format != ScaleFormat::kUe8m0) {
    reinterpret_cast<float*>(scales)[group] = scale;
    return;
  }
  auto* const bytes = reinterpret_cast<uint8_t*>(scales);
  bytes[group] = Ue8m0FromScale(scale);
  if (group != groups - 1) return;
  for (int padding = groups; padding % 4 != 0; ++padding) bytes[padding] = 0;
}

}  // namespace octet::device

#endif  // OCTET_KERNELS_TYPES_FP8_QUANTIZE_H_
