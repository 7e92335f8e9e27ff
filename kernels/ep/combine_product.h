// The product that a combine of high_throughput is fused with: who launches the kernel of both.
// kernels/fused implements it.
#ifndef OCTET_KERNELS_EP_COMBINE_PRODUCT_H_
#define OCTET_KERNELS_EP_COMBINE_PRODUCT_H_

#include <hip/hip_runtime.h>

#include "absl/status/statusor.h"

namespace octet {

namespace high_throughput {
struct CombineVariant;
struct GemmCombineParams;
struct Layout;
}  // namespace high_throughput

class CombineProduct {
 public:
  virtual ~CombineProduct() = default;

  // Loads the kernel on the current device. Returns how many blocks it has if `blocks` have one
  // compute unit each: no more than are resident, rounded to what the tile shape needs.
  virtual absl::StatusOr<int> Prepare(const high_throughput::CombineVariant& variant,
                                      int blocks) const = 0;
  virtual hipError_t Launch(const high_throughput::GemmCombineParams& params,
                            const high_throughput::CombineVariant& variant, int blocks,
                            hipStream_t stream) const = 0;
};

}  // namespace octet

#endif  // OCTET_KERNELS_EP_COMBINE_PRODUCT_H_
