// Experts and whole layers over all nodes of a World: FusedExperts and MoeLayer whose dispatch and
// combine are those of octet/hierarchical.h.
//
//   absl::StatusOr<std::unique_ptr<MoeLayer>> layer = MakeHierarchicalLayer(world, config);
//   absl::Status status = (*layer)->Load(weights);
//   world.Run([&](Rank& rank) { return (*layer)->Forward(rank, x, num_tokens, y); });
//
// Needs the component `net` (docs/several_nodes.md).
//
// Notation in the comments: P nodes with R ranks each; E experts over all nodes.
#ifndef OCTET_HIERARCHICAL_LAYER_H_
#define OCTET_HIERARCHICAL_LAYER_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "octet/ep_config.h"
#include "octet/fused_experts.h"
#include "octet/hierarchical.h"
#include "octet/moe_layer.h"
#include "octet/node.h"
#include "octet/world.h"

namespace octet {

struct HierarchicalLayerOptions {
  // As in HierarchicalOptions.
  RailRows rows = RailRows::kAuto;
  int chunk_tokens = 0;
  CombineOrder intranode_order = CombineOrder::kAuto;
  // MoeLayerOptions::share: a layer over the same nodes, made with equal options.
  const MoeLayer* share = nullptr;
  std::string name = {};  // MoeLayerOptions::name
};

// As below, for a node whose rails the caller knows (octet/hierarchical.h).
absl::StatusOr<std::unique_ptr<FusedExperts>> MakeHierarchicalExperts(
    Node& node, absl::Span<Rail* const> rails, const FusedExpertsConfig& config,
    const HierarchicalOptions& options = {});
absl::StatusOr<std::unique_ptr<MoeLayer>> MakeHierarchicalLayer(
    Node& node, absl::Span<Rail* const> rails, const MoeLayerConfig& config,
    const HierarchicalLayerOptions& options = {});

// Return what all nodes must agree about, in words.
std::string HierarchicalText(const FusedExpertsConfig& config, const HierarchicalOptions& options);
std::string HierarchicalText(const MoeLayerConfig& config, const HierarchicalLayerOptions& options);

// Collective. Returns FusedExperts for the ranks of this process, whose calls are made inside
// World::Run. The world must outlive it. `config.ep` is that of all nodes, as MakeHierarchical
// takes it. FusedExperts' comments hold with "ranks" read as those of all nodes: L is E/(P·R), and
// `out` of DispatchGemmArgs has EpConfig::max_rows(P·R) rows. Each of the calls of Dispatch and
// Combine is limited as in octet/hierarchical.h. Errors, on all processes: those of
// MakeHierarchical and FusedExperts::Create, and
//   kInvalidArgument  a Fusion other than kAuto and kNone, which are the same
inline absl::StatusOr<std::unique_ptr<FusedExperts>> MakeHierarchicalExperts(
    World& world, const FusedExpertsConfig& config, const HierarchicalOptions& options = {}) {
  return MakeOnAllNodes<FusedExperts>(
      world, "MakeHierarchicalExperts", HierarchicalText(config, options),
      [&](Node& node, absl::Span<Rail* const> rails) {
        return MakeHierarchicalExperts(node, rails, config, options);
      },
      [&](const FusedExperts& made) { return HierarchicalText(made.config(), options); });
}

// Collective, likewise. Returns a layer for the ranks of this process. Expert e lives on the global
// rank e / (E / (P·R)), which is rank r of node n with n·R + r. Load is not collective: every
// process loads the same weights, of which its ranks keep their own experts; call Forward when all
// of them have. With RailRows::kCounted, Forward cannot be captured. Errors: those of
// MakeHierarchicalExperts and MoeLayer::Create.
inline absl::StatusOr<std::unique_ptr<MoeLayer>> MakeHierarchicalLayer(
    World& world, const MoeLayerConfig& config, const HierarchicalLayerOptions& options = {}) {
  return MakeOnAllNodes<MoeLayer>(
      world, "MakeHierarchicalLayer", HierarchicalText(config, options),
      [&](Node& node, absl::Span<Rail* const> rails) {
        return MakeHierarchicalLayer(node, rails, config, options);
      },
      [&](const MoeLayer& made) { return HierarchicalText(made.config(), options); });
}

}  // namespace octet

#endif  // OCTET_HIERARCHICAL_LAYER_H_
