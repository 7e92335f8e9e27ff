#include "kernels/gemm/gemm_config.h"

namespace octet {

device::GemmElement ElementOf(const GroupedGemmConfig& config) {
  if (config.format == GemmFormat::kFp8) return device::GemmElement::kFp8;
  return config.dtype == DType::kFloat16 ? device::GemmElement::kFp16 : device::GemmElement::kBf16;
}

size_t InputRowBytes(const GroupedGemmConfig& config) {
  return static_cast<size_t>(config.k) * static_cast<size_t>(device::BytesOf(ElementOf(config)));
}

size_t WeightBytes(const GroupedGemmConfig& config) {
  return static_cast<size_t>(config.experts) * static_cast<size_t>(config.n) *
         InputRowBytes(config);
}

size_t OutputRowBytes(const GroupedGemmConfig& config) {
  return static_cast<size_t>(config.out_columns()) * config.out_bytes();
}

int64_t ExpectedRows(const GroupedGemmConfig& config) {
  if (config.expected_rows > 0) return config.expected_rows;
  return (config.max_rows + config.experts - 1) / config.experts;
}

namespace device {

absl::Span<const EnumEntry<GemmElement>> EnumTable(GemmElement /*unused*/) {
  static constexpr EnumEntry<GemmElement> kTable[] = {
      {GemmElement::kBf16, "bf16"}, {GemmElement::kFp16, "fp16"}, {GemmElement::kFp8, "fp8"}};
  return kTable;
}

}  // namespace device
}  // namespace octet
