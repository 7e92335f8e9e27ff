// The built-in division of the work of calls with a product: bench/PERFORMANCE.md.
#ifndef OCTET_KERNELS_FUSED_FUSED_TUNING_H_
#define OCTET_KERNELS_FUSED_FUSED_TUNING_H_

#include "octet/routed_experts.h"

namespace octet::fused {

// Tiles and row_parts depend on the call, send_percent and fill_percent on the tiles
// (ChooseShares), and combine_percent is that of Fusion::kTiles.
inline constexpr FusedTuning kBuiltInTuning = {.combine_percent = 18,
                                               .send_order = SendOrder::kExpert,
                                               .tile_waits = TileWaits::kGroup,
                                               .stages = 2};

}  // namespace octet::fused

#endif  // OCTET_KERNELS_FUSED_FUSED_TUNING_H_
