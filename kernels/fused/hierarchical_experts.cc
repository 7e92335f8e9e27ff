#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "kernels/ep/nodes_of_ranks.h"
#include "kernels/fused/fused_experts.h"
#include "kernels/nodes/hierarchical.h"
#include "octet/enum_names.h"
#include "octet/hierarchical_layer.h"
#include "runtime/base/status_macros.h"

namespace octet {
namespace {

// A kernel that moves rows of one node cannot wait for those of others.
absl::Status ResolveFusion(absl::string_view member, Fusion& fusion) {
  if (fusion != Fusion::kAuto && fusion != Fusion::kNone) {
    return absl::InvalidArgumentError(absl::StrCat("FusedExpertsConfig::", member, " is ",
                                                   EnumName(fusion),
                                                   "; over several nodes it must be auto or none"));
  }
  fusion = Fusion::kNone;
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<FusedExperts>> MakeHierarchicalExperts(
    Node& node, absl::Span<Rail* const> rails, const FusedExpertsConfig& config,
    const HierarchicalOptions& options) {
  FusedExpertsConfig chosen = config;
  OCTET_RETURN_IF_ERROR(ResolveFusion("dispatch_gemm", chosen.dispatch_gemm));
  OCTET_RETURN_IF_ERROR(ResolveFusion("gemm_combine", chosen.gemm_combine));
  OCTET_ASSIGN_OR_RETURN(const NodesOfRanks nodes,
                         NodesOnRails(node, rails, options.intranode_order));
  return MakeFusedExperts(node, chosen, options.intranode,
                          {nodes.num_nodes * nodes.ranks_per_node, [&](const EpConfig& ep) {
                             return MakeCheckedHierarchical(node, rails, ep, options);
                           }});
}

std::string HierarchicalText(const FusedExpertsConfig& config, const HierarchicalOptions& options) {
  return absl::StrCat(HierarchicalText(config.ep, options), ", intermediate ", config.intermediate,
                      ", activation ", EnumName(config.activation), ", second_format ",
                      EnumName(config.second_format), ", weights_in ", EnumName(config.weights_in),
                      ", dispatch_gemm ", EnumName(config.dispatch_gemm), ", gemm_combine ",
                      EnumName(config.gemm_combine));
}

}  // namespace octet
