// The FP8 format that this platform converts to, for host and device code. For emulated GPUs the
// choice is arbitrary.
#ifndef OCTET_NATIVE_FP8_H_
#define OCTET_NATIVE_FP8_H_

#include "octet/fp8_format.h"

namespace octet {

using NativeFp8 = E4m3Fn;

// Sums of products of 8-bit floats are float32.
inline constexpr int kFp8SumBits = 23;

}  // namespace octet

#endif  // OCTET_NATIVE_FP8_H_
