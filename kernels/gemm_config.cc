#include "kernels/gemm_config.h"

namespace octet {

device::GemmElement ElementOf(const GroupedGemmConfig& config) {
  if (config.format == GemmFormat::kFp8) return device::GemmElement::kFp8;
  return config.dtype == DType::kFloat16 ? device::GemmElement::kFp16 : device::GemmElement::kBf16;
}

int64_t ExpectedRows(const GroupedGemmConfig& config) {
  if (config.expected_rows > 0) return config.expected_rows;
  return (config.max_rows + config.experts - 1) / config.experts;
}

GroupedGemmVariant VariantOf(const GroupedGemmConfig& config, GemmTiles tiles) {
  return {.tiles = tiles,
          .element = ElementOf(config),
          .gated = config.activation == GemmActivation::kSwiGlu};
}

GroupedGemmParams ParamsOf(const GroupedGemmConfig& config, const GroupedGemmArgs& args) {
  return {.operands = {.a = args.a,
                       .b = args.b,
                       .out = args.out,
                       .rows = config.max_rows,
                       .experts = config.experts,
                       .n = config.n,
                       .k = config.k,
                       .out_columns = config.out_columns(),
                       .scales = {.a = args.a_scales,
                                  .b = args.b_scales,
                                  .row_words = config.scale_words(),
                                  .ue8m0 = config.scale_format == ScaleFormat::kUe8m0}},
          .offsets = args.expert_offsets,
          .counts = args.expert_counts,
          .bias = args.bias,
          .row_scale = args.row_scale,
          .next_unit = nullptr};
}

namespace device {

absl::Span<const EnumEntry<GemmElement>> EnumTable(GemmElement /*unused*/) {
  static constexpr EnumEntry<GemmElement> kTable[] = {
      {GemmElement::kBf16, "bf16"}, {GemmElement::kFp16, "fp16"}, {GemmElement::kFp8, "fp8"}};
  return kTable;
}

}  // namespace device
}  // namespace octet
