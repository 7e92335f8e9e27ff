// Moves a layer's experts between its calls, and checks the calls: `octet layer --apply`.
#ifndef OCTET_TOOLS_MEASURE_LAYER_LAYER_MOVE_H_
#define OCTET_TOOLS_MEASURE_LAYER_LAYER_MOVE_H_

#include "absl/status/statusor.h"
#include "octet/moe_layer.h"
#include "octet/node.h"
#include "octet/placement.h"
#include "tools/step/layer_calls.h"
#include "tools/workload/layer_tokens.h"

namespace octet {

struct LayerMove {
  Placement placement;  // that is in force since
  int copies = 0;       // of experts
  LayerOutput output;   // of a call that went by it
};

// Not during Run. Calls the layer while its experts move, which must give the bits of `before`, and
// once they have. kDataLoss if it does not; the errors of MoeLayer::Prepare and Apply.
absl::StatusOr<LayerMove> MoveExperts(Node& node, MoeLayer& layer, LayerCalls& calls,
                                      const LayerOutput& before, const Placement& placement);

}  // namespace octet

#endif  // OCTET_TOOLS_MEASURE_LAYER_LAYER_MOVE_H_
