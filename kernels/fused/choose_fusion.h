// What Fusion::kAuto is: what was measured to be the fastest and fits, else separate kernels.
#ifndef OCTET_KERNELS_FUSED_CHOOSE_FUSION_H_
#define OCTET_KERNELS_FUSED_CHOOSE_FUSION_H_

#include "absl/status/statusor.h"
#include "kernels/gemm/kernels.h"
#include "octet/expert_parallel.h"
#include "octet/grouped_gemm.h"
#include "octet/node.h"
#include "octet/routed_experts.h"
#include "octet/topology.h"

namespace octet {

// Returns the kernels of a product that is fused with dispatch or combine.
GroupedGemmVariant FusedVariantOf(const GroupedGemmConfig& product, GemmTiles tiles, bool traced);

// Returns `config`, which must be checked, with the fusions chosen, and what follows from them for
// config.ep. A measured fusion is not taken if the configuration excludes it, if options.heap has
// no room for it, or if a kernel needs more shared memory than a GPU has.
absl::StatusOr<RoutedExpertsConfig> ChooseFusions(Node& node, const RoutedExpertsConfig& config,
                                                  const ExpertParallelOptions& options);

// The same without a look at heaps and kernels: what ChooseFusions takes where all of it fits.
absl::StatusOr<RoutedExpertsConfig> PreferredFusions(const RoutedExpertsConfig& config,
                                                     const Topology& topology, int num_ranks);

}  // namespace octet

#endif  // OCTET_KERNELS_FUSED_CHOOSE_FUSION_H_
