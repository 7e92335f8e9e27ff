// The 4-bit floating-point format of the OCP specification for microscaling formats, E2M1: a sign,
// two exponent bits and one mantissa bit. Its numbers are 0, 0.5, 1, 1.5, 2, 3, 4, 6 and their
// negatives; there is no infinity and no NaN. Shared by host and device.
//
// In MXFP4, 32 consecutive numbers of a row have a scale in common, an exponent of 8 bits (UE8M0,
// octet/fp8_scale.h), and a byte holds two numbers, of which the first is in the lower half. A
// number stands for itself times its scale, rounded to float32: exact, but for magnitudes from
// 2^128 on, which become infinities. The scale 0xff makes NaN of all 32, zeros included.
#ifndef OCTET_FP4_FORMAT_H_
#define OCTET_FP4_FORMAT_H_

#include <bit>
#include <cstdint>

namespace octet {

inline constexpr int kMxBlock = 32;  // numbers that have a scale in common

// Converts the lower four bits. `bits` is a word, or a vector of them.
template <typename Floats, typename Bits>
constexpr Floats FloatsFromFp4(Bits bits) {
  // The bits of a number at those of a float32, whose exponents begin lower.
  constexpr float kScale = std::bit_cast<float>((127U + 126U) << 23);
  return std::bit_cast<Floats>((bits & 8U) << 28 | (bits & 7U) << 22) * kScale;
}
constexpr float FloatFromFp4(uint32_t bits) { return FloatsFromFp4<float>(bits); }

// Rounds to nearest, ties to even, and saturates. NaN, which the format does not have, becomes 6.
constexpr uint8_t Fp4FromFloat(float value) {
  const uint8_t sign = std::bit_cast<uint32_t>(value) >> 31 != 0 ? 8 : 0;
  const float magnitude = value < 0 ? -value : value;
  // From these numbers on, the next one is nearer, or as near and even.
  constexpr float kLimits[] = {0.25F, 0.75F, 1.25F, 1.75F, 2.5F, 3.5F, 5.0F};
  uint8_t code = 0;
  for (const float limit : kLimits) {
    const bool odd = code % 2 == 1;
    if (magnitude < limit || (magnitude == limit && !odd)) break;
    ++code;
  }
  return static_cast<uint8_t>(sign | code);
}

}  // namespace octet

#endif  // OCTET_FP4_FORMAT_H_
