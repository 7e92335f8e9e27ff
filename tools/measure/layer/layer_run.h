// Runs a whole layer on the GPUs, checks it and times it: what `octet layer` does.
#ifndef OCTET_TOOLS_MEASURE_LAYER_LAYER_RUN_H_
#define OCTET_TOOLS_MEASURE_LAYER_LAYER_RUN_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "octet/domain.h"
#include "octet/expert_parallel.h"
#include "octet/moe_layer.h"
#include "octet/moe_weights.h"
#include "octet/placement.h"
#include "octet/routed_experts.h"
#include "tools/check/verify_layer.h"
#include "tools/contenders/layer_contender.h"
#include "tools/contenders/left_out_contender.h"
#include "tools/measure/layer/layer_move.h"
#include "tools/measure/layer/layer_work.h"
#include "tools/support/domain.h"
#include "tools/support/progress.h"
#include "tools/workload/layer_tokens.h"

namespace octet {

struct LayerRunOptions {
  MoeLayerConfig config;
  RailOptions rails;                       // with several nodes
  std::vector<LayerLibraries> contenders;  // measured beside the layer; none with several nodes
  std::string contender_platform;          // whose products these use; empty: the node's
  int iters = 20;                          // timed calls; 0: none
  int warmup = 2;                          // calls before each series
  bool graph = false;                      // also time replays of a captured call
  bool check = true;
  Placement apply;       // that the layer's experts move to at the end; empty: they stay
  int apply_blocks = 0;  // the most blocks of the copies; 0: the copy engines make them
  // capacity_rows, as a multiple of EvenRows for the tokens of the run; 0: as `config` says.
  double capacity = 0;
};

// Sets capacity_rows to `capacity` times EvenRows, rounded up, unless that is 0.
void SetCapacity(double capacity, MoeLayerConfig& config);

// A part of the layer, all of it, or all of a contender's.
struct LayerRow {
  std::string what;
  std::vector<double> us = {};              // of each call: the slowest rank's
  std::optional<double> tflops = {};        // of a GPU, in the median
  std::optional<double> weights_tbps = {};  // weights of experts that have rows, likewise
};

// A contender: its calls, of everything but the router, and what they have computed.
struct MeasuredContender {
  LayerRow row;
  std::optional<LayerCheck> check;
};

// Experts that have moved.
struct MovedExperts {
  MoveTimes times;
  double expert_bytes = 0;          // of an expert's weights
  std::optional<LayerCheck> check;  // of a call that follows

  // Returns the rate at the rank to which most copies come, from Prepare to the switch.
  double gbps() const {
    return times.most_copies * expert_bytes / absl::ToDoubleNanoseconds(times.move);
  }
};

struct LayerReport {
  MoeLayerConfig config;  // with every choice made
  int num_nodes = 0;
  int num_ranks = 0;  // of all nodes
  int tokens = 0;     // of all ranks
  double load_seconds = 0;
  LayerWork work;
  LayerLimits limits;                // measured if calls are timed
  LayerOutput output;                // of this node's tokens
  std::vector<int32_t> topk_idx;     // of all ranks' tokens
  std::optional<ExpertLoads> loads;  // of all calls, if they are counted
  std::optional<LayerCheck> check;
  std::vector<LayerRow> rows;  // the parts, then the layer, then its graph
  std::vector<MeasuredContender> contenders;
  std::vector<LeftOutContender> left_out;
  std::optional<MovedExperts> moved;

  // Returns OK, or kDataLoss with the first of the wrong results.
  absl::Status Checked() const;
};

// Collective. Creates the layer, loads `weights` and calls it for `tokens`, which are those of all
// ranks. Every node checks its own; the checks of all nodes are added. Timed calls begin with the
// caches emptied, in series of at most 12 of the parts, the whole layer, its graph and contenders
// in turns, before each of which the GPUs idle for 0.2 s, since power limits what matrix units
// reach. Contenders that cannot be had are left out. Errors are those of MoeLayer and
// LayerContenders::Init.
absl::StatusOr<LayerReport> RunLayer(Domain& domain, const LayerRunOptions& options,
                                     const MoeLayerWeights& weights, const LayerTokens& tokens,
                                     const Progress& progress);

// Collective. Makes report.output that of all ranks' tokens.
absl::Status GatherOutput(Domain& domain, LayerReport& report);

}  // namespace octet

#endif  // OCTET_TOOLS_MEASURE_LAYER_LAYER_RUN_H_
