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

// What a kernel of routed experts with some weights has, unless it says otherwise.
struct AnyWeights {
  static constexpr bool kSharedExperts = true;
  static constexpr bool kFewerRows = false;  // of a strip of down
  static constexpr bool kOneToken = false;   // at most, of all ranks
};

// Weights of the dtype.
template <device::GemmElement element>
struct PlainWeights : AnyWeights {
  static constexpr device::GemmElement kElement = element;
  static constexpr bool kScaled = false;
  // Whether experts may have biases, and SwiGLU parameters: no model of FP8 has.
  static constexpr bool kParameters = true;
  static constexpr int kBits = 16;
  static constexpr int kOperands = 1;           // of eight columns each, in 16 bytes of a row
  static constexpr bool kOfBlocks = false;      // whether these 16 bytes have a scale of their own
  static constexpr bool kOneConversion = true;  // for all scales

  template <bool usual>
  static __device__ __forceinline__ device::Vec16 Operand(const device::Vec16& bytes, int /*index*/,
                                                          uint32_t /*exponent*/) {
    return bytes;
  }
  static __device__ __forceinline__ device::Vec16 InOrder(const device::Vec16& v) { return v; }
};

// FP8 weights, a scale for each 128 × 128 of them, with tokens in bfloat16: a piece has one scale
// for its first eight rows and one for the others.
struct Fp8Weights : AnyWeights {
  static constexpr device::GemmElement kElement = device::GemmElement::kBf16;
  static constexpr bool kScaled = true;
  static constexpr bool kParameters = false;
  static constexpr int kBits = 8;
  static constexpr int kOperands = 2;
  static constexpr bool kOfBlocks = false;
  static constexpr bool kOneConversion = true;

  template <bool usual>
  static __device__ __forceinline__ device::Vec16 Operand(const device::Vec16& bytes, int index,
                                                          uint32_t /*exponent*/) {
    return index == 0 ? device::Bf16FromNativeFp8(bytes.w[0], bytes.w[1])
                      : device::Bf16FromNativeFp8(bytes.w[2], bytes.w[3]);
  }
  static __device__ __forceinline__ device::Vec16 InOrder(const device::Vec16& v) { return v; }
};

// MXFP4 weights (octet/fp4_format.h), with tokens in bfloat16: the scale of 16 bytes of a row is
// applied as they become operands, and comes with the piece (ring.h).
struct Mxfp4Weights : AnyWeights {
  static constexpr device::GemmElement kElement = device::GemmElement::kBf16;
  static constexpr bool kScaled = false;
  static constexpr bool kParameters = true;
  static constexpr int kBits = 4;
  static constexpr int kOperands = 4;
  static constexpr bool kOfBlocks = true;
  static constexpr bool kOneConversion = device::kOneMxfp4Conversion;

  template <bool usual>
  static __device__ __forceinline__ device::Vec16 Operand(const device::Vec16& bytes, int index,
                                                          uint32_t exponent) {
    return device::Bf16FromMxfp4<usual>(bytes.w[index], exponent);
  }
  static __device__ __forceinline__ device::Vec16 InOrder(const device::Vec16& v) {
    return device::InOrderOfMxfp4(v);
  }
};

// Without code for shared experts, which few layers with small weights have.
template <typename Weights>
struct WithoutSharedExperts : Weights {
  static constexpr bool kSharedExperts = false;
};
template <typename Weights>
struct WithFewerRows : Weights {
  static constexpr bool kFewerRows = true;
};
template <typename Weights>
struct ForOneToken : Weights {
  static constexpr bool kOneToken = true;
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
