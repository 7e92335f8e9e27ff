// The product that a dispatch is fused with.
#ifndef OCTET_KERNELS_DISPATCH_PRODUCT_H_
#define OCTET_KERNELS_DISPATCH_PRODUCT_H_

#include "kernels/gemm/kernels.h"

namespace octet {

struct DispatchProduct {
  GroupedGemmVariant variant;
  // The dispatch sets operands.a, operands.scales.a, offsets, counts and next_unit.
  GroupedGemmParams params;
  // Multiplies each row by the weight of its choice; params.row_scale is ignored then.
  bool weighted;
};

}  // namespace octet

#endif  // OCTET_KERNELS_DISPATCH_PRODUCT_H_
