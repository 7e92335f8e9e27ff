// MoeLayer over one node or several.
#ifndef OCTET_KERNELS_LAYER_MOE_LAYER_H_
#define OCTET_KERNELS_LAYER_MOE_LAYER_H_

#include <memory>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "kernels/ep/nodes_of_ranks.h"
#include "octet/fused_experts.h"
#include "octet/moe_layer.h"
#include "octet/node.h"

namespace octet {

// The nodes that a layer is of, and what makes its experts.
struct NodesOfLayer {
  NodesOfRanks nodes;
  int node = 0;  // this one's number
  absl::FunctionRef<absl::StatusOr<std::unique_ptr<FusedExperts>>(const FusedExpertsConfig&)>
      make_experts;
};

// MoeLayer::Create for the ranks of `node`. `config` must be valid.
absl::StatusOr<std::unique_ptr<MoeLayer>> MakeMoeLayer(Node& node, const MoeLayerConfig& config,
                                                       const MoeLayerOptions& options,
                                                       const NodesOfLayer& of);

}  // namespace octet

#endif  // OCTET_KERNELS_LAYER_MOE_LAYER_H_
