// The two 8-bit floating-point formats with four exponent and three mantissa bits, as types, and
// their conversions in software. Host and device compute the same bits on every platform.
//
//              largest finite    smallest normal    smallest     zeros    NaN
//   E4m3Fn     448               2^-6               2^-9         +0, -0   0x7f, 0xff
//   E4m3Fnuz   240               2^-7               2^-10        +0       0x80
//
// Neither has infinities. E4m3Fn is the format of the OCP specification, NVIDIA GPUs and gfx950;
// E4m3Fnuz is that of gfx942. The same byte means values a factor of two apart, hence two types.
#ifndef OCTET_FP8_FORMAT_H_
#define OCTET_FP8_FORMAT_H_

#include <bit>
#include <cstdint>

namespace octet {

struct E4m3Fn {
  static constexpr int kBias = 7;
  static constexpr uint8_t kLargestBits = 0x7e;
  static constexpr float kLargest = 448.0F;
  static constexpr uint8_t kNanBits = 0x7f;  // the NaN that conversions produce
  static constexpr bool kHasNegativeZero = true;
  // `bits` is a byte, or a vector of them.
  static constexpr auto IsNan(auto bits) { return (bits & 0x7f) == 0x7f; }

  uint8_t bits;
};

struct E4m3Fnuz {
  static constexpr int kBias = 8;
  static constexpr uint8_t kLargestBits = 0x7f;
  static constexpr float kLargest = 240.0F;
  static constexpr uint8_t kNanBits = 0x80;
  static constexpr bool kHasNegativeZero = false;
  static constexpr auto IsNan(auto bits) { return bits == 0x80; }

  uint8_t bits;
};

// 2^(127 - kBias): what the bits of an 8-bit float, moved to those of a float32, are multiplied by.
template <typename Fp8>
inline constexpr float kFp8BitsScale =
    std::bit_cast<float>(static_cast<uint32_t>(127 + 127 - Fp8::kBias) << 23);

// Exact; NaN becomes the quiet NaN 0x7fc00000.
template <typename Fp8>
constexpr float FloatFromFp8(Fp8 value) {
  if (Fp8::IsNan(value.bits)) return std::bit_cast<float>(0x7fc00000U);
  const uint32_t bits = (value.bits & 0x80U) << 24 | (value.bits & 0x7fU) << 20;
  return std::bit_cast<float>(bits) * kFp8BitsScale<Fp8>;
}

// Rounds to nearest, ties to even, and saturates: values beyond the largest finite value, including
// infinities, become that value with their sign. NaN becomes kNanBits.
template <typename Fp8>
constexpr Fp8 Fp8FromFloat(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  const uint32_t magnitude = bits & 0x7fffffffU;
  if (magnitude > 0x7f800000U) return {Fp8::kNanBits};
  constexpr uint32_t kSmallestNormal = static_cast<uint32_t>(127 + 1 - Fp8::kBias) << 23;
  uint32_t rounded = 0;
  if (magnitude < kSmallestNormal) {
    // From this float32 number on, neighbours are as far apart as the FP8 subnormals are.
    constexpr uint32_t kAligned = static_cast<uint32_t>(127 + 21 - Fp8::kBias) << 23;
    const float sum = std::bit_cast<float>(magnitude) + std::bit_cast<float>(kAligned);
    rounded = std::bit_cast<uint32_t>(sum) - kAligned;
  } else {
    constexpr uint32_t kExponents = static_cast<uint32_t>(127 - Fp8::kBias) << 3;
    rounded = ((magnitude + 0x7ffffU + ((magnitude >> 20) & 1U)) >> 20) - kExponents;
  }
  if (rounded > Fp8::kLargestBits) rounded = Fp8::kLargestBits;
  if (rounded == 0 && !Fp8::kHasNegativeZero) return {0};
  return {static_cast<uint8_t>(rounded | (bits >> 24 & 0x80U))};
}

// Converts four values; the first goes into the lowest byte.
template <typename Fp8>
constexpr uint32_t PackFp8InSoftware(float a, float b, float c, float d) {
  const auto byte = [](float value) {
    return static_cast<uint32_t>(Fp8FromFloat<Fp8>(value).bits);
  };
  return byte(a) | byte(b) << 8 | byte(c) << 16 | byte(d) << 24;
}

}  // namespace octet

#endif  // OCTET_FP8_FORMAT_H_
