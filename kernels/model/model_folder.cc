#include "octet/model_folder.h"

#include <cstddef>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "kernels/model/layer_tensors.h"
#include "kernels/model/model_config.h"
#include "kernels/model/model_tensors.h"
#include "runtime/base/status_macros.h"

namespace octet {
namespace {

constexpr size_t kMostConfigBytes = size_t{1} << 20;

// A tensor's name in checkpoints, and the one that `transformers` 5 has in memory where that is not
// the same.
struct Either {
  absl::string_view name = "";
  absl::string_view in_memory = "";
};

// How a family calls the tensors of a layer.
struct Names {
  absl::string_view block = "mlp";
  absl::string_view fused_block = "mlp";  // where two tensors have all experts
  MlpNames expert = {};
  FusedNames fused = {};
  absl::string_view shared = "shared_experts";
  Either router = {"gate.weight"};
  Either router_bias = {};   // that is added to scores for the choice; empty: none
  bool alternating = false;  // rows of gate and up, in tensors of all experts
};

Names NamesOf(ModelFamily family) {
  constexpr MlpNames kNumbered = {.gate = "w1", .up = "w3", .down = "w2"};
  switch (family) {
    case ModelFamily::kMixtral:
      return {.block = "block_sparse_moe", .expert = kNumbered};
    case ModelFamily::kPhimoe:
      return {.block = "block_sparse_moe",
              .expert = kNumbered,
              .router = {"gate.weight", "router.weight"}};
    case ModelFamily::kMinimaxM2:
      return {.block = "block_sparse_moe",
              .expert = kNumbered,
              .router_bias = {"e_score_correction_bias"}};
    case ModelFamily::kQwen2Moe:
    case ModelFamily::kQwen3Next:
    case ModelFamily::kQwen35MoeText:
      return {.shared = "shared_expert"};
    case ModelFamily::kDeepseekV3:
    case ModelFamily::kGlm4Moe:
    case ModelFamily::kKimiK2:
      return {.router_bias = {"gate.e_score_correction_bias"}};
    case ModelFamily::kGptOss:
      return {.router = {"router.weight"}, .alternating = true};
    case ModelFamily::kGraniteMoe:
      return {.block = "block_sparse_moe",
              .fused_block = "block_sparse_moe",
              .fused = {.gate_up = "input_linear.weight", .down = "output_linear.weight"},
              .router = {"router.layer.weight", "router.weight"}};
    case ModelFamily::kErnie45Moe:
      return {.router_bias = {"moe_statics.e_score_correction_bias",
                              "gate.moe_statics.e_score_correction_bias"}};
    case ModelFamily::kHunyuanV1Moe:
      return {.shared = "shared_mlp", .router = {"gate.wg.weight"}};
    case ModelFamily::kLlama4Text:
      return {.block = "feed_forward",
              .fused_block = "feed_forward",
              .shared = "shared_expert",
              .router = {"router.weight"}};
    case ModelFamily::kQwen3Moe:
    case ModelFamily::kOlmoe:
    case ModelFamily::kDeepseekV2:
      break;
  }
  return {};
}

std::string ExpertPrefix(int expert) { return absl::StrCat("experts.", expert); }

class MappedModelFolder final : public ModelFolder {
 public:
  MappedModelFolder(std::string folder, ModelConfig config, ModelTensors tensors)
      : folder_(std::move(folder)),
        config_(std::move(config)),
        names_(NamesOf(config_.family)),
        tensors_(std::move(tensors)) {}

  ModelFamily family() const override { return config_.family; }
  int num_layers() const override { return config_.num_layers; }

  absl::StatusOr<MoeLayerConfig> LayerConfig(int layer) const override {
    OCTET_ASSIGN_OR_RETURN(MoeLayerConfig config, config_.LayerConfig(layer));
    const FusedNames fused = Fused(layer);
    if (names_.alternating && Tensors(layer).Has(absl::StrCat(fused.gate_up, kMxfp4Blocks))) {
      config.weights = GemmFormat::kMxfp4;
      return config;
    }
    const std::string first =
        IsFused(layer) ? std::string(fused.gate_up) : ExpertTensors(0).front();
    config.weights = ProductsOf(Tensors(layer).Format(first));
    return config;
  }

  absl::StatusOr<MoeLayerWeights> Weights(int layer) const override {
    OCTET_ASSIGN_OR_RETURN(const MoeLayerConfig config, LayerConfig(layer));
    const LayerTensors tensors = Tensors(layer);
    MoeLayerWeights weights;
    OCTET_ASSIGN_OR_RETURN(weights.router, tensors.Plain(NameIn(tensors, names_.router),
                                                         config.num_experts, config.hidden));
    if (config.logit_bias) {
      OCTET_ASSIGN_OR_RETURN(weights.logit_bias, tensors.Vector("router.bias", config.num_experts));
    }
    if (!names_.router_bias.name.empty()) {
      OCTET_ASSIGN_OR_RETURN(
          weights.router_bias,
          tensors.Vector(NameIn(tensors, names_.router_bias), config.num_experts));
    }
    OCTET_ASSIGN_OR_RETURN(weights.experts, Experts(config, layer));
    OCTET_RETURN_IF_ERROR(CheckFormat(weights.experts, layer, config.weights));
    if (config.shared_intermediate > 0) {
      OCTET_ASSIGN_OR_RETURN(
          weights.shared,
          tensors.Mlp(names_.shared, MlpNames(),
                      {.hidden = config.hidden, .intermediate = config.shared_intermediate}));
    }
    if (config.shared_gate) {
      OCTET_ASSIGN_OR_RETURN(
          weights.shared_gate,
          tensors.Plain(absl::StrCat(names_.shared, "_gate.weight"), 1, config.hidden));
    }
    OCTET_RETURN_IF_ERROR(CheckNothingElse(weights, layer));
    return weights;
  }

 private:
  LayerTensors TensorsOf(int layer, absl::string_view block) const {
    return {tensors_, folder_, absl::StrCat("layers.", layer, ".", block)};
  }
  LayerTensors Tensors(int layer) const {
    return TensorsOf(layer, IsFused(layer) ? names_.fused_block : names_.block);
  }

  static absl::string_view NameIn(const LayerTensors& tensors, const Either& either) {
    return tensors.Has(either.in_memory) ? either.in_memory : either.name;
  }

  // Returns the names of the two tensors that have the weights of all experts, if they do.
  FusedNames Fused(int layer) const {
    const LayerTensors tensors = TensorsOf(layer, names_.fused_block);
    constexpr FusedNames kInMemory;
    const bool in_memory = tensors.Has(kInMemory.gate_up) || tensors.Has(kInMemory.down);
    return in_memory ? kInMemory : names_.fused;
  }
  // Whether two tensors have the weights of all experts.
  bool IsFused(int layer) const {
    const LayerTensors tensors = TensorsOf(layer, names_.fused_block);
    const FusedNames fused = Fused(layer);
    return tensors.Has(fused.gate_up) || tensors.Has(fused.down);
  }

  // Returns the names of an expert's own tensors.
  std::vector<std::string> ExpertTensors(int expert) const {
    std::vector<std::string> names;
    for (const absl::string_view name :
         {names_.expert.gate, names_.expert.up, names_.expert.down}) {
      names.push_back(absl::StrCat(ExpertPrefix(expert), ".", name, ".weight"));
    }
    return names;
  }

  absl::StatusOr<std::vector<MlpWeights>> Experts(const MoeLayerConfig& config, int layer) const {
    const LayerTensors tensors = TensorsOf(layer, names_.block);
    const MlpSizes sizes = {.hidden = config.hidden, .intermediate = config.intermediate};
    if (names_.alternating) return tensors.AlternatingExperts(config.num_experts, sizes);
    OCTET_RETURN_IF_ERROR(CheckForm(config, layer));
    if (IsFused(layer)) {
      return Tensors(layer).RoutedExperts(config.num_experts, sizes, Fused(layer));
    }
    std::vector<MlpWeights> experts;
    for (int expert = 0; expert < config.num_experts; ++expert) {
      OCTET_ASSIGN_OR_RETURN(const MlpWeights mlp,
                             tensors.Mlp(ExpertPrefix(expert), names_.expert, sizes));
      experts.push_back(mlp);
    }
    return experts;
  }

  // Experts have tensors of their own, or two tensors have them all.
  absl::Status CheckForm(const MoeLayerConfig& config, int layer) const {
    const LayerTensors own = TensorsOf(layer, names_.block);
    const LayerTensors fused = TensorsOf(layer, names_.fused_block);
    const FusedNames names = Fused(layer);
    const absl::string_view all = fused.Has(names.gate_up) ? names.gate_up : names.down;
    for (int expert = 0; expert < config.num_experts; ++expert) {
      for (const std::string& name : ExpertTensors(expert)) {
        if (!own.HasMatrix(name)) continue;
        if (!IsFused(layer)) return absl::OkStatus();
        return absl::InvalidArgumentError(
            absl::StrCat(folder_, " has both tensor ", fused.Quoted(all), " of all experts and ",
                         own.Quoted(name), " of one; a layer must have one form of them"));
      }
    }
    if (IsFused(layer)) return absl::OkStatus();
    OCTET_RETURN_IF_ERROR(own.WhyMissing(ExpertTensors(0).front()));
    OCTET_RETURN_IF_ERROR(fused.WhyMissing(names.gate_up));
    return absl::NotFoundError(absl::StrCat(folder_, " has neither tensor ",
                                            own.Quoted(ExpertTensors(0).front()), " nor ",
                                            fused.Quoted(names.gate_up)));
  }

  // The layer has no other tensors than `weights`, such as biases.
  absl::Status CheckNothingElse(const MoeLayerWeights& weights, int layer) const {
    std::set<const std::byte*> known;
    const auto add = [&known](const HostTensor& tensor) {
      known.insert({tensor.data, tensor.scales});
    };
    const auto add_mlp = [&add](const MlpWeights& mlp) {
      for (const HostTensor* const tensor :
           {&mlp.gate, &mlp.up, &mlp.down, &mlp.gate_bias, &mlp.up_bias, &mlp.down_bias}) {
        add(*tensor);
      }
    };
    add(weights.router);
    add(weights.router_bias);
    add(weights.logit_bias);
    add(weights.shared_gate);
    add_mlp(weights.shared);
    for (const MlpWeights& expert : weights.experts) add_mlp(expert);
    OCTET_RETURN_IF_ERROR(TensorsOf(layer, names_.block).CheckAllKnown(known));
    return TensorsOf(layer, names_.fused_block).CheckAllKnown(known);
  }

  // All experts' weights have scales of one format, or none has any.
  absl::Status CheckFormat(const std::vector<MlpWeights>& experts, int layer,
                           GemmFormat format) const {
    for (size_t expert = 0; expert < experts.size(); ++expert) {
      const MlpWeights& mlp = experts[expert];
      for (const HostTensor* const tensor : {&mlp.gate, &mlp.up, &mlp.down}) {
        const GemmFormat own = ProductsOf(tensor->format());
        if (own == format) continue;
        const bool scaled = format != GemmFormat::kSame;
        return absl::InvalidArgumentError(absl::StrCat(
            folder_, ": layer ", layer, ": weights of expert ", expert, " are ",
            EnumName(tensor->type),
            own == GemmFormat::kSame && tensor->scales != nullptr ? " with a scale for each row"
                                                                  : "",
            ", and others are ", scaled ? "" : "not ", EnumName(scaled ? format : own),
            "; all must be, or none"));
      }
    }
    return absl::OkStatus();
  }

  const std::string folder_;
  const ModelConfig config_;
  const Names names_;
  const ModelTensors tensors_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<ModelFolder>> ModelFolder::Open(const std::string& folder) {
  const std::string path = absl::StrCat(folder, "/config.json");
  OCTET_ASSIGN_OR_RETURN(const std::string text, ReadText(path, kMostConfigBytes));
  OCTET_ASSIGN_OR_RETURN(ModelConfig config, ModelConfig::Parse(text, path));
  OCTET_ASSIGN_OR_RETURN(ModelTensors tensors, ModelTensors::Open(folder));
  return std::make_unique<MappedModelFolder>(folder, std::move(config), std::move(tensors));
}

}  // namespace octet
