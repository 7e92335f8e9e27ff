// The flags of `octet layer`.
#ifndef OCTET_TOOLS_COMMANDS_LAYER_OPTIONS_H_
#define OCTET_TOOLS_COMMANDS_LAYER_OPTIONS_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "octet/domain.h"
#include "octet/model_folder.h"
#include "octet/moe_layer.h"
#include "tools/commands/command_line.h"
#include "tools/measure/layer/layer_run.h"

namespace octet {

struct LayerOptions {
  // The folder and the layer; or, if `model` is empty, a family and the shape in run.config.
  std::string model;
  int layer = 0;
  ModelFamily family = ModelFamily::kQwen3Moe;
  std::string input;  // empty: random tokens, `tokens` of each rank
  int tokens = 0;
  std::string weights;  // the name of their type; empty: the folder's
  int num_ranks = 0;    // of each node
  RailTransport transport = RailTransport::kAuto;
  absl::Duration timeout;
  uint64_t seed = 0;
  LayerRunOptions run;
  std::string output, dump, json;  // files to write; empty: none
};

absl::Span<const absl::string_view> LayerFlags();
absl::Span<const FlagHelp> LayerFlagHelp();

// Returns kInvalidArgument with one sentence. `num_gpus`: the ranks if --ranks does not say how
// many; `emulated`: shapes that are not given are small instead of those of the family's model.
absl::StatusOr<LayerOptions> ParseLayerOptions(const CommandLine& line, int num_gpus,
                                               bool emulated);

// Sets the type of a layer's weights to LayerOptions::weights. Returns kInvalidArgument if that is
// a 16-bit type, and not the layer's.
absl::Status ChooseWeights(absl::string_view weights, MoeLayerConfig& config);

}  // namespace octet

#endif  // OCTET_TOOLS_COMMANDS_LAYER_OPTIONS_H_
