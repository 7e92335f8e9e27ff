// Moves a layer's experts between its calls, and checks the calls: `octet layer --apply`.
#ifndef OCTET_TOOLS_MEASURE_LAYER_LAYER_MOVE_H_
#define OCTET_TOOLS_MEASURE_LAYER_LAYER_MOVE_H_

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "octet/moe_layer.h"
#include "octet/node.h"
#include "octet/placement.h"
#include "tools/step/layer_calls.h"
#include "tools/workload/layer_tokens.h"

namespace octet {

// Times are of the host, on the slowest rank.
struct MoveTimes {
  int copies = 0;              // of experts
  int most_copies = 0;         // that come to one rank in a step, in all steps together
  absl::Duration move;         // from the first MoeLayer::Prepare until all ranks have switched
  absl::Duration call_before;  // the fastest of some calls that are waited for
  absl::Duration call_beside;  // the slowest of some that follow Prepare, and thus met the copies
  absl::Duration mean_before;  // the means of both
  absl::Duration mean_beside;
  int steps = 0;  // of PlanMoves: Prepare and Apply
};

struct LayerMove {
  Placement placement;  // that is in force since
  MoveTimes times;
  LayerOutput output;  // of a call that went by it
};

// The arguments of MoeLayer::Prepare.
struct MoveTarget {
  Placement placement;
  int max_blocks = 0;
};

// Not during Run. Calls the layer while its experts move, which must give the bits of `before`, and
// once they have. kDataLoss if the bits differ; the errors of MoeLayer::Prepare and Apply.
absl::StatusOr<LayerMove> MoveExperts(Node& node, MoeLayer& layer, LayerCalls& calls,
                                      const LayerOutput& before, const MoveTarget& target);

}  // namespace octet

#endif  // OCTET_TOOLS_MEASURE_LAYER_LAYER_MOVE_H_
