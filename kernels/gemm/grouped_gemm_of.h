// The grouped product of one element of the operands: grouped_gemm_kernel.h defines it.
#ifndef OCTET_KERNELS_GEMM_GROUPED_GEMM_OF_H_
#define OCTET_KERNELS_GEMM_GROUPED_GEMM_OF_H_

#include <hip/hip_runtime.h>

#include "kernels/gemm/kernels.h"
#include "runtime/platform/gemm_call.h"

namespace octet {

// `variant.element` is `element` in each of these.
template <device::GemmElement element>
struct GroupedGemmOf {
  static GroupedGemmTileShape Shape(const GroupedGemmVariant& variant);
  static hipError_t Load(const GroupedGemmVariant& variant);
  static hipError_t Launch(const GroupedGemmParams& params, const GroupedGemmVariant& variant,
                           int blocks, hipStream_t stream);
};

extern template struct GroupedGemmOf<device::GemmElement::kBf16>;
extern template struct GroupedGemmOf<device::GemmElement::kFp16>;
extern template struct GroupedGemmOf<device::GemmElement::kFp8>;
extern template struct GroupedGemmOf<device::GemmElement::kMxfp4>;
extern template struct GroupedGemmOf<device::GemmElement::kFp8Mxfp4>;

}  // namespace octet

#endif  // OCTET_KERNELS_GEMM_GROUPED_GEMM_OF_H_
