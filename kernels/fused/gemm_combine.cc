#include "kernels/fused/gemm_combine.h"

#include <algorithm>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "kernels/fused/dispatch_gemm.h"
#include "kernels/fused/kernels.h"
#include "kernels/fused/resident.h"
#include "kernels/high_throughput/kernels.h"
#include "octet/grouped_gemm.h"
#include "runtime/base/status_macros.h"

namespace octet::fused {
namespace {

// Whole clusters; at least one multiplies.
int CombineBlocks(int blocks, int cluster_blocks, int percent) {
  constexpr int kPercent = 100;
  const int clusters = blocks / cluster_blocks;
  const int share = (clusters * percent + kPercent / 2) / kPercent;
  return std::clamp(share, 0, clusters - 1) * cluster_blocks;
}

}  // namespace

GemmCombineVariant GemmCombine::KernelOf(const high_throughput::CombineVariant& combine) const {
  using Rows = GemmCombineVariant::Rows;
  const bool sums = combine.rows != high_throughput::CombineRows::kChoices;
  return {.tiles = variant_.tiles,
          .fp16 = combine.fp16,
          .rows = fusion_ == Fusion::kEpilogue ? Rows::kScattered
                  : sums                       ? Rows::kSums
                                               : Rows::kChoices,
          .traced = variant_.traced};
}

absl::StatusOr<int> GemmCombine::Prepare(const high_throughput::CombineVariant& variant,
                                         int blocks) const {
  if (!CanFuse(variant_.tiles)) {
    return absl::UnimplementedError(
        absl::StrCat("no combine is fused with tiles ", EnumName(variant_.tiles)));
  }
  const GroupedGemmTileShape tile = TileShapeOf(variant_);
  const GemmCombineVariant kernel = KernelOf(variant);
  const LaunchShape shape = GemmCombineShape(kernel, params_.operands.experts, blocks);
  OCTET_ASSIGN_OR_RETURN(
      const int per_unit,
      BlocksOfUnit("combine", shape, PrepareGemmCombine(kernel, shape),
                   [&](int* of_unit) { return GemmCombineBlocksPerUnit(kernel, shape, of_unit); }));
  return ResidentBlocks(blocks * std::min(per_unit, tile.blocks_per_compute_unit), per_unit, tile);
}

hipError_t GemmCombine::Launch(const high_throughput::GemmCombineParams& params,
                               const high_throughput::CombineVariant& variant, int blocks,
                               hipStream_t stream) const {
  ProductCombineParams both = {
      .p = params, .product = params_, .sources = sources_, .combine_blocks = 0};
  both.product.next_unit = params.next_unit;
  if (fusion_ != Fusion::kSerial) {
    both.combine_blocks =
        CombineBlocks(blocks, TileShapeOf(variant_).cluster_blocks, tuning_.combine_percent);
  }
  const GemmCombineVariant kernel = KernelOf(variant);
  return LaunchGemmCombine(both, kernel, GemmCombineShape(kernel, params_.operands.experts, blocks),
                           stream);
}

}  // namespace octet::fused
