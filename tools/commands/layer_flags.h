// The flags of `octet layer`.
#ifndef OCTET_TOOLS_COMMANDS_LAYER_FLAGS_H_
#define OCTET_TOOLS_COMMANDS_LAYER_FLAGS_H_

#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "octet/model_folder.h"
#include "octet/moe_layer.h"
#include "tools/commands/command_line.h"
#include "tools/measure/layer/layer_run.h"
#include "tools/step/run_spec.h"

namespace octet {

struct LayerFlags {
  // The folder and the layer; or, if `model` is empty, a family, and what its shape has otherwise.
  std::string model;
  int layer = 0;
  bool all = false;  // all of the folder's layers with experts, one after the other
  ModelFamily family = ModelFamily::kQwen3Moe;
  std::optional<int> experts, topk, hidden, intermediate, shared_experts;
  std::string input;  // empty: random tokens, `tokens` of each rank
  int tokens = 16;
  std::string weights;  // the name of their type; empty: the folder's
  std::vector<std::string> contenders;
  std::vector<LayerPath> paths = {LayerPath::kAuto};  // run one after the other
  std::string output;                                 // file to write; empty: none
  std::string apply;                                  // file of a placement; empty: none
  double capacity = 0;      // MoeLayerConfig::capacity_rows, in EvenRows; 0: all rows
  bool memory = false;      // list the memory instead of running the layer
  bool statistics = false;  // print the rows of each expert
  std::string loads;        // file for them; empty: none
  LayerRunOptions layer_run;
  // Ranks, rails, seed, timeout and files, which steps have, too. The layer's configuration is in
  // layer_run.config.
  RunSpec run;
};

void AddLayerFlags(CommandLine& line, LayerFlags& flags);

// Completes layer_run, whose path is the first one, and the ranks. `num_gpus`: the ranks if --ranks
// does not say how many; `emulated`: shapes that are not given are small instead of those of the
// family's model. Returns kInvalidArgument with one sentence.
absl::Status ResolveLayer(const CommandLine& line, int num_gpus, bool emulated, LayerFlags& flags);

// Takes from `asked` what the flags decide of any layer.
void TakeChoices(const MoeLayerConfig& asked, MoeLayerConfig& config);

// Sets the type of a layer's weights to LayerFlags::weights. Returns kInvalidArgument if that is a
// 16-bit type, and not the layer's.
absl::Status ChooseWeights(absl::string_view weights, MoeLayerConfig& config);

}  // namespace octet

#endif  // OCTET_TOOLS_COMMANDS_LAYER_FLAGS_H_
