// Runs a whole layer on the GPUs, checks it and times it: what `octet layer` does.
#ifndef OCTET_TOOLS_MEASURE_LAYER_RUN_H_
#define OCTET_TOOLS_MEASURE_LAYER_RUN_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "octet/moe_layer.h"
#include "octet/moe_weights.h"
#include "octet/node.h"
#include "tools/check/verify_layer.h"
#include "tools/measure/layer_work.h"
#include "tools/support/progress.h"
#include "tools/workload/layer_tokens.h"

namespace octet {

struct LayerRunOptions {
  MoeLayerConfig config;
  int iters = 20;      // timed calls; 0: none
  int warmup = 2;      // calls before each series
  bool graph = false;  // also time replays of a captured call
  bool check = true;
};

// A part of the layer, or all of it.
struct LayerRow {
  std::string what;
  std::vector<double> us = {};              // of each call: the slowest rank's
  std::optional<double> tflops = {};        // of a GPU, in the median
  std::optional<double> weights_tbps = {};  // weights of experts that have rows, likewise
};

struct LayerReport {
  MoeLayerConfig config;  // with every choice made
  int num_ranks = 0;
  int tokens = 0;  // of all ranks
  double load_seconds = 0;
  LayerWork work;
  LayerLimits limits;  // measured if calls are timed
  LayerOutput output;
  std::optional<LayerCheck> check;
  std::vector<LayerRow> rows;  // the parts, then the layer, then its graph
};

// Creates the layer on `node`, loads `weights` and calls it for `tokens`, which are split over its
// ranks. Timed calls begin with the caches emptied, in series of at most 12 of the parts, the whole
// layer and its graph in turns, before each of which the GPUs idle for 0.2 s, since power limits
// what matrix units reach. Errors are those of MoeLayer.
absl::StatusOr<LayerReport> RunLayer(Node& node, const LayerRunOptions& options,
                                     const MoeLayerWeights& weights, const LayerTokens& tokens,
                                     const Progress& progress);

}  // namespace octet

#endif  // OCTET_TOOLS_MEASURE_LAYER_RUN_H_
