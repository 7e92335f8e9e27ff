// What lies between the products of a decode layer: silu(gate · x) ⊙ (up · x), from the waves'
// sums.
#ifndef OCTET_KERNELS_DECODE_GATED_H_
#define OCTET_KERNELS_DECODE_GATED_H_

#include <cstdint>

#include "device_ops.h"
#include "kernels/decode/layout.h"
#include "kernels/decode/weights.h"
#include "kernels/router/router_math.h"
#include "octet/swiglu.h"

namespace octet::decode {

__device__ __forceinline__ void AddPair(const float2& v, float2& sum) {
  sum.x = sum.x + v.x;
  sum.y = sum.y + v.y;
}

template <typename Weights>
__device__ __forceinline__ float Gated(const SwiGlu& swiglu, float gate, float up) {
  if constexpr (!Weights::kParameters) return gate * Sigmoid(gate) * up;
  const float cut = swiglu.Gate(gate);
  return cut * Sigmoid(swiglu.alpha * cut) * swiglu.Up(up);
}

// Stores two columns of a row between the products. first: the first of `count` waves' sums of
// gate, `stride` floats from one to the next; at most `most` of them, which are read at once.
template <typename Weights, int most, int stride>
__device__ __forceinline__ void StoreGated(const SwiGlu& swiglu, const float* first, int count,
                                           char* to) {
  float2 gate = {0, 0};
  float2 up = {0, 0};
#pragma unroll
  for (int wave = 0; wave < most; ++wave) {
    if (wave >= count) continue;
    const float* const sums = first + wave * stride;
    AddPair(*reinterpret_cast<const float2*>(sums), gate);
    AddPair(*reinterpret_cast<const float2*>(sums + kGatedRows), up);
  }
  *reinterpret_cast<uint32_t*>(to) = CodecOf<Weights::kElement>::Type::Pack(
      Gated<Weights>(swiglu, gate.x, up.x), Gated<Weights>(swiglu, gate.y, up.y));
}

}  // namespace octet::decode

#endif  // OCTET_KERNELS_DECODE_GATED_H_
