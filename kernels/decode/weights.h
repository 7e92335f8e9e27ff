// The formats of weights in a decode layer: how many columns a piece has, and how a lane's 16 bytes
// of a row become operands of RowMma.
#ifndef OCTET_KERNELS_DECODE_WEIGHTS_H_
#define OCTET_KERNELS_DECODE_WEIGHTS_H_

#include <cstdint>

#include "device_ops.h"
#include "kernels/decode/layout.h"
#include "kernels/types/row_codec.h"
#include "row_mma.h"
#include "runtime/platform/gemm_call.h"

namespace octet::decode {

// Weights of the dtype.
template <device::GemmElement element>
struct PlainWeights {
  static constexpr device::GemmElement kElement = element;
  static constexpr bool kScaled = false;
  static constexpr int kBytes = 2;
  static constexpr int kOperands = 1;  // of eight columns each, in 16 bytes of a row

  static __device__ __forceinline__ device::Vec16 Operand(const device::Vec16& bytes,
                                                          int /*index*/) {
    return bytes;
  }
};

// FP8 weights, a scale for each 128 × 128 of them, with tokens in bfloat16: a piece has one scale
// for its first eight rows and one for the others.
struct Fp8Weights {
  static constexpr device::GemmElement kElement = device::GemmElement::kBf16;
  static constexpr bool kScaled = true;
  static constexpr int kBytes = 1;
  static constexpr int kOperands = 2;

  static __device__ __forceinline__ device::Vec16 Operand(const device::Vec16& bytes, int index) {
    return index == 0 ? device::Bf16FromNativeFp8(bytes.w[0], bytes.w[1])
                      : device::Bf16FromNativeFp8(bytes.w[2], bytes.w[3]);
  }
};

template <device::GemmElement element>
struct CodecOf {
  using Type = device::Bf16Codec;
};
template <>
struct CodecOf<device::GemmElement::kFp16> {
  using Type = device::Fp16Codec;
};

}  // namespace octet::decode

#endif  // OCTET_KERNELS_DECODE_WEIGHTS_H_
