#include "octet/hierarchical_layer.h"

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "kernels/ep/nodes_of_ranks.h"
#include "kernels/layer/layer_config.h"
#include "kernels/layer/moe_layer.h"
#include "kernels/nodes/hierarchical.h"
#include "octet/enum_names.h"
#include "runtime/base/status_macros.h"
#include "runtime/net/rails/rail.h"

namespace octet {
namespace {

std::string YesOrNo(bool value) { return value ? "yes" : "no"; }

}  // namespace

absl::StatusOr<std::unique_ptr<MoeLayer>> MakeHierarchicalLayer(
    Node& node, absl::Span<Rail* const> rails, const MoeLayerConfig& config,
    const HierarchicalLayerOptions& options) {
  OCTET_ASSIGN_OR_RETURN(const NodesOfRanks nodes,
                         NodesOnRails(node, rails, options.intranode_order));
  OCTET_RETURN_IF_ERROR(Validate(config, nodes));
  return MakeMoeLayer(node, config, {.share = options.share, .name = options.name},
                      {.nodes = nodes,
                       .node = rails.front()->node(),
                       .make_experts = [&](const FusedExpertsConfig& experts) {
                         return MakeHierarchicalExperts(
                             node, rails, experts,
                             {.rows = options.rows,
                              .chunk_tokens = options.chunk_tokens,
                              .intranode_order = options.intranode_order});
                       }});
}

std::string HierarchicalText(const MoeLayerConfig& config,
                             const HierarchicalLayerOptions& options) {
  const RouterConfig& router = config.router;
  std::string text = absl::StrCat(
      "experts ", config.num_experts, ", topk ", config.topk, ", hidden ", config.hidden,
      ", intermediate ", config.intermediate, ", max_tokens_per_rank ", config.max_tokens_per_rank,
      ", ", EnumName(config.dtype), ", weights ", EnumName(config.weights), ", strategy ",
      EnumName(config.strategy), ", fusion ", EnumName(config.fusion));
  absl::StrAppend(&text, ", shared_intermediate ", config.shared_intermediate, ", shared_gate ",
                  YesOrNo(config.shared_gate), ", router ", EnumName(router.scores), " groups ",
                  router.groups, " top_groups ", router.top_groups, " ",
                  EnumName(router.group_score), " normalize ", YesOrNo(router.normalize),
                  " epsilon ", router.normalize_epsilon, " scaling ", router.scaling);
  absl::StrAppend(&text, ", rows ", EnumName(options.rows), ", chunk_tokens ", options.chunk_tokens,
                  ", intranode_order ", EnumName(options.intranode_order), ", shares memory ",
                  YesOrNo(options.share != nullptr));
  return text;
}

}  // namespace octet
