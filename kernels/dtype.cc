#include "octet/dtype.h"

#include <bit>
#include <cmath>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace octet {

absl::string_view DTypeName(DType dtype) { return dtype == DType::kFloat16 ? "fp16" : "bf16"; }

absl::StatusOr<DType> ParseDType(absl::string_view name) {
  for (const DType dtype : {DType::kFloat16, DType::kBFloat16}) {
    if (name == DTypeName(dtype)) return dtype;
  }
  return absl::InvalidArgumentError(absl::StrCat("dtype '", name, "' is not one of fp16, bf16"));
}

float FloatFromBits(DType dtype, uint16_t bits) {
  if (dtype == DType::kFloat16) return static_cast<float>(std::bit_cast<_Float16>(bits));
  return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16);
}

uint16_t BitsFromFloat(DType dtype, float value) {
  if (dtype == DType::kFloat16) return std::bit_cast<uint16_t>(static_cast<_Float16>(value));
  if (std::isnan(value)) return 0x7fff;
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  return static_cast<uint16_t>((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
}

}  // namespace octet
