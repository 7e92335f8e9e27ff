// The product that a dispatch of high_throughput is fused with: who launches the kernel of both.
// kernels/fused implements it.
#ifndef OCTET_KERNELS_EP_DISPATCH_PRODUCT_H_
#define OCTET_KERNELS_EP_DISPATCH_PRODUCT_H_

#include <hip/hip_runtime.h>

#include "absl/status/statusor.h"

namespace octet {

namespace high_throughput {
struct DispatchGemmParams;
struct DispatchRoles;
struct Layout;
}  // namespace high_throughput

class DispatchProduct {
 public:
  virtual ~DispatchProduct() = default;

  // Loads the kernel on the current device. Returns how many blocks it has if `blocks` have one
  // compute unit each: at most `most_blocks`, and no more than are resident, rounded to what the
  // tile shape needs.
  virtual absl::StatusOr<int> Prepare(const high_throughput::Layout& layout, int blocks,
                                      int most_blocks) const = 0;
  // Returns what each of `blocks` blocks does.
  virtual high_throughput::DispatchRoles Roles(int blocks) const = 0;
  virtual hipError_t Launch(const high_throughput::DispatchGemmParams& params, int blocks,
                            hipStream_t stream) const = 0;
};

}  // namespace octet

#endif  // OCTET_KERNELS_EP_DISPATCH_PRODUCT_H_
