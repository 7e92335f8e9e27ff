// Launches combines that are fused with the product before them.
#ifndef OCTET_KERNELS_FUSED_GEMM_COMBINE_H_
#define OCTET_KERNELS_FUSED_GEMM_COMBINE_H_

#include <hip/hip_runtime.h>

#include "absl/status/statusor.h"
#include "kernels/combine_product.h"
#include "kernels/gemm/kernels.h"

namespace octet::fused {

class GemmCombine final : public CombineProduct {
 public:
  // `serial`: all blocks multiply before they combine.
  GemmCombine(const GroupedGemmVariant& variant, const GroupedGemmParams& params, bool serial)
      : variant_(variant), params_(params), serial_(serial) {}

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
};

}  // namespace octet::fused

#endif  // OCTET_KERNELS_FUSED_GEMM_COMBINE_H_
