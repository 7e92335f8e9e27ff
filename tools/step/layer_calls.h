// Calls of a layer for tokens that lie on the host.
#ifndef OCTET_TOOLS_STEP_LAYER_CALLS_H_
#define OCTET_TOOLS_STEP_LAYER_CALLS_H_

#include <cstddef>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "octet/graph.h"
#include "octet/moe_layer.h"
#include "octet/node.h"
#include "runtime/memory/device_memory.h"
#include "tools/step/l2_flush.h"
#include "tools/workload/layer_tokens.h"

namespace octet {

// Of a node's ranks, whose tokens `tokens` are. Node, layer and tokens must outlive it. CallOnce is
// for a layer of this node alone: a layer over several nodes is called inside World::Run.
class LayerCalls {
 public:
  LayerCalls(Node& node, MoeLayer& layer, const LayerTokens& tokens)
      : node_(node),
        layer_(layer),
        tokens_(tokens),
        memory_(static_cast<size_t>(node.num_ranks())) {}

  // ---- Not during Node::Run.

  // Allocates, and copies the tokens to the GPUs. Comes first.
  absl::Status Init();
  // Calls the layer on all ranks and waits.
  absl::Status CallOnce();
  // Returns what the last call has computed for the tokens of all ranks, in order.
  absl::StatusOr<LayerOutput> Read();

  // ---- On a rank's thread inside Run.

  absl::Status Call(Rank& rank);
  // Captures a call into a graph, for Launch.
  absl::Status Capture(Rank& rank);
  // Returns the rank's tokens, memory of its GPU.
  const void* x(const Rank& rank) const {
    return memory_[static_cast<size_t>(rank.rank())].x.as<void>();
  }
  absl::Status Launch(Rank& rank);
  // Empties the caches of the rank's GPU.
  absl::Status Flush(const Rank& rank) const;

 private:
  struct OfRank {
    DeviceMemory x, y;
    L2Flush flush;
    std::vector<Graph> graph;  // one, or none
  };

  OfRank& MemoryOf(const Rank& rank) { return memory_[static_cast<size_t>(rank.rank())]; }
  absl::Status InitRank(Rank& rank);
  absl::Status ReadRank(const Rank& rank, LayerOutput& output) const;

  Node& node_;
  MoeLayer& layer_;
  const LayerTokens& tokens_;
  std::vector<OfRank> memory_;
};

}  // namespace octet

#endif  // OCTET_TOOLS_STEP_LAYER_CALLS_H_
