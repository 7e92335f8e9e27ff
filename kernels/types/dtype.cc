#include "octet/dtype.h"

#include <bit>
#include <cmath>

namespace octet {

const DTypeInfo& InfoOf(DType dtype) {
  static constexpr DTypeInfo kFloat16 = {.name = "fp16", .bytes = sizeof(uint16_t)};
  static constexpr DTypeInfo kBFloat16 = {.name = "bf16", .bytes = sizeof(uint16_t)};
  return dtype == DType::kFloat16 ? kFloat16 : kBFloat16;
}

absl::Span<const EnumEntry<DType>> EnumTable(DType) {
  static const EnumEntry<DType> kTable[] = {{DType::kFloat16, InfoOf(DType::kFloat16).name},
                                            {DType::kBFloat16, InfoOf(DType::kBFloat16).name}};
  return kTable;
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
