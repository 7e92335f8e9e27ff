// The memory, products and kernels that layers need beside weights. Layers can share them.
#ifndef OCTET_KERNELS_LAYER_LAYER_WORKSPACE_H_
#define OCTET_KERNELS_LAYER_LAYER_WORKSPACE_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "kernels/decode/decode_path.h"
#include "kernels/ep/base/load_counting.h"
#include "kernels/ep/layer_parts.h"
#include "kernels/ep/nodes_of_ranks.h"
#include "kernels/layer/shared_mlp.h"
#include "kernels/types/row_quantizer.h"
#include "octet/domain.h"
#include "octet/expert_parallel.h"
#include "octet/grouped_gemm.h"
#include "octet/moe_layer.h"
#include "octet/node.h"
#include "octet/routed_experts.h"
#include "octet/topology.h"
#include "runtime/memory/node_memory.h"

namespace octet {

// The ranks that run a layer: those of all its nodes, and this node among them.
struct LayerRanks {
  NodesOfRanks nodes;
  int node = 0;  // this one's number

  int num_ranks() const { return nodes.num_nodes * nodes.ranks_per_node; }  // of all nodes
  size_t global(const Rank& rank) const {
    const int first = node * nodes.ranks_per_node;
    return static_cast<size_t>(first) + static_cast<size_t>(rank.rank());
  }
};

// Makes the choices of kLaunches that come before those of RoutedExperts.
absl::Status ChooseLaunches(const Topology& topology, const NodesOfRanks& nodes,
                            MoeLayerConfig& config);

// Everything but weights: what layers can share.
class LayerWorkspace final : public LayerPartObserver {
 public:
  // What a rank has between the parts of a call.
  struct OfRank {
    std::unique_ptr<GroupedGemm> router;
    std::unique_ptr<SharedMlp> shared;      // null: the layer has no shared experts
    bool shared_runs = false;               // between SharedMlp::Begin and End
    LayerPartObserver* observer = nullptr;  // of the layer whose call is being enqueued, or null
    std::optional<RowQuantizer> quantizer;  // of x, if it is dispatched in FP8
    absl::Span<char> logits, topk_idx, topk_weights, h, x_fp8, x_scales;
    absl::Span<char> weighed_x, ones;  // WeighInputParams; empty unless config.weighs_input
    absl::Span<uint32_t> logit_parts;  // FewTokensParams
    // [M + 1][2] The expert_offsets of products of t tokens, {0, t}, are row t.
    absl::Span<int32_t> offsets;
  };

  static absl::StatusOr<std::shared_ptr<LayerWorkspace>> Create(Domain& domain,
                                                                const MoeLayerConfig& config,
                                                                const MoeLayerOptions& options);
  LayerWorkspace(Node& node, const LayerRanks& ranks, const MoeLayerConfig& config)
      : node_(node.Share()),
        layer_ranks_(ranks),
        requested_(config),
        config_(config),
        memory_(node),
        ranks_(static_cast<size_t>(node.num_ranks())) {}
  ~LayerWorkspace() override;
  LayerWorkspace(const LayerWorkspace&) = delete;
  LayerWorkspace& operator=(const LayerWorkspace&) = delete;

  const MoeLayerConfig& requested() const { return requested_; }
  const MoeLayerConfig& config() const { return config_; }  // with every choice made
  const Node& node() const { return *node_; }
  const LayerRanks& layer_ranks() const { return layer_ranks_; }
  RoutedExperts& experts() { return *experts_; }  // not with decode()
  absl::StatusOr<ExpertLoads> Loads() const {
    return decode_ != nullptr ? decode_->Loads() : experts_->ep().Loads();
  }
  // On one node, with loads.count and a placement: the counters of all ranks are of logical
  // experts. Not null then.
  LoadCounting* placed_counting() { return placed_counting_; }
  // Not null: layers are computed in one launch.
  const DecodePath* decode() const { return decode_.get(); }
  OfRank& of(const Rank& rank) { return ranks_[static_cast<size_t>(rank.rank())]; }

  absl::Status PartEnqueued(Rank& rank, LayerPart part) override;

 private:
  // Makes what a call of several launches needs; `config_` has no choice made yet.
  absl::Status MakeLaunches(Domain& domain, const RailOptions& rails);
  absl::Status InitRank(Rank& rank);
  // Memory for RoutedTokens.
  absl::Status AllocateRouted(OfRank& mine);
  absl::Status MakeProducts(OfRank& mine);
  absl::Status LoadKernels() const;
  absl::Status CountLogicalExperts(Node& node);

  const std::shared_ptr<Node> node_;
  const LayerRanks layer_ranks_;
  const MoeLayerConfig requested_;
  MoeLayerConfig config_;
  std::unique_ptr<RoutedExperts> experts_;
  std::unique_ptr<DecodePath> decode_;
  LoadCounting* placed_counting_ = nullptr;
  NodeMemory memory_;
  std::vector<OfRank> ranks_;
};

}  // namespace octet

#endif  // OCTET_KERNELS_LAYER_LAYER_WORKSPACE_H_
