#include "kernels/fused/dispatch_gemm.h"

#include <algorithm>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "kernels/fused/kernels.h"
#include "kernels/fused/resident.h"
#include "octet/grouped_gemm.h"
#include "runtime/base/status_macros.h"

namespace octet::fused {

bool CanFuse(GemmTiles tiles) { return tiles == GemmTiles::kWide || tiles == GemmTiles::kMedium; }

void ChooseShares(const GroupedGemmVariant& variant, FusedTuning& tuning) {
  // Where waves move rows beside the product, blocks only help them to begin.
  const bool beside = TileShapeOf(variant).free_waves > 0;
  if (tuning.send_percent == 0) tuning.send_percent = beside ? 2 : 15;
  if (tuning.fill_percent == 0) tuning.fill_percent = beside ? 5 : 12;
}

absl::StatusOr<int> DispatchGemm::Prepare(const high_throughput::Layout& layout, int blocks,
                                          int most_blocks) const {
  if (!CanFuse(variant_.tiles)) {
    return absl::UnimplementedError(
        absl::StrCat("no dispatch is fused with tiles ", EnumName(variant_.tiles)));
  }
  const GroupedGemmTileShape tile = TileShapeOf(variant_);
  const LaunchShape shape = DispatchGemmShape(variant_, layout, blocks);
  OCTET_ASSIGN_OR_RETURN(
      const int per_unit,
      BlocksOfUnit("dispatch", shape, PrepareDispatchGemm(variant_, shape), [&](int* of_unit) {
        return DispatchGemmBlocksPerUnit(variant_, shape, of_unit);
      }));
  const int wanted = blocks * std::min(per_unit, tile.blocks_per_compute_unit);
  return ResidentBlocks(std::min(wanted, most_blocks), per_unit, tile);
}

high_throughput::DispatchRoles DispatchGemm::Roles(int blocks) const {
  const auto part = [blocks](int percent) {
    constexpr int kPercent = 100;
    return std::max(1, blocks * percent / kPercent);
  };
  const int send_blocks = part(tuning_.send_percent);
  return {.send_blocks = send_blocks,
          .fill_blocks = std::min(part(tuning_.fill_percent), blocks - send_blocks),
          .by_token = tuning_.send_order == SendOrder::kToken,
          .every_row = tuning_.stages == 1,
          .whole_experts = tuning_.tile_waits == TileWaits::kExpert};
}

hipError_t DispatchGemm::Launch(const high_throughput::DispatchGemmParams& params, int blocks,
                                hipStream_t stream) const {
  GroupedGemmParams product = params_;
  product.operands.a = params.rows;
  product.operands.scales.a = params.scales;
  product.next_unit = params.next_unit;
  if (weighted_) product.row_scale = params.dispatch.row_weights;
  const LaunchShape shape = DispatchGemmShape(variant_, params.dispatch.common.layout, blocks);
  return LaunchDispatchGemm({params, product}, variant_, shape, stream);
}

}  // namespace octet::fused
