// MoeLayer and ModelFolder in C.
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "kernels/bindings/c/abi.h"
#include "kernels/bindings/c/handles.h"
#include "octet/domain.h"
#include "octet/enum_names.h"
#include "octet/model_folder.h"
#include "octet/moe_layer.h"
#include "octet/moe_weights.h"
#include "octet/octet.h"
#include "octet/placement.h"
#include "octet/router.h"
#include "runtime/base/status_macros.h"

struct octet_layer {
  std::shared_ptr<octet::c::NodeObjects> objects;
  std::unique_ptr<octet::MoeLayer> layer;
};

namespace octet::c {
namespace {

absl::StatusOr<RouterConfig> RouterOf(const octet_layer_config& read) {
  RouterConfig router;
  OCTET_RETURN_IF_ERROR(ReadEnum("router_scores", read.router_scores, &router.scores));
  router.groups = OrOne(read.router_groups);
  router.top_groups = OrOne(read.router_top_groups);
  OCTET_RETURN_IF_ERROR(
      ReadEnum("router_group_score", read.router_group_score, &router.group_score));
  router.normalize = read.router_normalize != 0;
  router.normalize_epsilon = read.router_normalize_epsilon;
  if (read.router_scaling != 0.0F) router.scaling = read.router_scaling;
  router.jitter = read.router_jitter;
  return router;
}

absl::StatusOr<MoeLayerConfig> LayerConfigOf(const octet_layer_config* given, int num_ranks) {
  OCTET_ASSIGN_OR_RETURN(const octet_layer_config read, Read("config", given));
  MoeLayerConfig config;
  config.num_experts = read.num_experts;
  config.topk = read.topk;
  config.hidden = read.hidden;
  config.intermediate = read.intermediate;
  config.shared_intermediate = read.shared_intermediate;
  config.shared_gate = read.shared_gate != 0;
  OCTET_ASSIGN_OR_RETURN(config.router, RouterOf(read));
  config.max_tokens_per_rank = read.max_tokens_per_rank;
  OCTET_RETURN_IF_ERROR(ReadDType("dtype", read.dtype, &config.dtype));
  OCTET_RETURN_IF_ERROR(ReadEnum("weights", read.weights, &config.weights));
  OCTET_RETURN_IF_ERROR(ReadEnum("path", read.path, &config.path));
  OCTET_RETURN_IF_ERROR(ReadEnum("strategy", read.strategy, &config.strategy));
  OCTET_RETURN_IF_ERROR(ReadEnum("fusion", read.fusion, &config.fusion));
  config.max_blocks = read.max_blocks;
  config.link_blocks = read.link_blocks;
  OCTET_RETURN_IF_ERROR(ReadEnum("shared_experts", read.shared_experts, &config.shared_experts));
  config.capacity_rows = read.capacity_rows;
  config.logit_bias = read.logit_bias != 0;
  config.expert_biases = read.expert_biases != 0;
  if (read.swiglu_alpha != 0.0F) config.swiglu.alpha = read.swiglu_alpha;
  if (read.swiglu_limit != 0.0F) config.swiglu.limit = read.swiglu_limit;
  if (read.swiglu_up_offset != 0.0F) config.swiglu.up_offset = read.swiglu_up_offset;
  OCTET_ASSIGN_OR_RETURN(config.placement, PlacementOf({read.placement, read.num_experts, num_ranks,
                                                        read.placement_slots}));
  config.loads = {.count = read.count_loads != 0, .window = read.load_window};
  config.weighs_input = read.weighs_input != 0;
  config.fp8_rows = read.fp8_rows != 0;
  return config;
}

octet_layer_config ConfigOf(const MoeLayerConfig& config) {
  return {.size = sizeof(octet_layer_config),
          .num_experts = config.num_experts,
          .topk = config.topk,
          .hidden = config.hidden,
          .intermediate = config.intermediate,
          .shared_intermediate = config.shared_intermediate,
          .shared_gate = config.shared_gate ? 1 : 0,
          .max_tokens_per_rank = config.max_tokens_per_rank,
          .dtype = CodeOf(config.dtype),
          .weights = static_cast<int32_t>(config.weights),
          .path = static_cast<int32_t>(config.path),
          .strategy = static_cast<int32_t>(config.strategy),
          .fusion = static_cast<int32_t>(config.fusion),
          .max_blocks = config.max_blocks,
          .link_blocks = config.link_blocks,
          .shared_experts = static_cast<int32_t>(config.shared_experts),
          .router_scores = static_cast<int32_t>(config.router.scores),
          .router_groups = config.router.groups,
          .router_top_groups = config.router.top_groups,
          .router_group_score = static_cast<int32_t>(config.router.group_score),
          .router_normalize = config.router.normalize ? 1 : 0,
          .router_normalize_epsilon = config.router.normalize_epsilon,
          .router_scaling = config.router.scaling,
          .capacity_rows = config.capacity_rows,
          .logit_bias = config.logit_bias ? 1 : 0,
          .expert_biases = config.expert_biases ? 1 : 0,
          .swiglu_alpha = config.swiglu.alpha,
          .swiglu_limit = std::isinf(config.swiglu.limit) ? 0.0F : config.swiglu.limit,
          .swiglu_up_offset = config.swiglu.up_offset,
          .placement = config.placement.empty() ? nullptr : config.placement.slots().data(),
          .placement_slots = config.placement.slots_per_rank(),
          .count_loads = config.loads.count ? 1 : 0,
          .load_window = config.loads.window,
          .weighs_input = config.weighs_input ? 1 : 0,
          .fp8_rows = config.fp8_rows ? 1 : 0,
          .router_jitter = config.router.jitter};
}

// Returns kInvalidArgument unless the caller's struct, which may be older, holds what it was given.
absl::Status HoldsAll(absl::string_view name, uint64_t size, bool equal) {
  if (equal) return absl::OkStatus();
  return Refused(absl::StrCat(name, "->size is ", size, ", so it is a struct of an older version, ",
                              "which lacks a member that this layer needs: compile the program ",
                              "with the headers of Octet ", octet_version()));
}

absl::StatusOr<MoeLayerOptions> LayerOptionsOf(const octet_layer_options* given) {
  OCTET_ASSIGN_OR_RETURN(const octet_layer_options read, ReadOptional("options", given));
  MoeLayerOptions options;
  if (read.name != nullptr) options.name = read.name;
  if (read.share != nullptr) options.share = read.share->layer.get();
  options.rails.chunk_tokens = read.rail_chunk_tokens;
  return options;
}

// ---- weights

absl::Status ReadTensor(absl::string_view name, const octet_tensor* given, HostTensor* tensor) {
  if (given == nullptr) return absl::OkStatus();
  OCTET_ASSIGN_OR_RETURN(const octet_tensor read, Read(name, given));
  OCTET_RETURN_IF_ERROR(ReadEnum(absl::StrCat(name, "->type"), read.type, &tensor->type));
  OCTET_RETURN_IF_ERROR(
      ReadEnum(absl::StrCat(name, "->scale_type"), read.scale_type, &tensor->scale_type));
  tensor->rows = read.rows;
  tensor->columns = read.columns;
  tensor->data = static_cast<const std::byte*>(read.data);
  tensor->scales = static_cast<const std::byte*>(read.scales);
  tensor->column_pitch = read.column_pitch;
  tensor->row_step = OrOne(read.row_step);
  tensor->scale_rows = read.scale_rows;
  tensor->scale_columns = read.scale_columns;
  return absl::OkStatus();
}

absl::Status ReadMlp(absl::string_view name, const octet_mlp_weights* given, MlpWeights* mlp) {
  if (given == nullptr) return absl::OkStatus();
  OCTET_ASSIGN_OR_RETURN(const octet_mlp_weights read, Read(name, given));
  struct Member {
    absl::string_view name;
    const octet_tensor* given;
    HostTensor* tensor;
  };
  const Member members[] = {
      {"gate", read.gate, &mlp->gate},          {"up", read.up, &mlp->up},
      {"down", read.down, &mlp->down},          {"gate_bias", read.gate_bias, &mlp->gate_bias},
      {"up_bias", read.up_bias, &mlp->up_bias}, {"down_bias", read.down_bias, &mlp->down_bias}};
  for (const Member& each : members) {
    OCTET_RETURN_IF_ERROR(ReadTensor(absl::StrCat(name, "->", each.name), each.given, each.tensor));
  }
  return absl::OkStatus();
}

// `experts` are an array of the caller's structs, which may be shorter than ours.
absl::Status ReadExperts(const octet_layer_weights& read, std::vector<MlpWeights>* experts) {
  if (read.num_experts <= 0) return absl::OkStatus();
  OCTET_RETURN_IF_ERROR(NotNull({{"weights->experts", read.experts}}));
  if (read.num_experts > kMaxExperts) {
    return Refused(absl::StrCat("weights->num_experts is ", read.num_experts, ", and ", kMaxExperts,
                                " are the most"));
  }
  const auto* bytes = reinterpret_cast<const std::byte*>(read.experts);
  const uint64_t stride = read.experts->size;
  experts->resize(static_cast<size_t>(read.num_experts));
  for (size_t expert = 0; expert < experts->size(); ++expert) {
    OCTET_RETURN_IF_ERROR(ReadMlp(
        absl::StrCat("weights->experts[", expert, "]"),
        reinterpret_cast<const octet_mlp_weights*>(bytes + expert * stride), &(*experts)[expert]));
  }
  return absl::OkStatus();
}

absl::StatusOr<MoeLayerWeights> WeightsOf(const octet_layer_weights* given) {
  OCTET_ASSIGN_OR_RETURN(const octet_layer_weights read, Read("weights", given));
  MoeLayerWeights weights;
  OCTET_RETURN_IF_ERROR(ReadTensor("weights->router", read.router, &weights.router));
  OCTET_RETURN_IF_ERROR(ReadTensor("weights->router_bias", read.router_bias, &weights.router_bias));
  OCTET_RETURN_IF_ERROR(ReadTensor("weights->logit_bias", read.logit_bias, &weights.logit_bias));
  OCTET_RETURN_IF_ERROR(ReadExperts(read, &weights.experts));
  OCTET_RETURN_IF_ERROR(ReadMlp("weights->shared", read.shared, &weights.shared));
  OCTET_RETURN_IF_ERROR(ReadTensor("weights->shared_gate", read.shared_gate, &weights.shared_gate));
  return weights;
}

octet_tensor TensorOf(const HostTensor& tensor) {
  return {.size = sizeof(octet_tensor),
          .type = static_cast<int32_t>(tensor.type),
          .rows = tensor.rows,
          .columns = tensor.columns,
          .scale_type = static_cast<int32_t>(tensor.scale_type),
          .data = tensor.data,
          .scales = tensor.scales,
          .column_pitch = tensor.column_pitch,
          .row_step = tensor.row_step,
          .scale_rows = tensor.scale_rows,
          .scale_columns = tensor.scale_columns};
}

absl::StatusOr<HostTensor> Find(const MoeLayerWeights& weights, int32_t which, int32_t expert) {
  const bool of_expert = (which >= OCTET_EXPERT_GATE && which <= OCTET_EXPERT_DOWN) ||
                         (which >= OCTET_EXPERT_GATE_BIAS && which <= OCTET_EXPERT_DOWN_BIAS);
  if (of_expert && (expert < 0 || static_cast<size_t>(expert) >= weights.experts.size())) {
    return Refused(absl::StrCat("expert is ", expert, ", and the layer has ",
                                weights.experts.size(), " of them"));
  }
  const MlpWeights& mlp = of_expert ? weights.experts[static_cast<size_t>(expert)] : weights.shared;
  switch (which) {
    case OCTET_ROUTER:
      return weights.router;
    case OCTET_ROUTER_BIAS:
      return weights.router_bias;
    case OCTET_EXPERT_GATE:
    case OCTET_SHARED_EXPERT_GATE:
      return mlp.gate;
    case OCTET_EXPERT_UP:
    case OCTET_SHARED_EXPERT_UP:
      return mlp.up;
    case OCTET_EXPERT_DOWN:
    case OCTET_SHARED_EXPERT_DOWN:
      return mlp.down;
    case OCTET_SHARED_GATE:
      return weights.shared_gate;
    case OCTET_LOGIT_BIAS:
      return weights.logit_bias;
    case OCTET_EXPERT_GATE_BIAS:
      return mlp.gate_bias;
    case OCTET_EXPERT_UP_BIAS:
      return mlp.up_bias;
    case OCTET_EXPERT_DOWN_BIAS:
      return mlp.down_bias;
    default:
      return Refused(absl::StrCat("which is ", which, ", and must be one of octet_layer_tensor"));
  }
}

}  // namespace
}  // namespace octet::c

using octet::c::Call;
using octet::c::CheckOut;
using octet::c::NotNull;
using octet::c::Write;

int32_t octet_layer_create(octet_domain* domain, const octet_layer_config* config,
                           const octet_layer_options* options, octet_layer** layer) {
  return Call(__func__, [&]() -> absl::Status {
    OCTET_RETURN_IF_ERROR(NotNull({{"domain", domain}, {"layer", layer}}));
    OCTET_ASSIGN_OR_RETURN(const octet::MoeLayerConfig read,
                           octet::c::LayerConfigOf(config, domain->domain->num_ranks()));
    OCTET_ASSIGN_OR_RETURN(const octet::MoeLayerOptions read_options,
                           octet::c::LayerOptionsOf(options));
    OCTET_ASSIGN_OR_RETURN(std::unique_ptr<octet::MoeLayer> made,
                           octet::MoeLayer::Create(*domain->domain, read, read_options));
    *layer = new octet_layer{domain->objects, std::move(made)};
    return absl::OkStatus();
  });
}

void octet_layer_destroy(octet_layer* layer) { octet::c::Destroy(layer); }

int32_t octet_layer_get_config(const octet_layer* layer, octet_layer_config* config) {
  return Call(__func__, [&]() -> absl::Status {
    OCTET_RETURN_IF_ERROR(NotNull({{"layer", layer}}));
    OCTET_RETURN_IF_ERROR(CheckOut("config", config));
    Write(octet::c::ConfigOf(layer->layer->config()), config);
    return absl::OkStatus();
  });
}

int32_t octet_layer_load(octet_layer* layer, const octet_layer_weights* weights) {
  return Call(__func__, [&]() -> absl::Status {
    OCTET_RETURN_IF_ERROR(NotNull({{"layer", layer}}));
    OCTET_ASSIGN_OR_RETURN(const octet::MoeLayerWeights read, octet::c::WeightsOf(weights));
    return layer->layer->Load(read);
  });
}

int32_t octet_layer_load_model(octet_layer* layer, const octet_model* model, int32_t index) {
  return Call(__func__, [&]() -> absl::Status {
    OCTET_RETURN_IF_ERROR(NotNull({{"layer", layer}, {"model", model}}));
    OCTET_ASSIGN_OR_RETURN(const octet::MoeLayerWeights weights, model->folder->Weights(index));
    return layer->layer->Load(weights);
  });
}

int32_t octet_layer_forward(octet_layer* layer, octet_rank* rank, const void* x, int64_t num_tokens,
                            void* y) {
  return Call(__func__, [&]() -> absl::Status {
    OCTET_RETURN_IF_ERROR(NotNull({{"layer", layer}, {"rank", rank}}));
    OCTET_ASSIGN_OR_RETURN(const int tokens, octet::c::ReadInt("num_tokens", num_tokens));
    return layer->layer->Forward(rank->rank, x, tokens, y);
  });
}

int32_t octet_layer_forward_counted(octet_layer* layer, octet_rank* rank, const void* x,
                                    const int32_t* num_tokens, void* y) {
  return Call(__func__, [&]() -> absl::Status {
    OCTET_RETURN_IF_ERROR(NotNull({{"layer", layer}, {"rank", rank}, {"num_tokens", num_tokens}}));
    return layer->layer->Forward(rank->rank, x, num_tokens, y);
  });
}

int32_t octet_layer_get_routed(const octet_layer* layer, const octet_rank* rank,
                               octet_routed_tokens* routed) {
  return Call(__func__, [&]() -> absl::Status {
    OCTET_RETURN_IF_ERROR(NotNull({{"layer", layer}, {"rank", rank}}));
    OCTET_RETURN_IF_ERROR(CheckOut("routed", routed));
    const octet::RoutedTokens tokens = layer->layer->Routed(rank->rank);
    Write({.size = sizeof(octet_routed_tokens),
           .logits = tokens.logits,
           .stride = tokens.stride,
           .topk_idx = tokens.topk_idx,
           .topk_weights = tokens.topk_weights},
          routed);
    return absl::OkStatus();
  });
}

int32_t octet_layer_loads(const octet_layer* layer, int64_t* rows, int64_t* window) {
  return Call(__func__, [&]() -> absl::Status {
    OCTET_RETURN_IF_ERROR(NotNull({{"layer", layer}}));
    OCTET_ASSIGN_OR_RETURN(const octet::ExpertLoads loads, layer->layer->Loads());
    octet::c::CopyLoads(loads, rows, window);
    return absl::OkStatus();
  });
}

int32_t octet_layer_prepare(octet_layer* layer, octet_rank* rank, const int32_t* placement,
                            int32_t placement_slots, int32_t max_blocks) {
  return Call(__func__, [&]() -> absl::Status {
    OCTET_RETURN_IF_ERROR(NotNull({{"layer", layer}, {"rank", rank}, {"placement", placement}}));
    OCTET_ASSIGN_OR_RETURN(const octet::Placement wanted,
                           octet::c::PlacementOf({placement, layer->layer->config().num_experts,
                                                  rank->rank.num_ranks(), placement_slots}));
    return layer->layer->Prepare(rank->rank, wanted, max_blocks);
  });
}

int32_t octet_layer_apply(octet_layer* layer, octet_rank* rank) {
  return Call(__func__, [&]() -> absl::Status {
    OCTET_RETURN_IF_ERROR(NotNull({{"layer", layer}, {"rank", rank}}));
    return layer->layer->Apply(rank->rank);
  });
}

int32_t octet_layer_get_placement(const octet_layer* layer, const octet_rank* rank,
                                  int32_t* placement) {
  return Call(__func__, [&]() -> absl::Status {
    OCTET_RETURN_IF_ERROR(NotNull({{"layer", layer}, {"rank", rank}, {"placement", placement}}));
    const octet::Placement in_force = layer->layer->PlacementOf(rank->rank);
    absl::c_copy(in_force.slots(), placement);
    return absl::OkStatus();
  });
}

int32_t octet_model_open(const char* folder, octet_model** model) {
  return Call(__func__, [&]() -> absl::Status {
    OCTET_RETURN_IF_ERROR(NotNull({{"folder", folder}, {"model", model}}));
    OCTET_ASSIGN_OR_RETURN(std::unique_ptr<octet::ModelFolder> opened,
                           octet::ModelFolder::Open(folder));
    *model = new octet_model{std::move(opened)};
    return absl::OkStatus();
  });
}

void octet_model_destroy(octet_model* model) { delete model; }

const char* octet_model_family(const octet_model* model) {
  // The name is a literal: a 0 follows.
  return model == nullptr ? "" : octet::EnumName(model->folder->family()).data();
}

int32_t octet_model_num_layers(const octet_model* model, int32_t* num_layers) {
  return Call(__func__, [&]() -> absl::Status {
    OCTET_RETURN_IF_ERROR(NotNull({{"model", model}, {"num_layers", num_layers}}));
    *num_layers = model->folder->num_layers();
    return absl::OkStatus();
  });
}

int32_t octet_model_layer_config(const octet_model* model, int32_t layer,
                                 octet_layer_config* config) {
  return Call(__func__, [&]() -> absl::Status {
    OCTET_RETURN_IF_ERROR(NotNull({{"model", model}}));
    OCTET_RETURN_IF_ERROR(CheckOut("config", config));
    OCTET_ASSIGN_OR_RETURN(const octet::MoeLayerConfig of, model->folder->LayerConfig(layer));
    Write(octet::c::ConfigOf(of), config);
    OCTET_ASSIGN_OR_RETURN(const octet::MoeLayerConfig held,
                           octet::c::LayerConfigOf(config, /*num_ranks=*/1));
    return octet::c::HoldsAll("config", config->size, held == of);
  });
}

int32_t octet_model_tensor(const octet_model* model, int32_t layer, int32_t which, int32_t expert,
                           octet_tensor* tensor) {
  return Call(__func__, [&]() -> absl::Status {
    OCTET_RETURN_IF_ERROR(NotNull({{"model", model}}));
    OCTET_RETURN_IF_ERROR(CheckOut("tensor", tensor));
    OCTET_ASSIGN_OR_RETURN(const octet::MoeLayerConfig of, model->folder->LayerConfig(layer));
    OCTET_ASSIGN_OR_RETURN(const octet::MoeLayerWeights weights, model->folder->Weights(layer));
    OCTET_ASSIGN_OR_RETURN(const octet::HostTensor found, octet::c::Find(weights, which, expert));
    Write(octet::c::TensorOf(found), tensor);
    octet::HostTensor held;
    OCTET_RETURN_IF_ERROR(octet::c::ReadTensor("tensor", tensor, &held));
    return octet::c::HoldsAll("tensor", tensor->size, held == found);
  });
}
