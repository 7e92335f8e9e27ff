// 8-bit floats of token rows: their two forms, and their host-side conversions, which give the same
// bits on every platform. octet/fp8_format.h has the forms as types, and their
// conversions in kernels; native_fp8.h the platform's own, NativeFp8.
#ifndef OCTET_FP8_H_
#define OCTET_FP8_H_

#include <cstdint>

#include "absl/types/span.h"
#include "octet/enum_names.h"

namespace octet {

enum class Fp8Form {
  kNative,    // the platform's: e4m3fnuz on AMD GPUs, otherwise e4m3fn
  kE4m3Fn,    // of OCP: to 448
  kE4m3Fnuz,  // of gfx942: to 240, without -0
};
absl::Span<const EnumEntry<Fp8Form>> EnumTable(Fp8Form);  // names: octet/enum_names.h

// Never kNative: what that stands for; any other as it is.
Fp8Form WithNativeFp8(Fp8Form form);

// Exact; NaN stays NaN.
float FloatFromFp8Bits(Fp8Form form, uint8_t bits);
// Rounds to nearest even and saturates: infinities, too, become the largest finite value, with
// their sign. NaN stays NaN.
uint8_t Fp8BitsFromFloat(Fp8Form form, float value);

}  // namespace octet

#endif  // OCTET_FP8_H_
