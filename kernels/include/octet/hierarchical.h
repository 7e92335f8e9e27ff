// Dispatch and combine over all nodes of a World: a token crosses to a node once, on the rail of
// its rank, and is distributed there by an ExpertParallel of that node.
//
//   absl::StatusOr<std::unique_ptr<ExpertParallel>> ep = MakeHierarchical(world, config);
//   world.Run([&](Rank& rank) -> absl::Status {  // Dispatch and Combine as within a node
//     ...
//   });
//
// Notation in the comments: P nodes with R ranks each; E experts over all nodes, of which rank r of
// node n has those from (n·R + r)·E/(P·R) on; K choices of a token; M tokens of a rank.
#ifndef OCTET_HIERARCHICAL_H_
#define OCTET_HIERARCHICAL_H_

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "octet/enum_names.h"
#include "octet/ep_config.h"
#include "octet/expert_parallel.h"
#include "octet/node.h"
#include "octet/world.h"

namespace octet {

// How many rows cross.
enum class RailRows {
  kAuto,  // kBlocks if the intranode strategy is low_latency, otherwise kCounted
  // M for each node, unused ones marked. The host waits for nothing, so that calls can be captured
  // where the rail's exchange can be.
  kBlocks,
  // As many as there are: counts cross first, and Dispatch waits on the host for them.
  kCounted,
};

absl::Span<const EnumEntry<RailRows>> EnumTable(RailRows);  // names: octet/enum_names.h

struct HierarchicalOptions {
  RailRows rows = RailRows::kAuto;
  // Rails beside links: rows cross in chunks of so many tokens of a rank. In a dispatch, the first
  // tokens are distributed within the node while later chunks cross. In a combine, the chunks
  // return from the last to the first, while the combine within the node makes the rest, and the
  // rank's own rows at the end. Pays where rails take about as long as links
  // (docs/several_nodes.md). Kernels within the node then leave compute units to the rails. 0, or M
  // and more: all rows cross at once, before any is distributed and after all are made. Otherwise
  // at least M / 32.
  int chunk_tokens = 0;
  // EpConfig::combine_order of the ExpertParallel of each node.
  CombineOrder intranode_order = CombineOrder::kAuto;
  ExpertParallelOptions intranode = {};  // of the ExpertParallel of this node
};

// As below, for a node whose rails the caller knows: rails[r] is that of local rank r. They must
// outlive the result. All nodes call it with equal arguments; not during Node::Run.
absl::StatusOr<std::unique_ptr<ExpertParallel>> MakeHierarchical(
    Node& node, absl::Span<Rail* const> rails, const EpConfig& config,
    const HierarchicalOptions& options = {});

// Returns what all nodes must agree about, in words.
std::string HierarchicalText(const EpConfig& config, const HierarchicalOptions& options);

// For this header and octet/hierarchical_layer.h. Collective (octet/world.h). Returns what `make`
// returns for this node and its rails, after the nodes have compared their arguments of `call`, in
// words. All nodes fail if one does, and if they differ in the `choices` that were made.
template <typename T>
absl::StatusOr<std::unique_ptr<T>> MakeOnAllNodes(
    World& world, absl::string_view call, absl::string_view arguments,
    absl::FunctionRef<absl::StatusOr<std::unique_ptr<T>>(Node&, absl::Span<Rail* const>)> make,
    absl::FunctionRef<std::string(const T&)> choices) {
  absl::Status agreed = world.Agree(absl::StrCat("the arguments of ", call), arguments);
  if (!agreed.ok()) return agreed;
  std::vector<Rail*> rails;
  const int num_ranks = world.num_ranks() / world.num_nodes();
  for (int rank = 0; rank < num_ranks; ++rank) rails.push_back(&world.rail(rank));
  absl::StatusOr<std::unique_ptr<T>> made = make(world.node(), rails);
  // A failure of one node is one of all: the others could not make a call without it.
  absl::Status together = world.Together(made.status());
  if (!together.ok()) return together;
  // They follow from the arguments and from what was measured on each node (docs/using.md).
  agreed = world.Agree(absl::StrCat("the choices of ", call), choices(**made));
  if (!agreed.ok()) return agreed;
  return made;
}

// Collective (octet/world.h). Returns an ExpertParallel for the ranks of this process, whose calls
// are made inside World::Run. The world must outlive it. `config` is that of all nodes: num_experts
// over all of them, combine_order kAuto or kPerNode. Errors, on all processes:
//   kInvalidArgument  the nodes' arguments differ (both named), or the choices made for them, which
//                     can depend on what was measured on a node (docs/using.md); what the intranode
//                     strategy refuses for E/P experts and up to P·M tokens of a rank;
//                     FailurePolicy::kMask
//   and what ExpertParallel::Create returns, with "node n: "; those of the World
//
// Its calls are those of ExpertParallel, except:
//   - one dispatch may be outstanding; only the last one can be combined;
//   - `cached` and `scatter_idx` are refused (kInvalidArgument), and so are the calls of one phase
//     (DispatchSend ...), fused products and, with kCounted, captures (kUnimplemented,
//     kFailedPrecondition);
//   - Received is that of the intranode dispatch: RowSource::rank is a local rank,
//     RowSource::token a token of its batch. A token has at most min(K, E/P) choices, those of this
//     node in the order of k. The batch has the rank's own tokens first, then those of each chunk:
//     of each other node in ascending order. With kBlocks a node has M tokens, unused ones last;
//     with kCounted as many as there are;
//   - Traffic is what crosses the rail.
// config() is `config` with all choices made. Results are those of CombineOrder::kPerNode.
//
// Needs the component `net` (docs/several_nodes.md).
inline absl::StatusOr<std::unique_ptr<ExpertParallel>> MakeHierarchical(
    World& world, const EpConfig& config, const HierarchicalOptions& options = {}) {
  return MakeOnAllNodes<ExpertParallel>(
      world, "MakeHierarchical", HierarchicalText(config, options),
      [&](Node& node, absl::Span<Rail* const> rails) {
        return MakeHierarchical(node, rails, config, options);
      },
      [&](const ExpertParallel& made) { return HierarchicalText(made.config(), options); });
}

}  // namespace octet

#endif  // OCTET_HIERARCHICAL_H_
