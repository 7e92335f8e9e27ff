// Rows quantised to 8-bit floats with a scale for each group of columns: the reference for
// DispatchFormat::kQuantizedFp8, to the bit, and its inverse.
#ifndef OCTET_KERNELS_TYPES_FP8_ROWS_H_
#define OCTET_KERNELS_TYPES_FP8_ROWS_H_

#include <cstdint>

#include "absl/types/span.h"
#include "octet/ep_config.h"

namespace octet {

// Quantises a row of config.dtype, config.scale_group columns at a time; the last group may be
// shorter. Writes bytes of config.fp8_form to `fp8` [H] and scales of config.scale_format to
// `scales` [config.scale_words()]; bytes of padding are zero. Let amax be the largest magnitude of
// a group:
//   scale  = amax / the largest finite fp8, at least 2^-90; then, if asked for, rounded up to a
//            power of two. 1 where amax is 0. (octet/fp8_scale.h)
//   fp8[i] = x[i] / scale, rounded to float32, then to nearest even and saturated to fp8.
// If a group holds an infinity or a NaN, its scale and all its bytes become NaN.
void ReferenceQuantize(const EpConfig& config, absl::Span<const uint16_t> row,
                       absl::Span<uint8_t> fp8, absl::Span<uint32_t> scales);

// Returns the scale of column group `group` from a row of scales.
float ScaleOfGroup(ScaleFormat format, absl::Span<const uint32_t> scales, int group);

// out[i] = float(fp8[i]) · scale, in float32; [H] each.
void Dequantize(const EpConfig& config, absl::Span<const uint8_t> fp8,
                absl::Span<const uint32_t> scales, absl::Span<float> out);

}  // namespace octet

#endif  // OCTET_KERNELS_TYPES_FP8_ROWS_H_
