// What `octet layer` prints and writes.
#ifndef OCTET_TOOLS_REPORT_LAYER_REPORT_H_
#define OCTET_TOOLS_REPORT_LAYER_REPORT_H_

#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "octet/topology.h"
#include "tools/measure/layer/layer_run.h"
#include "tools/report/json_parts.h"

namespace octet {

// `what`: the model and its layer, or the family.
std::string LayerTable(const Topology& topology, absl::string_view what, const LayerReport& report);
// `nodes`: NodesToJson.
std::string LayerJson(const Topology& topology, absl::string_view what, const LayerReport& report,
                      const Json& nodes);

// Writes y [leading..., H] as float32.
absl::Status WriteLayerOutput(const std::string& path, const LayerReport& report,
                              absl::Span<const int64_t> leading);
// Writes x, logits, topk_idx, topk_weights and y of all ranks' tokens in order (docs/formats.md).
absl::Status WriteLayerDump(const std::string& folder, const LayerReport& report);

}  // namespace octet

#endif  // OCTET_TOOLS_REPORT_LAYER_REPORT_H_
