// Launches combines that are fused with the product before them.
#ifndef OCTET_KERNELS_FUSED_GEMM_COMBINE_H_
#define OCTET_KERNELS_FUSED_GEMM_COMBINE_H_

#include <hip/hip_runtime.h>

#include "absl/status/statusor.h"
#include "kernels/ep/combine_product.h"
#include "kernels/fused/kernels.h"
#include "kernels/gemm/kernels.h"
#include "octet/routed_experts.h"
#include "octet/row_source.h"

namespace octet::fused {

class GemmCombine final : public CombineProduct {
 public:
  // `fusion`: not kAuto or kNone. `tuning`: with combine_percent, 0 if all blocks multiply before
  // they combine. `sources`: of all rows, for kEpilogue.
  GemmCombine(const GroupedGemmVariant& variant, const GroupedGemmParams& params, Fusion fusion,
              const FusedTuning& tuning = {}, const RowSource* sources = nullptr)
      : variant_(variant), params_(params), fusion_(fusion), tuning_(tuning), sources_(sources) {}

  // kUnimplemented unless CanFuse, and if a block needs more shared memory than there is.
  absl::StatusOr<int> Prepare(const high_throughput::CombineVariant& variant,
                              int blocks) const override;
  hipError_t Launch(const high_throughput::GemmCombineParams& params,
                    const high_throughput::CombineVariant& variant, int blocks,
                    hipStream_t stream) const override;

 private:
  GemmCombineVariant KernelOf(const high_throughput::CombineVariant& combine) const;

  GroupedGemmVariant variant_;
  GroupedGemmParams params_;
  Fusion fusion_;
  FusedTuning tuning_;
  const RowSource* sources_;
};

}  // namespace octet::fused

#endif  // OCTET_KERNELS_FUSED_GEMM_COMBINE_H_
