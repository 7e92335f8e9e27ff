// The scales of groups of columns that are quantised to 8-bit floats: value = scale · fp8. Shared
// by host and device.
#ifndef OCTET_FP8_SCALE_H_
#define OCTET_FP8_SCALE_H_

#include <bit>
#include <cstdint>

namespace octet {

// The format of scales of rows of 8-bit floats, one for each EpConfig::scale_group columns. A row
// has ceil(H / scale_group) scales, padded to whole 4-byte words. DispatchFormat::kFp8 moves them
// unchanged.
enum class ScaleFormat {
  kFloat32,
  kPowerOfTwo,  // float32 too, rounded up to a power of two
  kUe8m0,       // 8-bit exponents of the same
};

// The smallest scale. A group whose largest number is below kLargest · 2^-90 loses precision, down
// to zero. From this scale on up, the remainder of a division is exact in float32, so that a kernel
// can compute the exact quotient by multiplying (kernels/types/fp8_quantize.h).
inline constexpr float kMinFp8Scale = std::bit_cast<float>((127U - 90U) << 23);

// The scale of a group whose largest magnitude is `amax`:
//   amax / Fp8::kLargest, a division rounded to float32, but at least kMinFp8Scale; unless `format`
//   is kFloat32, rounded up to a power of two.
//   1 where amax is 0.
//   NaN (0x7fc00000) where amax is not finite: one infinity or NaN makes NaN of the whole group.
template <typename Fp8>
constexpr float Fp8Scale(float amax, ScaleFormat format) {
  if (std::bit_cast<uint32_t>(amax) >= 0x7f800000U) return std::bit_cast<float>(0x7fc00000U);
  if (amax == 0.0F) return 1.0F;
  float scale = amax / Fp8::kLargest;
  if (scale < kMinFp8Scale) scale = kMinFp8Scale;
  if (format == ScaleFormat::kFloat32) return scale;
  return std::bit_cast<float>((std::bit_cast<uint32_t>(scale) + 0x7fffffU) & 0x7f800000U);
}

// A power of two as UE8M0: its exponent + 127, in 8 bits; 0xff is NaN. Of what Fp8Scale() gives
// (2^-90 .. 2^121, NaN), exact.
constexpr uint8_t Ue8m0FromScale(float scale) {
  return static_cast<uint8_t>(std::bit_cast<uint32_t>(scale) >> 23);
}
// Exact for all bytes; 0 is 2^-127.
constexpr float ScaleFromUe8m0(uint8_t exponent) {
  const uint32_t bits = static_cast<uint32_t>(exponent) << 23;
  // 0 needs the leading bit of a subnormal number, 0xff the bit that makes NaN of infinity.
  const uint32_t extra = ((exponent + 1U) & 0xfeU) == 0 ? 0x00400000U : 0U;
  return std::bit_cast<float>(bits | extra);
}

// 4-byte words of a row of scales, one for each `group` of `columns` columns.
constexpr int Fp8ScaleWords(int columns, int group, ScaleFormat format) {
  constexpr int kExponentsPerWord = 4;
  const int scales = (columns + group - 1) / group;
  return format == ScaleFormat::kUe8m0 ? (scales + kExponentsPerWord - 1) / kExponentsPerWord
                                       : scales;
}

}  // namespace octet

#endif  // OCTET_FP8_SCALE_H_
