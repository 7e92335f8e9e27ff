// Converts 16 bytes of a row to eight floats and back; one codec for each element type.
#ifndef OCTET_KERNELS_TYPES_ROW_CODEC_H_
#define OCTET_KERNELS_TYPES_ROW_CODEC_H_

#include "device_ops.h"

namespace octet::device {

inline constexpr int kElementsPerVec = 8;

struct Fp16Codec {
  static __device__ __forceinline__ float2 Unpack(uint32_t pair) { return UnpackFp16(pair); }
  static __device__ __forceinline__ uint32_t Pack(float a, float b) { return PackFp16(a, b); }
};

struct Bf16Codec {
  static __device__ __forceinline__ float2 Unpack(uint32_t pair) { return UnpackBf16(pair); }
  static __device__ __forceinline__ uint32_t Pack(float a, float b) { return PackBf16(a, b); }
};

// Returns `v` with each element multiplied by `scale` and rounded.
template <typename Codec>
__device__ __forceinline__ Vec16 Scale(const Vec16& v, float scale) {
  Vec16 out;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const float2 pair = Codec::Unpack(v.w[i]);
    out.w[i] = Codec::Pack(pair.x * scale, pair.y * scale);
  }
  return out;
}

// sum[j] = sum[j] + weight · v[j], with one rounding for each product and one for each sum.
template <typename Codec>
__device__ __forceinline__ void Accumulate(float (&sum)[kElementsPerVec], const Vec16& v,
                                           float weight) {
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const float2 pair = Codec::Unpack(v.w[i]);
    sum[2 * i] = sum[2 * i] + weight * pair.x;
    sum[2 * i + 1] = sum[2 * i + 1] + weight * pair.y;
  }
}

template <typename Codec>
__device__ __forceinline__ Vec16 Round(const float (&sum)[kElementsPerVec]) {
  Vec16 out;
#pragma unroll
  for (int i = 0; i < 4; ++i) out.w[i] = Codec::Pack(sum[2 * i], sum[2 * i + 1]);
  return out;
}

}  // namespace octet::device

#endif  // OCTET_KERNELS_TYPES_ROW_CODEC_H_
