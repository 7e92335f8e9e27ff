#include "kernels/model/model_config.h"

#include <cstdint>
#include <limits>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "kernels/model/bounded_json.h"
#include "kernels/model/json_reader.h"
#include "kernels/model/quantization_config.h"
#include "runtime/base/status_macros.h"

namespace octet {
namespace {

constexpr int kMostInt = std::numeric_limits<int>::max();

// Models that see images, too, which have that of the text in a member.
constexpr absl::string_view kWithText[] = {"llama4", "qwen3_5_moe"};
constexpr absl::string_view kTextConfig = "text_config";

using Reader = JsonReader;

// DeepSeek's models add this to the sum that weights are divided by.
constexpr float kDeepseekEpsilon = 1e-20F;

// Reads what Qwen and OLMoE have in common.
absl::Status ReadSoftmaxRouter(const Reader& reader, bool normalize, MoeLayerConfig& config) {
  config.router.scores = RouterScores::kSoftmax;
  OCTET_ASSIGN_OR_RETURN(config.router.normalize, reader.Bool("norm_topk_prob", normalize));
  return absl::OkStatus();
}

absl::StatusOr<ExpertLayers> ReadMixtral(const Reader& reader) {
  ExpertLayers layers;
  MoeLayerConfig& config = layers.config;
  OCTET_ASSIGN_OR_RETURN(config.num_experts, reader.Natural("num_local_experts", 1));
  OCTET_ASSIGN_OR_RETURN(config.intermediate, reader.Natural("intermediate_size", 1));
  config.router.normalize = true;
  return layers;
}

// As Mixtral, but for the router. `transformers` has a bias whatever config.json says.
absl::StatusOr<ExpertLayers> ReadMinimax(const Reader& reader) {
  OCTET_RETURN_IF_ERROR(reader.Only("scoring_func", "sigmoid"));
  OCTET_ASSIGN_OR_RETURN(const bool bias, reader.Bool("use_routing_bias", true));
  if (!bias) return reader.Unsupported("use_routing_bias", false, "true");
  OCTET_ASSIGN_OR_RETURN(ExpertLayers layers, ReadMixtral(reader));
  layers.config.router.scores = RouterScores::kSigmoid;
  return layers;
}

// As Mixtral, but for the router. `transformers` chooses two experts whatever num_experts_per_tok
// is.
absl::StatusOr<ExpertLayers> ReadPhimoe(const Reader& reader) {
  constexpr float kJitter = 0.01F;
  OCTET_ASSIGN_OR_RETURN(ExpertLayers layers, ReadMixtral(reader));
  RouterConfig& router = layers.config.router;
  router = {.scores = RouterScores::kSparsemixer};
  OCTET_ASSIGN_OR_RETURN(router.jitter, reader.Float("router_jitter_noise", kJitter));
  if (router.jitter < 0) {
    return reader.Unsupported("router_jitter_noise", router.jitter, "at least 0");
  }
  OCTET_ASSIGN_OR_RETURN(const int topk, reader.Natural("num_experts_per_tok", 1));
  if (topk != 2) return reader.Unsupported("num_experts_per_tok", topk, "2");
  return layers;
}

// Newer versions of `transformers` write num_local_experts for Qwen3-MoE.
absl::StatusOr<int> ReadNumExperts(const Reader& reader, int least) {
  const bool other = !reader.Has("num_experts") && reader.Has("num_local_experts");
  return reader.Natural(other ? "num_local_experts" : "num_experts", least);
}

absl::StatusOr<ExpertLayers> ReadOlmoe(const Reader& reader) {
  ExpertLayers layers;
  OCTET_ASSIGN_OR_RETURN(layers.config.num_experts, ReadNumExperts(reader, 1));
  OCTET_ASSIGN_OR_RETURN(layers.config.intermediate, reader.Natural("intermediate_size", 1));
  OCTET_RETURN_IF_ERROR(ReadSoftmaxRouter(reader, false, layers.config));
  return layers;
}

// `normalize`: unless the file says otherwise.
absl::StatusOr<ExpertLayers> ReadQwen(const Reader& reader, bool shared, bool normalize) {
  ExpertLayers layers;
  MoeLayerConfig& config = layers.config;
  OCTET_ASSIGN_OR_RETURN(config.num_experts, ReadNumExperts(reader, 0));
  OCTET_ASSIGN_OR_RETURN(config.intermediate, reader.Natural("moe_intermediate_size", 1));
  if (shared) {
    OCTET_ASSIGN_OR_RETURN(config.shared_intermediate,
                           reader.Natural("shared_expert_intermediate_size", 1));
    config.shared_gate = true;
  }
  OCTET_RETURN_IF_ERROR(ReadSoftmaxRouter(reader, normalize, config));
  OCTET_ASSIGN_OR_RETURN(layers.period, reader.Natural("decoder_sparse_step", 1, 1));
  layers.phase = 1;
  OCTET_ASSIGN_OR_RETURN(const std::vector<int> dense, reader.Naturals("mlp_only_layers"));
  layers.dense.insert(dense.begin(), dense.end());
  return layers;
}

// As Qwen3-Next, but that all layers have experts, and weights are normalised, whatever the file
// says.
absl::StatusOr<ExpertLayers> ReadQwen35(const Reader& reader) {
  OCTET_ASSIGN_OR_RETURN(const ExpertLayers next,
                         ReadQwen(reader, /*shared=*/true, /*normalize=*/true));
  ExpertLayers layers;
  layers.config = next.config;
  layers.config.router.normalize = true;
  return layers;
}

// The numbers that DeepSeek-V3 and its relatives have unless the file says otherwise.
struct NoauxDefaults {
  int groups;
  int top_groups;
  float scaling;
  int first;  // layer with experts
};
constexpr NoauxDefaults kDeepseekV3Defaults = {
    .groups = 8, .top_groups = 4, .scaling = 2.5F, .first = 3};
constexpr NoauxDefaults kGlm4Defaults = {.groups = 1, .top_groups = 1, .scaling = 1.0F, .first = 1};

absl::Status ReadGroups(const Reader& reader, std::optional<int> groups,
                        std::optional<int> top_groups, RouterConfig& router) {
  OCTET_ASSIGN_OR_RETURN(router.groups, groups.has_value() ? reader.Natural("n_group", 1, *groups)
                                                           : reader.Natural("n_group", 1));
  OCTET_ASSIGN_OR_RETURN(router.top_groups, top_groups.has_value()
                                                ? reader.Natural("topk_group", 1, *top_groups)
                                                : reader.Natural("topk_group", 1));
  return absl::OkStatus();
}

absl::Status ReadDeepseekV2Router(const Reader& reader, RouterConfig& router) {
  OCTET_RETURN_IF_ERROR(reader.Only("scoring_func", "softmax"));
  router.scores = RouterScores::kSoftmax;
  OCTET_ASSIGN_OR_RETURN(const std::string method, reader.String("topk_method", "greedy"));
  if (method == "group_limited_greedy") {
    OCTET_RETURN_IF_ERROR(ReadGroups(reader, std::nullopt, std::nullopt, router));
    router.group_score = GroupScore::kMaximum;
  } else if (method != "greedy") {
    return reader.Unsupported("topk_method", method, "'greedy' or 'group_limited_greedy'");
  }
  OCTET_ASSIGN_OR_RETURN(router.normalize, reader.Bool("norm_topk_prob", false));
  OCTET_ASSIGN_OR_RETURN(router.scaling, reader.Float("routed_scaling_factor", 1.0F));
  return absl::OkStatus();
}

absl::Status ReadNoauxRouter(const Reader& reader, const NoauxDefaults& defaults,
                             RouterConfig& router) {
  OCTET_RETURN_IF_ERROR(reader.Only("scoring_func", "sigmoid"));
  OCTET_RETURN_IF_ERROR(reader.Only("topk_method", "noaux_tc"));
  router.scores = RouterScores::kSigmoid;
  router.group_score = GroupScore::kSumOfTwoBest;
  OCTET_RETURN_IF_ERROR(ReadGroups(reader, defaults.groups, defaults.top_groups, router));
  OCTET_ASSIGN_OR_RETURN(router.normalize, reader.Bool("norm_topk_prob", true));
  OCTET_ASSIGN_OR_RETURN(router.scaling, reader.Float("routed_scaling_factor", defaults.scaling));
  return absl::OkStatus();
}

// `noaux`: of DeepSeek-V3 and its relatives; nullptr: DeepSeek-V2.
absl::StatusOr<ExpertLayers> ReadDeepseek(const Reader& reader, const NoauxDefaults* noaux) {
  ExpertLayers layers;
  MoeLayerConfig& config = layers.config;
  OCTET_ASSIGN_OR_RETURN(config.num_experts, reader.Natural("n_routed_experts", 1));
  OCTET_ASSIGN_OR_RETURN(config.intermediate, reader.Natural("moe_intermediate_size", 1));
  int shared = 0;
  if (!reader.IsNull("n_shared_experts")) {
    OCTET_ASSIGN_OR_RETURN(shared, reader.Natural("n_shared_experts", 0, noaux != nullptr ? 1 : 2));
  }
  if (shared > kMostInt / config.intermediate) {
    return reader.Unsupported("n_shared_experts", absl::StrCat(shared), "smaller");
  }
  config.shared_intermediate = shared * config.intermediate;
  // DeepSeek-V3 and its relatives have no biases, whatever their config.json says.
  OCTET_ASSIGN_OR_RETURN(const bool biases, reader.Bool("mlp_bias", false));
  if (biases && noaux == nullptr) {
    return reader.Unsupported("mlp_bias", true, "false: Octet's experts have no biases");
  }
  OCTET_RETURN_IF_ERROR(noaux != nullptr ? ReadNoauxRouter(reader, *noaux, config.router)
                                         : ReadDeepseekV2Router(reader, config.router));
  config.router.normalize_epsilon = config.router.normalize ? kDeepseekEpsilon : 0.0F;
  OCTET_ASSIGN_OR_RETURN(layers.first, reader.Natural("first_k_dense_replace", 0,
                                                      noaux != nullptr ? noaux->first : 0));
  OCTET_ASSIGN_OR_RETURN(layers.period, reader.Natural("moe_layer_freq", 1, 1));
  return layers;
}

// `transformers` has these numbers in its code, and the limit in some versions only in the file.
absl::StatusOr<ExpertLayers> ReadGptOss(const Reader& reader) {
  constexpr float kAlpha = 1.702F;
  constexpr float kLimit = 7.0F;
  ExpertLayers layers;
  MoeLayerConfig& config = layers.config;
  OCTET_ASSIGN_OR_RETURN(config.num_experts, reader.Natural("num_local_experts", 1));
  OCTET_ASSIGN_OR_RETURN(config.intermediate, reader.Natural("intermediate_size", 1));
  OCTET_ASSIGN_OR_RETURN(const float limit, reader.Float("swiglu_limit", kLimit));
  if (limit != kLimit) return reader.Unsupported("swiglu_limit", limit, absl::StrCat(kLimit));
  config.swiglu = {.alpha = kAlpha, .limit = kLimit, .up_offset = 1.0F};
  // A softmax over the chosen experts' logits is one over all, divided by the sum of those chosen.
  config.router.normalize = true;
  config.logit_bias = true;
  config.expert_biases = true;
  return layers;
}

absl::StatusOr<ExpertLayers> ReadErnie(const Reader& reader) {
  ExpertLayers layers;
  MoeLayerConfig& config = layers.config;
  OCTET_ASSIGN_OR_RETURN(config.num_experts, reader.Natural("moe_num_experts", 1));
  OCTET_ASSIGN_OR_RETURN(config.intermediate, reader.Natural("moe_intermediate_size", 1));
  OCTET_ASSIGN_OR_RETURN(const int shared, reader.Natural("moe_num_shared_experts", 0, 2));
  if (shared > kMostInt / config.intermediate) {
    return reader.Unsupported("moe_num_shared_experts", absl::StrCat(shared), "smaller");
  }
  config.shared_intermediate = shared * config.intermediate;
  OCTET_ASSIGN_OR_RETURN(const bool biases, reader.Bool("use_bias", false));
  if (biases) return reader.Unsupported("use_bias", true, "false: these experts have no biases");
  config.router.normalize = true;
  OCTET_ASSIGN_OR_RETURN(layers.first, reader.Natural("moe_layer_start_index", 0, 1));
  OCTET_ASSIGN_OR_RETURN(const float last, reader.Float("moe_layer_end_index", -1));
  constexpr float kMostLayers = 1 << 24;  // of which a float has every number
  if (last >= 0 && last < kMostLayers) layers.last = static_cast<int>(last);  // -1: the last one
  OCTET_ASSIGN_OR_RETURN(layers.period, reader.Natural("moe_layer_interval", 1, 1));
  layers.phase = 1;
  return layers;
}

// Some members are a number, or a list with that of each layer, which must be alike.
absl::StatusOr<int> ReadOfAllLayers(const Reader& reader, absl::string_view member) {
  if (!reader.IsList(member)) return reader.Natural(member, 1);
  OCTET_ASSIGN_OR_RETURN(const std::vector<int> all, reader.Naturals(member));
  if (!all.empty() && all[0] >= 1 && std::set<int>(all.begin(), all.end()).size() == 1) {
    return all[0];
  }
  return reader.Unsupported(member, "a list", "one number, or a list of equal numbers from 1 up");
}

// The shared expert is as large as the others.
absl::StatusOr<ExpertLayers> ReadHunyuan(const Reader& reader) {
  ExpertLayers layers;
  MoeLayerConfig& config = layers.config;
  OCTET_ASSIGN_OR_RETURN(config.num_experts, ReadOfAllLayers(reader, "num_experts"));
  OCTET_ASSIGN_OR_RETURN(config.intermediate, reader.Natural("intermediate_size", 1));
  config.shared_intermediate = config.intermediate;
  config.router.normalize = true;
  return layers;
}

absl::StatusOr<ExpertLayers> ReadLlama4(const Reader& reader) {
  ExpertLayers layers;
  MoeLayerConfig& config = layers.config;
  OCTET_ASSIGN_OR_RETURN(config.num_experts, reader.Natural("num_local_experts", 1));
  OCTET_ASSIGN_OR_RETURN(config.intermediate, reader.Natural("intermediate_size", 1));
  config.shared_intermediate = config.intermediate;
  config.router.scores = RouterScores::kSigmoid;
  config.weighs_input = true;
  OCTET_ASSIGN_OR_RETURN(const int topk, reader.Natural("num_experts_per_tok", 1));
  if (topk != 1) return reader.Unsupported("num_experts_per_tok", topk, "1");
  OCTET_ASSIGN_OR_RETURN(layers.period, reader.Natural("interleave_moe_layer_step", 1, 1));
  layers.phase = 1;
  OCTET_ASSIGN_OR_RETURN(const std::vector<int> only, reader.Naturals("moe_layers"));
  layers.only.insert(only.begin(), only.end());
  return layers;
}

absl::StatusOr<ExpertLayers> ReadFamily(const Reader& reader, ModelFamily family) {
  switch (family) {
    case ModelFamily::kMixtral:
      return ReadMixtral(reader);
    case ModelFamily::kQwen2Moe:
      return ReadQwen(reader, /*shared=*/true, /*normalize=*/false);
    case ModelFamily::kQwen3Moe:
      return ReadQwen(reader, /*shared=*/false, /*normalize=*/false);
    case ModelFamily::kQwen3Next:
      return ReadQwen(reader, /*shared=*/true, /*normalize=*/true);
    case ModelFamily::kQwen35MoeText:
      return ReadQwen35(reader);
    case ModelFamily::kOlmoe:
      return ReadOlmoe(reader);
    case ModelFamily::kDeepseekV2:
      return ReadDeepseek(reader, nullptr);
    case ModelFamily::kGptOss:
      return ReadGptOss(reader);
    case ModelFamily::kGlm4Moe:
      return ReadDeepseek(reader, &kGlm4Defaults);
    case ModelFamily::kMinimaxM2:
      return ReadMinimax(reader);
    case ModelFamily::kGraniteMoe:
      return ReadMixtral(reader);
    case ModelFamily::kErnie45Moe:
      return ReadErnie(reader);
    case ModelFamily::kHunyuanV1Moe:
      return ReadHunyuan(reader);
    case ModelFamily::kLlama4Text:
      return ReadLlama4(reader);
    case ModelFamily::kPhimoe:
      return ReadPhimoe(reader);
    case ModelFamily::kDeepseekV3:
    case ModelFamily::kKimiK2:
      break;
  }
  return ReadDeepseek(reader, &kDeepseekV3Defaults);
}

// Returns how many experts a token chooses.
absl::StatusOr<int> ReadTopk(const Reader& reader, ModelFamily family) {
  if (family == ModelFamily::kErnie45Moe) return reader.Natural("moe_k", 1);
  if (family == ModelFamily::kHunyuanV1Moe) return ReadOfAllLayers(reader, "moe_topk");
  return reader.Natural("num_experts_per_tok", 1);
}

absl::StatusOr<std::string> ReadDType(const Reader& reader, absl::string_view absent) {
  const bool renamed = reader.Has("dtype");  // by newer versions of `transformers`
  return reader.String(renamed ? "dtype" : "torch_dtype", absent);
}

// `whole`: of the file, of which `reader` may be a part.
absl::StatusOr<ExpertLayers> ReadExpertLayers(const Reader& whole, const Reader& reader,
                                              ModelFamily family) {
  OCTET_RETURN_IF_ERROR(reader.Only("hidden_act", "silu"));
  OCTET_RETURN_IF_ERROR(CheckQuantization(whole, family));
  OCTET_ASSIGN_OR_RETURN(ExpertLayers layers, ReadFamily(reader, family));
  MoeLayerConfig& config = layers.config;
  OCTET_ASSIGN_OR_RETURN(config.topk, ReadTopk(reader, family));
  OCTET_ASSIGN_OR_RETURN(config.hidden, reader.Natural("hidden_size", 1));
  OCTET_ASSIGN_OR_RETURN(const std::string outer, ReadDType(whole, "bfloat16"));
  OCTET_ASSIGN_OR_RETURN(const std::string dtype, ReadDType(reader, outer));
  config.dtype = dtype == "float16" ? DType::kFloat16 : DType::kBFloat16;
  return layers;
}

}  // namespace

bool ExpertLayers::Contains(int layer) const {
  if (!only.empty()) return only.contains(layer);
  return config.num_experts > 0 && layer >= first && layer <= last &&
         (int64_t{layer} + phase) % period == 0 && !dense.contains(layer);
}

absl::StatusOr<ModelConfig> ModelConfig::Parse(absl::string_view text, absl::string_view origin) {
  OCTET_ASSIGN_OR_RETURN(const Json json, ParseJsonObject(text, origin));
  const Reader whole(json, origin);
  ModelConfig config;
  config.origin = std::string(origin);
  OCTET_ASSIGN_OR_RETURN(const std::string outer_type, whole.String("model_type"));
  const bool nested = absl::c_linear_search(kWithText, outer_type);
  OCTET_ASSIGN_OR_RETURN(const std::optional<Reader> part,
                         nested ? whole.Object(kTextConfig) : std::optional<Reader>());
  const Reader& reader = part.has_value() ? *part : whole;
  OCTET_ASSIGN_OR_RETURN(const std::string type, reader.String("model_type"));
  const absl::StatusOr<ModelFamily> family = ParseEnum<ModelFamily>("model_type", type);
  if (!family.ok()) {
    return absl::UnimplementedError(absl::StrCat(origin, ": model_type ", Shown(type),
                                                 " is not one of ", EnumNames<ModelFamily>()));
  }
  config.family = *family;
  OCTET_ASSIGN_OR_RETURN(config.num_layers, reader.Natural("num_hidden_layers", 1));
  config.expert_layers = ReadExpertLayers(whole, reader, config.family);
  return config;
}

absl::StatusOr<MoeLayerConfig> ModelConfig::LayerConfig(int layer) const {
  if (layer < 0 || layer >= num_layers) {
    return absl::InvalidArgumentError(
        absl::StrCat(origin, ": there is no layer ", layer, ", only 0 to ", num_layers - 1));
  }
  if (!expert_layers.ok()) return expert_layers.status();
  if (expert_layers->Contains(layer)) return expert_layers->config;
  return absl::InvalidArgumentError(
      absl::StrCat(origin, ": layer ", layer, " is dense, it has no experts; choose one that has"));
}

absl::Span<const EnumEntry<ModelFamily>> EnumTable(ModelFamily /*unused*/) {
  static constexpr EnumEntry<ModelFamily> kTable[] = {
      {ModelFamily::kMixtral, "mixtral"},
      {ModelFamily::kQwen2Moe, "qwen2_moe"},
      {ModelFamily::kQwen3Moe, "qwen3_moe"},
      {ModelFamily::kOlmoe, "olmoe"},
      {ModelFamily::kDeepseekV2, "deepseek_v2"},
      {ModelFamily::kDeepseekV3, "deepseek_v3"},
      {ModelFamily::kGptOss, "gpt_oss"},
      {ModelFamily::kGlm4Moe, "glm4_moe"},
      {ModelFamily::kMinimaxM2, "minimax_m2"},
      {ModelFamily::kQwen3Next, "qwen3_next"},
      {ModelFamily::kKimiK2, "kimi_k2"},
      {ModelFamily::kGraniteMoe, "granitemoe"},
      {ModelFamily::kErnie45Moe, "ernie4_5_moe"},
      {ModelFamily::kHunyuanV1Moe, "hunyuan_v1_moe"},
      {ModelFamily::kLlama4Text, "llama4_text"},
      {ModelFamily::kQwen35MoeText, "qwen3_5_moe_text"},
      {ModelFamily::kPhimoe, "phimoe"}};
  return kTable;
}

}  // namespace octet
