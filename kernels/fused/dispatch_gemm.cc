#include "kernels/fused/dispatch_gemm.h"

#include <algorithm>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "kernels/fused/kernels.h"
#include "octet/grouped_gemm.h"
#include "runtime/gpu_status.h"
#include "runtime/status_macros.h"

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
  // CUDA refuses more shared memory than there is as an invalid value; elsewhere no block fits.
  const hipError_t loaded = PrepareDispatchGemm(variant_, shape);
  int per_unit = 0;
  if (loaded == hipErrorInvalidValue) {
    (void)hipGetLastError();  // reported here
  } else {
    OCTET_RETURN_IF_GPU_ERROR(loaded);
    OCTET_RETURN_IF_GPU_ERROR(DispatchGemmBlocksPerUnit(variant_, shape, &per_unit));
  }
  if (per_unit == 0) {
    return absl::UnimplementedError(absl::StrCat(
        "a block of the fused dispatch needs ", shape.shared_bytes,
        " bytes of shared memory, more than a compute unit has; use fewer experts on a rank"));
  }
  const int all = std::min(blocks * std::min(per_unit, tile.blocks_per_compute_unit), most_blocks);
  return std::max(all - all % tile.cluster_blocks, tile.cluster_blocks);
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
