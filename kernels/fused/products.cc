#include "kernels/fused/products.h"

#include <algorithm>
#include <cstdint>

namespace octet {
namespace {

// What both products have in common.
GroupedGemmConfig Product(const RoutedExpertsConfig& config, int num_ranks) {
  const EpConfig& ep = config.ep;
  GroupedGemmConfig product;
  product.experts = ep.num_local_experts(num_ranks);
  product.max_rows = std::max(ep.max_rows(num_ranks), 1);
  product.dtype = ep.dtype;
  const int64_t choices = int64_t{ep.max_tokens_per_rank} * num_ranks * ep.topk;
  product.expected_rows = std::max<int64_t>(choices / ep.num_experts, 1);
  product.blocks = config.product_blocks.value_or(ep.max_blocks);
  return product;
}

}  // namespace

GroupedGemmConfig FirstProduct(const RoutedExpertsConfig& config, int num_ranks) {
  GroupedGemmConfig product = Product(config, num_ranks);
  const bool gated = config.activation == GemmActivation::kSwiGlu;
  product.n = gated ? 2 * config.intermediate : config.intermediate;
  product.k = config.ep.hidden;
  product.activation = config.activation;
  product.swiglu = config.swiglu;
  const GemmFormat rows = config.ep.received_format();
  const bool as_rows = config.first_format == GemmFormat::kSame;
  product.format = as_rows ? rows : config.first_format;
  product.fp8_rows = !as_rows && rows == GemmFormat::kFp8;
  product.scale_format = config.ep.scale_format;
  return product;
}

GroupedGemmConfig SecondProduct(const RoutedExpertsConfig& config, int num_ranks) {
  GroupedGemmConfig product = Product(config, num_ranks);
  product.n = config.ep.hidden;
  product.k = config.intermediate;
  product.format = config.second_format;
  product.fp8_rows = config.second_fp8_rows;
  product.scale_format = config.ep.scale_format;
  return product;
}

bool SecondProductInPlace(const EpConfig& config) {
  return config.received_row_bytes() == config.dtype_row_bytes();
}

GroupedGemmArgs FirstProductArgs(const RoutedExpertsConfig& config, const DispatchGemmArgs& args,
                                 const Received& received) {
  const bool weighted = config.weights_in == WeightsIn::kFirstProduct;
  return {.a = received.x,
          .b = args.b,
          .a_scales = received.scales,
          .b_scales = args.b_scales,
          .expert_offsets = received.expert_offsets,
          .expert_counts = received.expert_counts,
          .bias = args.bias,
          .row_scale = weighted ? received.high_throughput.row_weights : nullptr,
          .out = args.out};
}

GroupedGemmArgs SecondProductArgs(const GemmCombineArgs& args, const Received& received,
                                  void* out) {
  return {.a = args.a,
          .b = args.b,
          .b_scales = args.b_scales,
          .expert_offsets = received.expert_offsets,
          .expert_counts = received.expert_counts,
          .bias = args.bias,
          .out = out};
}

}  // namespace octet
