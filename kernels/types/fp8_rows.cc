#include "kernels/types/fp8_rows.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>

#include "octet/dtype.h"
#include "octet/fp8.h"
#include "octet/fp8_format.h"
#include "octet/fp8_scale.h"

namespace octet {
namespace {

void StoreScale(ScaleFormat format, float scale, size_t group, absl::Span<uint32_t> scales) {
  if (format == ScaleFormat::kUe8m0) {
    scales[group / 4] |= static_cast<uint32_t>(Ue8m0FromScale(scale)) << (8 * (group % 4));
  } else {
    scales[group] = std::bit_cast<uint32_t>(scale);
  }
}

template <typename Fp8>
void QuantizeAs(const EpConfig& config, absl::Span<const uint16_t> row, absl::Span<uint8_t> fp8,
                absl::Span<uint32_t> scales) {
  const auto width = static_cast<size_t>(config.scale_group);
  std::ranges::fill(scales, 0U);
  for (size_t first = 0; first < row.size(); first += width) {
    const absl::Span<const uint16_t> group = row.subspan(first, width);
    uint16_t largest = 0;  // without signs, bits are ordered like their values, NaN last
    for (const uint16_t bits : group) {
      largest = std::max(largest, static_cast<uint16_t>(bits & 0x7fffU));
    }
    const float scale = Fp8Scale<Fp8>(FloatFromBits(config.dtype, largest), config.scale_format);
    StoreScale(config.scale_format, scale, first / width, scales);
    for (size_t i = 0; i < group.size(); ++i) {
      fp8[first + i] = Fp8FromFloat<Fp8>(FloatFromBits(config.dtype, group[i]) / scale).bits;
    }
  }
}

}  // namespace

void ReferenceQuantize(const EpConfig& config, absl::Span<const uint16_t> row,
                       absl::Span<uint8_t> fp8, absl::Span<uint32_t> scales) {
  if (WithNativeFp8(config.fp8_form) == Fp8Form::kE4m3Fn) {
    QuantizeAs<E4m3Fn>(config, row, fp8, scales);
  } else {
    QuantizeAs<E4m3Fnuz>(config, row, fp8, scales);
  }
}

float ScaleOfGroup(ScaleFormat format, absl::Span<const uint32_t> scales, int group) {
  const auto index = static_cast<size_t>(group);
  if (format != ScaleFormat::kUe8m0) return std::bit_cast<float>(scales[index]);
  return ScaleFromUe8m0(static_cast<uint8_t>(scales[index / 4] >> (8 * (index % 4))));
}

void Dequantize(const EpConfig& config, absl::Span<const uint8_t> fp8,
                absl::Span<const uint32_t> scales, absl::Span<float> out) {
  for (size_t i = 0; i < fp8.size(); ++i) {
    const int group = static_cast<int>(i) / config.scale_group;
    out[i] = FloatFromFp8Bits(config.fp8_form, fp8[i]) *
             ScaleOfGroup(config.scale_format, scales, group);
  }
}

}  // namespace octet
