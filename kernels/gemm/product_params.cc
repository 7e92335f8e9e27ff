#include "kernels/gemm/product_params.h"

#include "kernels/types/gemm_element.h"

namespace octet {

GroupedGemmVariant VariantOf(const GroupedGemmConfig& config, GemmTiles tiles) {
  return {.tiles = tiles,
          .element = ElementOf(config.weight_format(), config.row_format()),
          .gated = config.activation == GemmActivation::kSwiGlu,
          .float32 = config.output == GemmOutput::kFloat32,
          .traced = false};
}

GroupedGemmParams ParamsOf(const GroupedGemmConfig& config, const GroupedGemmArgs& args) {
  return {.operands = {.a = args.a,
                       .b = args.b,
                       .out = args.out,
                       .rows = args.rows > 0 ? args.rows : config.max_rows,
                       .experts = config.experts,
                       .n = config.n,
                       .k = config.k,
                       .out_columns = config.out_columns(),
                       .scales = {.a = args.a_scales,
                                  .b = args.b_scales,
                                  .row_words = config.row_scale_words(),
                                  .ue8m0 = config.scale_format == ScaleFormat::kUe8m0,
                                  .mxfp4_words = config.scale_words()}},
          .offsets = args.expert_offsets,
          .counts = args.expert_counts,
          .bias = args.bias,
          .row_scale = args.row_scale,
          .swiglu = config.swiglu,
          .next_unit = nullptr,
          .trace = {}};
}

}  // namespace octet
