// config.json of a model folder: what its layers with experts are like.
#ifndef OCTET_KERNELS_MODEL_MODEL_CONFIG_H_
#define OCTET_KERNELS_MODEL_MODEL_CONFIG_H_

#include <limits>
#include <set>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "octet/model_folder.h"
#include "octet/moe_layer.h"

namespace octet {

// The layers that have experts, which are all alike.
struct ExpertLayers {
  MoeLayerConfig config;  // `weights` is left as it is: the tensors tell
  // Layer l has experts if first <= l <= last, (l + phase) % period == 0 and it is not in `dense`;
  // or if it is in `only`, where that is not empty.
  int first = 0;
  int last = std::numeric_limits<int>::max();
  int period = 1;
  int phase = 0;
  std::set<int> dense;
  std::set<int> only;

  bool Contains(int layer) const;
};

struct ModelConfig {
  std::string origin;  // the text's name in errors
  ModelFamily family = ModelFamily::kMixtral;
  int num_layers = 0;
  absl::StatusOr<ExpertLayers> expert_layers = absl::UnknownError("not read");

  // The text of a config.json. All but sizes and numbers of experts may be missing where
  // `transformers` has a default. null is what it is there: false for a truth value, none for
  // n_shared_experts, refused for a number that has a default, and otherwise as if the member were
  // missing. Members that change nothing are not looked at. Returns
  // kUnimplemented for an unknown model_type, naming those known, and kInvalidArgument for what is
  // no JSON object or has no model_type or number of layers. What is wrong with other members is in
  // expert_layers.
  static absl::StatusOr<ModelConfig> Parse(absl::string_view text, absl::string_view origin);

  // Returns the configuration of a layer, or kInvalidArgument if it does not exist or has no
  // experts, or for what is wrong with the members.
  absl::StatusOr<MoeLayerConfig> LayerConfig(int layer) const;
};

}  // namespace octet

#endif  // OCTET_KERNELS_MODEL_MODEL_CONFIG_H_
