#include "kernels/layer/layer_config.h"

#include <algorithm>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "kernels/ep/strategy_registry.h"
#include "kernels/gemm/kernels.h"
#include "kernels/layer/router.h"
#include "kernels/nodes/options.h"
#include "octet/enum_names.h"
#include "octet/ep_config.h"
#include "runtime/base/status_macros.h"

namespace octet {
namespace {

constexpr int kUnit = 8;  // elements of 16 bytes

absl::Status Refuse(absl::string_view member, absl::string_view value, absl::string_view must) {
  return absl::InvalidArgumentError(
      absl::StrCat("MoeLayerConfig::", member, " is ", value, "; ", must));
}

absl::Status CheckSize(absl::string_view member, int value, int unit) {
  if (value > 0 && value % unit == 0) return absl::OkStatus();
  return Refuse(member, absl::StrCat(value),
                absl::StrCat("it must be a positive multiple of ", unit));
}

// What the products of one rank's tokens have in common.
GroupedGemmConfig TokenProduct(const MoeLayerConfig& config) {
  GroupedGemmConfig product;
  product.experts = 1;
  product.max_rows = std::max(config.max_tokens_per_rank, 1);
  product.dtype = config.dtype;
  product.blocks = config.max_blocks;
  return product;
}

absl::Status CheckMlp(absl::string_view name, const MlpWeights& mlp, int hidden, int between) {
  OCTET_RETURN_IF_ERROR(CheckTensor(absl::StrCat(name, ".gate"), mlp.gate, between, hidden));
  OCTET_RETURN_IF_ERROR(CheckTensor(absl::StrCat(name, ".up"), mlp.up, between, hidden));
  return CheckTensor(absl::StrCat(name, ".down"), mlp.down, hidden, between);
}

absl::Status CheckShared(const MoeLayerConfig& config, const MoeLayerWeights& weights) {
  if (config.shared_intermediate == 0) return absl::OkStatus();
  OCTET_RETURN_IF_ERROR(
      CheckMlp("shared", weights.shared, config.hidden, config.shared_intermediate));
  if (!config.shared_gate) return absl::OkStatus();
  return CheckTensor("shared_gate", weights.shared_gate, 1, config.hidden);
}

// What RoutedExperts would refuse under names of its own.
absl::Status CheckFusion(const MoeLayerConfig& config) {
  const Fusion fusion = config.fusion;
  if (fusion == Fusion::kAuto || fusion == Fusion::kNone) return absl::OkStatus();
  if (fusion != Fusion::kTiles && fusion != Fusion::kSerial) {
    return Refuse("fusion", EnumName(fusion), "it must be auto, none, tiles or serial");
  }
  if (config.weights == GemmFormat::kFp8) {
    return Refuse("fusion", EnumName(fusion), "with FP8 weights it must be auto or none");
  }
  if (config.strategy == Strategy::kAuto || Has(config.strategy, &StrategyInfo::fuses_products)) {
    return absl::OkStatus();
  }
  return Refuse("strategy", EnumName(config.strategy),
                absl::StrCat("the fusion ", EnumName(fusion), " needs ",
                             NamesWith(&StrategyInfo::fuses_products), " or auto"));
}

// Everything but dispatch and combine.
absl::Status CheckLayer(const MoeLayerConfig& config, int num_ranks) {
  OCTET_RETURN_IF_ERROR(Validate(config.router, config.num_experts, config.topk));
  const int unit = config.weights == GemmFormat::kFp8 ? 2 * kUnit : kUnit;
  OCTET_RETURN_IF_ERROR(CheckSize("hidden", config.hidden, unit));
  OCTET_RETURN_IF_ERROR(CheckSize("intermediate", config.intermediate, unit));
  if (config.shared_intermediate != 0) {
    OCTET_RETURN_IF_ERROR(CheckSize("shared_intermediate", config.shared_intermediate, kUnit));
  } else if (config.shared_gate) {
    return Refuse("shared_gate", "true", "it needs shared experts (shared_intermediate)");
  }
  if (config.link_blocks < 0 || (config.max_blocks > 0 && config.link_blocks > config.max_blocks)) {
    return Refuse("link_blocks", absl::StrCat(config.link_blocks),
                  absl::StrCat("it must be 0 or positive, and at most max_blocks, ",
                               config.max_blocks, ", if that is not 0"));
  }
  if (config.weights == GemmFormat::kFp8 && config.dtype != DType::kBFloat16) {
    return Refuse("dtype", EnumName(config.dtype), "FP8 weights need bf16");
  }
  if (config.num_experts / num_ranks > kMaxGemmExperts) {
    return Refuse("num_experts", absl::StrCat(config.num_experts),
                  absl::StrCat("at most ", kMaxGemmExperts, " may be on a rank, of ", num_ranks));
  }
  return absl::OkStatus();
}

}  // namespace

int LogitStride(const MoeLayerConfig& config) {
  const int logits = config.num_experts + (config.shared_gate ? 1 : 0);
  return (logits + kUnit - 1) / kUnit * kUnit;
}

RoutedExpertsConfig ExpertsConfig(const MoeLayerConfig& config) {
  RoutedExpertsConfig experts;
  experts.ep.num_experts = config.num_experts;
  experts.ep.topk = config.topk;
  experts.ep.hidden = config.hidden;
  experts.ep.max_tokens_per_rank = config.max_tokens_per_rank;
  experts.ep.dtype = config.dtype;
  experts.ep.strategy = config.strategy;
  experts.ep.max_blocks = config.link_blocks > 0 ? config.link_blocks : config.max_blocks;
  experts.product_blocks = config.max_blocks;
  experts.intermediate = config.intermediate;
  // Only one of the calls can be one kernel without overlap.
  experts.dispatch_gemm = config.fusion == Fusion::kSerial ? Fusion::kNone : config.fusion;
  experts.gemm_combine = config.fusion;
  const bool one_kernel = config.fusion == Fusion::kTiles || config.fusion == Fusion::kSerial;
  if (one_kernel && config.strategy == Strategy::kAuto) {
    experts.ep.strategy = FirstWith(&StrategyInfo::fuses_products);
  }
  if (config.weights == GemmFormat::kFp8) {
    experts.ep.dispatch_format = Takes(config.strategy, DispatchFormat::kQuantizedFp8)
                                     ? DispatchFormat::kQuantizedFp8
                                     : DispatchFormat::kFp8;
    experts.ep.scale_group = kGemmScaleGroup;
    experts.second_format = GemmFormat::kFp8;
  }
  return experts;
}

GroupedGemmConfig RouterProduct(const MoeLayerConfig& config) {
  GroupedGemmConfig product = TokenProduct(config);
  product.n = LogitStride(config);
  product.k = config.hidden;
  product.output = GemmOutput::kFloat32;
  return product;
}

GroupedGemmConfig SharedFirstProduct(const MoeLayerConfig& config) {
  GroupedGemmConfig product = TokenProduct(config);
  product.n = 2 * config.shared_intermediate;
  product.k = config.hidden;
  product.activation = GemmActivation::kSwiGlu;
  return product;
}

GroupedGemmConfig SharedSecondProduct(const MoeLayerConfig& config) {
  GroupedGemmConfig product = TokenProduct(config);
  product.n = config.hidden;
  product.k = config.shared_intermediate;
  return product;
}

WeightFormat ExpertWeights(const MoeLayerConfig& config) {
  return {.dtype = config.dtype, .format = config.weights};
}

WeightFormat PlainWeights(const MoeLayerConfig& config) { return {.dtype = config.dtype}; }

absl::Span<const EnumEntry<SharedExperts>> EnumTable(SharedExperts /*unused*/) {
  static constexpr EnumEntry<SharedExperts> kTable[] = {{SharedExperts::kAuto, "auto"},
                                                        {SharedExperts::kAfter, "after"},
                                                        {SharedExperts::kBeside, "beside"}};
  return kTable;
}

absl::Status CheckWeights(const MoeLayerConfig& config, const MoeLayerWeights& weights) {
  OCTET_RETURN_IF_ERROR(CheckTensor("router", weights.router, config.num_experts, config.hidden));
  if (!weights.router_bias.empty()) {
    OCTET_RETURN_IF_ERROR(CheckTensor("router_bias", weights.router_bias, 1, config.num_experts));
  }
  if (static_cast<int>(weights.experts.size()) != config.num_experts) {
    return absl::InvalidArgumentError(absl::StrCat("experts has ", weights.experts.size(),
                                                   " elements; it must have ", config.num_experts));
  }
  for (int expert = 0; expert < config.num_experts; ++expert) {
    OCTET_RETURN_IF_ERROR(CheckMlp(absl::StrCat("experts[", expert, "]"),
                                   weights.experts[static_cast<size_t>(expert)], config.hidden,
                                   config.intermediate));
  }
  return CheckShared(config, weights);
}

absl::Status Validate(const MoeLayerConfig& config, int num_ranks) {
  OCTET_RETURN_IF_ERROR(CheckFusion(config));
  OCTET_RETURN_IF_ERROR(Validate(ExpertsConfig(config).ep, num_ranks));
  return CheckLayer(config, num_ranks);
}

absl::Status Validate(const MoeLayerConfig& config, const NodesOfRanks& nodes) {
  if (nodes.num_nodes == 1) return Validate(config, nodes.ranks_per_node);
  if (config.fusion != Fusion::kAuto && config.fusion != Fusion::kNone) {
    return Refuse("fusion", EnumName(config.fusion), "over several nodes it must be auto or none");
  }
  OCTET_RETURN_IF_ERROR(ValidateHierarchical(ExpertsConfig(config).ep, nodes));
  return CheckLayer(config, nodes.num_nodes * nodes.ranks_per_node);
}

std::string TextOf(const MoeLayerConfig& config, const MoeLayerOptions& options) {
  const auto yes_or_no = [](bool value) { return value ? "yes" : "no"; };
  const RouterConfig& router = config.router;
  std::string text = absl::StrCat(
      "experts ", config.num_experts, ", topk ", config.topk, ", hidden ", config.hidden,
      ", intermediate ", config.intermediate, ", max_tokens_per_rank ", config.max_tokens_per_rank,
      ", ", EnumName(config.dtype), ", weights ", EnumName(config.weights), ", strategy ",
      EnumName(config.strategy), ", fusion ", EnumName(config.fusion));
  absl::StrAppend(&text, ", shared_intermediate ", config.shared_intermediate, ", shared_gate ",
                  yes_or_no(config.shared_gate), ", router ", EnumName(router.scores), " groups ",
                  router.groups, " top_groups ", router.top_groups, " ",
                  EnumName(router.group_score), " normalize ", yes_or_no(router.normalize),
                  " epsilon ", router.normalize_epsilon, " scaling ", router.scaling);
  absl::StrAppend(&text, ", rows ", EnumName(options.rails.rows), ", chunk_tokens ",
                  options.rails.chunk_tokens, ", intranode_order ",
                  EnumName(options.rails.intranode_order), ", shares memory ",
                  yes_or_no(options.share != nullptr));
  return text;
}

}  // namespace octet
