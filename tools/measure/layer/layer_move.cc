#include "tools/measure/layer/layer_move.h"

#include <cstddef>

#include "absl/status/status.h"
#include "runtime/base/status_macros.h"

namespace octet {

absl::StatusOr<LayerMove> MoveExperts(Node& node, MoeLayer& layer, LayerCalls& calls,
                                      const LayerOutput& before, const Placement& placement) {
  LayerMove move;
  Placement from;
  OCTET_RETURN_IF_ERROR(node.Run([&](Rank& rank) -> absl::Status {
    if (rank.rank() == 0) from = layer.PlacementOf(rank);
    OCTET_RETURN_IF_ERROR(layer.Prepare(rank, placement, 0));
    return calls.Call(rank);
  }));
  OCTET_ASSIGN_OR_RETURN(const LayerOutput beside, calls.Read());
  if (beside.y != before.y) {
    return absl::DataLossError("a call beside experts that move has given different results");
  }
  OCTET_RETURN_IF_ERROR(node.Run([&](Rank& rank) -> absl::Status {
    OCTET_RETURN_IF_ERROR(layer.Apply(rank));
    if (rank.rank() == 0) move.placement = layer.PlacementOf(rank);
    return calls.Call(rank);
  }));
  OCTET_ASSIGN_OR_RETURN(move.output, calls.Read());
  for (size_t i = 0; i < from.slots().size(); ++i) {
    const int32_t expert = move.placement.slots()[i];
    if (expert != Placement::kFreeSlot && expert != from.slots()[i]) ++move.copies;
  }
  return move;
}

}  // namespace octet
