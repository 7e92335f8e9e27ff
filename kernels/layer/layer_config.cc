#include "kernels/layer/layer_config.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "kernels/decode/decode_path.h"
#include "kernels/ep/physical.h"
#include "kernels/ep/strategy_registry.h"
#include "kernels/gemm/kernels.h"
#include "kernels/nodes/options.h"
#include "kernels/router/route_params.h"
#include "kernels/router/router.h"
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

// An expert has all biases, or none.
absl::Status CheckBiases(const MoeLayerConfig& config, absl::string_view name,
                         const MlpWeights& mlp) {
  struct Bias {
    absl::string_view name;
    const HostTensor& tensor;
    int columns;
  };
  for (const Bias& bias : {Bias{".gate_bias", mlp.gate_bias, config.intermediate},
                           Bias{".up_bias", mlp.up_bias, config.intermediate},
                           Bias{".down_bias", mlp.down_bias, config.hidden}}) {
    const std::string whole = absl::StrCat(name, bias.name);
    if (config.expert_biases) {
      OCTET_RETURN_IF_ERROR(CheckTensor(whole, bias.tensor, 1, bias.columns));
    } else if (!bias.tensor.empty()) {
      return absl::InvalidArgumentError(
          absl::StrCat(whole, " is given; MoeLayerConfig::expert_biases is false"));
    }
  }
  return absl::OkStatus();
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
  const WeightFormatInfo& weights = InfoOf(ExpertWeights(config));
  if (weights.format.has_scales()) {
    return Refuse("fusion", EnumName(fusion),
                  absl::StrCat("with ", weights.title, " weights it must be auto or none"));
  }
  if (config.strategy == Strategy::kAuto || Has(config.strategy, &StrategyInfo::fuses_products)) {
    return absl::OkStatus();
  }
  return Refuse("strategy", EnumName(config.strategy),
                absl::StrCat("the fusion ", EnumName(fusion), " needs ",
                             NamesWith(&StrategyInfo::fuses_products), " or auto"));
}

// The tokens of a pass begin at multiples of 4 at least, so the smallest pass has to fit.
absl::Status CheckCapacity(const MoeLayerConfig& config, int num_ranks) {
  if (config.capacity_rows == 0) return absl::OkStatus();
  const std::string value = absl::StrCat(config.capacity_rows);
  if (config.path == LayerPath::kDecode) {
    return Refuse("capacity_rows", value,
                  "with the path decode, which stores no rows, it must be 0");
  }
  const EpConfig ep = ExpertsConfig(config).ep;
  const int least = num_ranks * std::min(config.max_tokens_per_rank, kPassTokens) *
                    std::min(ep.topk, ep.num_local_experts(num_ranks));
  if (config.capacity_rows >= least) return absl::OkStatus();
  return Refuse("capacity_rows", value,
                absl::StrCat("it must be 0 or at least ", least, ", the most rows of the ",
                             kPassTokens, " tokens of each rank that no pass is smaller than"));
}

// Everything but dispatch and combine.
absl::Status CheckLayer(const MoeLayerConfig& config, int num_ranks) {
  OCTET_RETURN_IF_ERROR(Validate(config.router, config.num_experts, config.topk));
  const WeightFormatInfo& weights = InfoOf(ExpertWeights(config));
  OCTET_RETURN_IF_ERROR(CheckSize("hidden", config.hidden, weights.unit()));
  OCTET_RETURN_IF_ERROR(CheckSize("intermediate", config.intermediate, weights.unit()));
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
  if (config.weighs_input && config.topk != 1) {
    return Refuse("topk", absl::StrCat(config.topk), "with weighs_input it must be 1");
  }
  const SwiGlu& swiglu = config.swiglu;
  if (!std::isfinite(swiglu.alpha) || !(swiglu.limit > 0) || !std::isfinite(swiglu.up_offset)) {
    return Refuse("swiglu",
                  absl::StrCat("alpha ", swiglu.alpha, ", limit ", swiglu.limit, ", up_offset ",
                               swiglu.up_offset),
                  "the limit must be above 0, and the others finite");
  }
  const DType needed = weights.dtype.value_or(config.dtype);
  if (config.dtype != needed) {
    return Refuse("dtype", EnumName(config.dtype),
                  absl::StrCat(weights.title, " weights need ", EnumName(needed)));
  }
  if (config.fp8_rows && config.weights != GemmFormat::kMxfp4) {
    return Refuse("fp8_rows", "true",
                  absl::StrCat("with weights ", EnumName(config.weights),
                               " it must be false; mxfp4 can have it"));
  }
  if (config.num_local_experts(num_ranks) <= kMaxGemmExperts) return absl::OkStatus();
  if (!config.placement.empty()) {
    return Refuse("placement",
                  absl::StrCat("one of ", config.placement.slots_per_rank(), " slots on each rank"),
                  absl::StrCat("at most ", kMaxGemmExperts, " may be there"));
  }
  return Refuse("num_experts", absl::StrCat(config.num_experts),
                absl::StrCat("at most ", kMaxGemmExperts, " may be on a rank, of ", num_ranks));
}

}  // namespace

RoutedExpertsConfig ExpertsConfig(const MoeLayerConfig& config) {
  RoutedExpertsConfig experts;
  experts.ep.num_experts = config.num_experts;
  experts.ep.topk = config.topk;
  experts.ep.hidden = config.hidden;
  experts.ep.max_tokens_per_rank = config.max_tokens_per_rank;
  experts.ep.dtype = config.dtype;
  experts.ep.strategy = config.strategy;
  experts.ep.placement = config.placement;
  experts.ep.capacity_rows = config.capacity_rows;
  experts.ep.loads = config.loads;
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
  experts.second_format = config.weights;
  experts.second_fp8_rows = config.fp8_rows;
  if (!InfoOf(ExpertWeights(config)).quantizes_rows) experts.first_format = config.weights;
  if (QuantizesRows(config)) {
    experts.ep.dispatch_format = Takes(config.strategy, DispatchFormat::kQuantizedFp8)
                                     ? DispatchFormat::kQuantizedFp8
                                     : DispatchFormat::kFp8;
    experts.ep.scale_group = kGemmScaleGroup;
  }
  experts.swiglu = config.swiglu;
  return experts;
}

RoutedExpertsConfig PhysicalExpertsConfig(const MoeLayerConfig& config) {
  RoutedExpertsConfig experts = ExpertsConfig(config);
  experts.ep = PhysicalConfig(experts.ep);
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
  return FormatOf(config.dtype, config.weights);
}

bool QuantizesRows(const MoeLayerConfig& config) {
  return config.fp8_rows || InfoOf(ExpertWeights(config)).quantizes_rows;
}

WeightFormat PlainWeights(const MoeLayerConfig& config) { return FormatOf(config.dtype); }

absl::Span<const EnumEntry<LayerPath>> EnumTable(LayerPath /*unused*/) {
  static constexpr EnumEntry<LayerPath> kTable[] = {{LayerPath::kAuto, "auto"},
                                                    {LayerPath::kLaunches, "launches"},
                                                    {LayerPath::kDecode, "decode"}};
  return kTable;
}

absl::Span<const EnumEntry<SharedExperts>> EnumTable(SharedExperts /*unused*/) {
  static constexpr EnumEntry<SharedExperts> kTable[] = {{SharedExperts::kAuto, "auto"},
                                                        {SharedExperts::kAfter, "after"},
                                                        {SharedExperts::kBeside, "beside"}};
  return kTable;
}

absl::Status CheckWeights(const MoeLayerConfig& config, const MoeLayerWeights& weights) {
  OCTET_RETURN_IF_ERROR(CheckTensor("router", weights.router, config.num_experts, config.hidden));
  if (!weights.router_bias.empty()) {
    if (config.router.scores == RouterScores::kSparsemixer) {
      return absl::InvalidArgumentError(
          "router_bias is given; with RouterConfig::scores sparsemixer there is none");
    }
    OCTET_RETURN_IF_ERROR(CheckTensor("router_bias", weights.router_bias, 1, config.num_experts));
  }
  if (config.logit_bias) {
    OCTET_RETURN_IF_ERROR(CheckTensor("logit_bias", weights.logit_bias, 1, config.num_experts));
  } else if (!weights.logit_bias.empty()) {
    return absl::InvalidArgumentError("logit_bias is given; MoeLayerConfig::logit_bias is false");
  }
  if (static_cast<int>(weights.experts.size()) != config.num_experts) {
    return absl::InvalidArgumentError(absl::StrCat("experts has ", weights.experts.size(),
                                                   " elements; it must have ", config.num_experts));
  }
  for (int expert = 0; expert < config.num_experts; ++expert) {
    const std::string name = absl::StrCat("experts[", expert, "]");
    const MlpWeights& mlp = weights.experts[static_cast<size_t>(expert)];
    OCTET_RETURN_IF_ERROR(CheckMlp(name, mlp, config.hidden, config.intermediate));
    OCTET_RETURN_IF_ERROR(CheckBiases(config, name, mlp));
  }
  return CheckShared(config, weights);
}

absl::Status Validate(const MoeLayerConfig& config, int num_ranks) {
  OCTET_RETURN_IF_ERROR(CheckFusion(config));
  if (config.path == LayerPath::kDecode) OCTET_RETURN_IF_ERROR(CheckDecodes(config, num_ranks));
  OCTET_RETURN_IF_ERROR(Validate(ExpertsConfig(config).ep, num_ranks));
  OCTET_RETURN_IF_ERROR(CheckCapacity(config, num_ranks));
  return CheckLayer(config, num_ranks);
}

absl::Status Validate(const MoeLayerConfig& config, const NodesOfRanks& nodes) {
  if (nodes.num_nodes == 1) return Validate(config, nodes.ranks_per_node);
  if (config.path == LayerPath::kDecode) {
    return Refuse("path", EnumName(config.path), "over several nodes it must be auto or launches");
  }
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
      ", ", EnumName(config.dtype), ", weights ", EnumName(config.weights), ", fp8_rows ",
      yes_or_no(config.fp8_rows), ", strategy ", EnumName(config.strategy), ", fusion ",
      EnumName(config.fusion), ", path ", EnumName(config.path));
  absl::StrAppend(&text, ", shared_intermediate ", config.shared_intermediate, ", shared_gate ",
                  yes_or_no(config.shared_gate), ", router ", EnumName(router.scores), " groups ",
                  router.groups, " top_groups ", router.top_groups, " ",
                  EnumName(router.group_score), " normalize ", yes_or_no(router.normalize),
                  " epsilon ", router.normalize_epsilon, " scaling ", router.scaling, " jitter ",
                  router.jitter);
  absl::StrAppend(&text, ", logit_bias ", yes_or_no(config.logit_bias), ", expert_biases ",
                  yes_or_no(config.expert_biases), ", swiglu ", config.swiglu.alpha, " ",
                  config.swiglu.limit, " ", config.swiglu.up_offset, ", weighs_input ",
                  yes_or_no(config.weighs_input));
  absl::StrAppend(&text, ", placement ", DigestOf(config.placement), ", rows ",
                  EnumName(options.rails.rows), ", chunk_tokens ", options.rails.chunk_tokens,
                  ", intranode_order ", EnumName(options.rails.intranode_order), ", shares memory ",
                  yes_or_no(options.share != nullptr));
  return text;
}

}  // namespace octet
