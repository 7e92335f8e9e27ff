// Launches dispatches that are fused with a product.
#ifndef OCTET_KERNELS_FUSED_DISPATCH_GEMM_H_
#define OCTET_KERNELS_FUSED_DISPATCH_GEMM_H_

#include <hip/hip_runtime.h>

#include "absl/status/statusor.h"
#include "kernels/ep/dispatch_product.h"
#include "kernels/gemm/kernels.h"
#include "octet/routed_experts.h"

namespace octet::fused {

// The built-in division of the work of calls with a product: bench/PERFORMANCE.md. Tiles and
// row_parts depend on the call, send_percent and fill_percent on the tiles (ChooseShares), and
// combine_percent is that of Fusion::kTiles.
inline constexpr FusedTuning kBuiltInTuning = {.combine_percent = 18,
                                               .send_order = SendOrder::kExpert,
                                               .tile_waits = TileWaits::kGroup,
                                               .stages = 2};

// Whether a dispatch can be fused with a product of such tiles: kWide and kMedium.
bool CanFuse(GemmTiles tiles);

// Sets send_percent and fill_percent where they are 0.
void ChooseShares(const GroupedGemmVariant& variant, FusedTuning& tuning);

class DispatchGemm final : public DispatchProduct {
 public:
  // The dispatch sets operands.a and its scales; offsets, counts and next_unit are not used.
  // `weighted`: each row is multiplied by the weight of its choice, in place of params.row_scale.
  // `tuning`: for a launch, with send_percent and fill_percent.
  DispatchGemm(const GroupedGemmVariant& variant, const GroupedGemmParams& params, bool weighted,
               const FusedTuning& tuning = kBuiltInTuning)
      : variant_(variant), params_(params), weighted_(weighted), tuning_(tuning) {}

  // kUnimplemented unless CanFuse, and if a block needs more shared memory than there is.
  absl::StatusOr<int> Prepare(const high_throughput::Layout& layout, int blocks,
                              int most_blocks) const override;
  high_throughput::DispatchRoles Roles(int blocks) const override;
  hipError_t Launch(const high_throughput::DispatchGemmParams& params, int blocks,
                    hipStream_t stream) const override;

 private:
  GroupedGemmVariant variant_;
  GroupedGemmParams params_;
  bool weighted_;
  FusedTuning tuning_;
};

}  // namespace octet::fused

#endif  // OCTET_KERNELS_FUSED_DISPATCH_GEMM_H_
