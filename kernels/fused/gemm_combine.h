// Launches combines that are fused with the product before them.
#ifndef OCTET_KERNELS_FUSED_GEMM_COMBINE_H_
#define OCTET_KERNELS_FUSED_GEMM_COMBINE_H_

#include <hip/hip_runtime.h>

#include "absl/status/statusor.h"
#include "kernels/combine_product.h"
#include "kernels/fused/fused_tuning.h"
#include "kernels/gemm/kernels.h"
#include "octet/fused_experts.h"

namespace octet::fused {

class GemmCombine final : public CombineProduct {
 public:
  // `serial`: all blocks multiply before they combine. `tuning`: with combine_percent.
  GemmCombine(const GroupedGemmVariant& variant, const GroupedGemmParams& params, bool serial,
              const FusedTuning& tuning = kBuiltInTuning)
      : variant_(variant), params_(params), serial_(serial), tuning_(tuning) {}

  // kUnimplemented unless CanFuse.
  absl::StatusOr<int> Prepare(const high_throughput::CombineVariant& variant,
                              int blocks) const override;
  hipError_t Launch(const high_throughput::GemmCombineParams& params,
                    const high_throughput::CombineVariant& variant, int blocks,
                    hipStream_t stream) const override;

 private:
  GroupedGemmVariant variant_;
  GroupedGemmParams params_;
  bool serial_;
  FusedTuning tuning_;
};

}  // namespace octet::fused

#endif  // OCTET_KERNELS_FUSED_GEMM_COMBINE_H_
