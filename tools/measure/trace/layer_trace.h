// Runs a layer in one launch whose blocks record their phases, and the same layer without
// recording.
#ifndef OCTET_TOOLS_MEASURE_TRACE_LAYER_TRACE_H_
#define OCTET_TOOLS_MEASURE_TRACE_LAYER_TRACE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "octet/moe_layer.h"
#include "octet/node.h"
#include "octet/trace.h"
#include "tools/check/verify_layer.h"
#include "tools/measure/layer/layer_run.h"
#include "tools/support/statistics.h"
#include "tools/workload/layer_tokens.h"

namespace octet {

// A phase on the rank that ended last.
struct LayerPhase {
  absl::string_view name;
  double median_us = 0;   // of a block
  double longest_us = 0;  // likewise
  double end_us = 0;      // of the last block, from the first block's start
};

// `slices`: of one call, with the tags of DecodeTraceTags(); those that were recorded, in their
// order.
std::vector<LayerPhase> LayerPhases(absl::Span<const TraceSlice> slices);

struct LayerTraceResult {
  MoeLayerConfig config;  // with every choice made
  int calls = 0;          // of each kind
  Statistics plain_us;    // in turn with traced ones, of the slowest rank
  Statistics traced_us;
  std::vector<LayerPhase> phases;  // medians over the traced calls
  uint64_t events_dropped = 0;
  LayerCheck check;  // of what the last traced call has computed
};

// Warms up and makes options.iters calls of each kind, with the caches emptied before each, and
// writes the slices of the last traced one to `path`. options.config.path becomes kDecode. Errors
// are those of MoeLayer.
absl::StatusOr<LayerTraceResult> TraceLayer(Node& node, const LayerRunOptions& options,
                                            const MoeLayerWeights& weights,
                                            const LayerTokens& tokens, const std::string& path);

// Returns a table, under lines that begin with '#'.
std::string LayerTraceText(const LayerTraceResult& result);

}  // namespace octet

#endif  // OCTET_TOOLS_MEASURE_TRACE_LAYER_TRACE_H_
