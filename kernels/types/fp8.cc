#include "octet/fp8.h"

#include <type_traits>

#include "octet/fp8_format.h"
#include "octet/native_fp8.h"

namespace octet {

absl::Span<const EnumEntry<Fp8Form>> EnumTable(Fp8Form) {
  static constexpr EnumEntry<Fp8Form> kTable[] = {
      {Fp8Form::kNative, "native"}, {Fp8Form::kE4m3Fn, "e4m3fn"}, {Fp8Form::kE4m3Fnuz, "e4m3fnuz"}};
  return kTable;
}

Fp8Form WithNativeFp8(Fp8Form form) {
  if (form != Fp8Form::kNative) return form;
  return std::is_same_v<NativeFp8, E4m3Fn> ? Fp8Form::kE4m3Fn : Fp8Form::kE4m3Fnuz;
}

float FloatFromFp8Bits(Fp8Form form, uint8_t bits) {
  return WithNativeFp8(form) == Fp8Form::kE4m3Fn ? FloatFromFp8(E4m3Fn{bits})
                                                 : FloatFromFp8(E4m3Fnuz{bits});
}

uint8_t Fp8BitsFromFloat(Fp8Form form, float value) {
  return WithNativeFp8(form) == Fp8Form::kE4m3Fn ? Fp8FromFloat<E4m3Fn>(value).bits
                                                 : Fp8FromFloat<E4m3Fnuz>(value).bits;
}

}  // namespace octet
