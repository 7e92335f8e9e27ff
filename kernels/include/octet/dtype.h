// The element types of token rows, and their host-side conversions: the same bits on every
// platform.
#ifndef OCTET_DTYPE_H_
#define OCTET_DTYPE_H_

#include <cstddef>
#include <cstdint>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "octet/enum_names.h"

namespace octet {

enum class DType {
  kFloat16,   // IEEE binary16
  kBFloat16,  // the upper half of an IEEE binary32
};

struct DTypeInfo {
  absl::string_view name;  // in flags, files and messages
  size_t bytes;            // of an element
};
const DTypeInfo& InfoOf(DType dtype);

absl::Span<const EnumEntry<DType>> EnumTable(DType);  // names: octet/enum_names.h

// Exact.
float FloatFromBits(DType dtype, uint16_t bits);
// Rounds to nearest even; overflow becomes infinity; NaN stays NaN (quiet).
uint16_t BitsFromFloat(DType dtype, float value);

}  // namespace octet

#endif  // OCTET_DTYPE_H_
