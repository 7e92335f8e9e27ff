// The FP8 format that this platform converts to, for host and device code: the format of gfx942.
// gfx950 has instructions for E4m3Fn instead, and gfx90a for neither format; both convert to this
// one in software (fp8_ops.h).
#ifndef OCTET_NATIVE_FP8_H_
#define OCTET_NATIVE_FP8_H_

#include "octet/fp8_format.h"

namespace octet {

using NativeFp8 = E4m3Fnuz;

// Sums of products of 8-bit floats are float32.
inline constexpr int kFp8SumBits = 23;

}  // namespace octet

#endif  // OCTET_NATIVE_FP8_H_
