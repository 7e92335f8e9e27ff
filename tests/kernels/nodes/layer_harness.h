// A layer over several nodes in tests.
#ifndef OCTET_TESTS_KERNELS_NODES_LAYER_HARNESS_H_
#define OCTET_TESTS_KERNELS_NODES_LAYER_HARNESS_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "octet/domain.h"
#include "octet/expert_parallel.h"
#include "octet/moe_layer.h"
#include "octet/node.h"
#include "octet/routed_experts.h"
#include "tests/support/nodes/joined_nodes.h"
#include "tools/step/layer_calls.h"
#include "tools/workload/layer_tokens.h"
#include "tools/workload/random_weights.h"

namespace octet {

std::string TextOf(const MoeLayerConfig& config);

// A layer of everything that layers over several nodes can be. Alike wherever it is drawn.
MoeLayerConfig DrawLayer(std::mt19937_64& rng, const NodesOfRanks& shape);

// Random tokens of all ranks, 0 to M of each.
LayerTokens DrawLayerTokens(std::mt19937_64& rng, const MoeLayerConfig& config, int num_ranks);

class LayerHarness {
 public:
  // How the layers of this process's nodes are made.
  using Make =
      std::function<absl::StatusOr<std::unique_ptr<MoeLayer>>(Domain&, const MoeLayerConfig&)>;

  // Makes the layers and loads random weights. `nodes` must outlive it.
  static absl::StatusOr<std::unique_ptr<LayerHarness>> Create(const JoinedNodes& nodes,
                                                              const MoeLayerConfig& config,
                                                              const Make& make);

  MoeLayer& layer(size_t node) { return *layers_[node]; }  // by node of this process
  const MoeLayerWeights& weights() const { return weights_.weights(); }

  // Calls the layer once for the tokens of all ranks; returns the outputs of each node of this
  // process.
  absl::StatusOr<std::vector<LayerOutput>> Call(const LayerTokens& tokens);
  // Calls it once and compares. kDataLoss with the first wrong result.
  absl::Status Check(const LayerTokens& tokens);
  // As Check, for a graph of a call that is replayed.
  absl::Status CheckReplays(const LayerTokens& tokens);

 private:
  using NodeCalls = std::vector<std::unique_ptr<LayerCalls>>;

  LayerHarness(const JoinedNodes& nodes, const MoeLayerConfig& config);

  // `own` holds the tokens of each node, and must outlive the result.
  absl::StatusOr<NodeCalls> Begin(const std::vector<LayerTokens>& own);
  std::vector<LayerTokens> OwnTokens(const LayerTokens& tokens) const;
  absl::Status Verify(const std::vector<LayerOutput>& outputs);

  const JoinedNodes& nodes_;
  const RandomWeights weights_;
  std::vector<std::unique_ptr<MoeLayer>> layers_;  // by node of this process
};

}  // namespace octet

#endif  // OCTET_TESTS_KERNELS_NODES_LAYER_HARNESS_H_
