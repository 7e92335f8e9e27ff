// The FP8 format that this platform converts to, for host and device code. NVIDIA GPUs (sm_90 and
// later) use the OCP format.
#ifndef OCTET_NATIVE_FP8_H_
#define OCTET_NATIVE_FP8_H_

#include "octet/fp8_format.h"

namespace octet {

using NativeFp8 = E4m3Fn;

// Bits behind the leading one that remain of the largest addend, and of others at its place, when
// the tensor cores add up to 32 products of 8-bit floats and a sum.
inline constexpr int kFp8SumBits = 13;

}  // namespace octet

#endif  // OCTET_NATIVE_FP8_H_
