// The kernel of a grouped product and its parameters, from what the caller gives.
#ifndef OCTET_KERNELS_GEMM_PRODUCT_PARAMS_H_
#define OCTET_KERNELS_GEMM_PRODUCT_PARAMS_H_

#include "kernels/gemm/kernels.h"
#include "octet/gemm_tiles.h"
#include "octet/grouped_gemm.h"

namespace octet {

// Returns the kernel of such products, not traced.
GroupedGemmVariant VariantOf(const GroupedGemmConfig& config, GemmTiles tiles);

// Returns the kernel's parameters, without next_unit and trace.
GroupedGemmParams ParamsOf(const GroupedGemmConfig& config, const GroupedGemmArgs& args);

}  // namespace octet

#endif  // OCTET_KERNELS_GEMM_PRODUCT_PARAMS_H_
