// The two products of RoutedExperts.
#ifndef OCTET_KERNELS_FUSED_PRODUCTS_H_
#define OCTET_KERNELS_FUSED_PRODUCTS_H_

#include "octet/grouped_gemm.h"
#include "octet/routed_experts.h"

namespace octet {

// Return the products on each of `num_ranks` ranks. The tile shapes follow from uniform routing of
// full dispatches, and the blocks from product_blocks.
GroupedGemmConfig FirstProduct(const RoutedExpertsConfig& config, int num_ranks);
GroupedGemmConfig SecondProduct(const RoutedExpertsConfig& config, int num_ranks);

// Returns whether the second product goes into the memory of the received rows, which suits it if
// they have the size of its own; otherwise it needs memory for max_rows rows.
bool SecondProductInPlace(const EpConfig& config);

// Return the arguments of the products of these calls, the first with the weights if they belong
// there. `out`: of the second product, whose `a` is that of the call, not quantized.
GroupedGemmArgs FirstProductArgs(const RoutedExpertsConfig& config, const DispatchGemmArgs& args,
                                 const Received& received);
GroupedGemmArgs SecondProductArgs(const GemmCombineArgs& args, const Received& received, void* out);

}  // namespace octet

#endif  // OCTET_KERNELS_FUSED_PRODUCTS_H_
