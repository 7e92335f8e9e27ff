#include "octet/moe_weights.h"

#include <cstdint>

namespace octet {

absl::Span<const EnumEntry<TensorType>> EnumTable(TensorType /*unused*/) {
  static constexpr EnumEntry<TensorType> kTable[] = {{TensorType::kFloat32, "fp32"},
                                                     {TensorType::kBFloat16, "bf16"},
                                                     {TensorType::kFloat16, "fp16"},
                                                     {TensorType::kFloat8E4m3, "fp8"}};
  return kTable;
}

size_t BytesOf(TensorType type) {
  switch (type) {
    case TensorType::kFloat32:
      return sizeof(float);
    case TensorType::kBFloat16:
    case TensorType::kFloat16:
      return sizeof(uint16_t);
    case TensorType::kFloat8E4m3:
      break;
  }
  return sizeof(uint8_t);
}

}  // namespace octet
