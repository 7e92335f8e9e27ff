// What the ranks of one node pass to the dispatch within it, in a step over several nodes
// (kernels/nodes).
#ifndef OCTET_TOOLS_STEP_NODE_BATCHES_H_
#define OCTET_TOOLS_STEP_NODE_BATCHES_H_

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "kernels/ep/nodes_of_ranks.h"
#include "kernels/oracle/reference.h"
#include "octet/ep_config.h"
#include "octet/expert_parallel.h"

namespace octet {

class NodeBatches {
 public:
  // `config`: of the calls, over all nodes, with all choices made. `options`: of them.
  NodeBatches(const EpConfig& config, const NodesOfRanks& nodes, const RailOptions& options,
              int node);

  // Makes the batches of a step in which every rank of all nodes dispatches inputs[rank], which has
  // neither `bytes` nor scatter_idx. With one node these are the inputs themselves, which must
  // stay. `rows`: with rows and scales; otherwise only choices and weights.
  void Make(absl::Span<const RankInput> inputs, bool rows);

  // Return the configuration and the inputs of the dispatch within the node.
  const EpConfig& config() const { return within_; }
  absl::Span<const RankInput> inputs() const { return views_; }  // by local rank

 private:
  struct Batch {
    int num_tokens = 0;
    std::vector<uint16_t> x;
    std::vector<int32_t> topk_idx;
    std::vector<float> topk_weights;
    std::vector<uint8_t> fp8;
    std::vector<uint32_t> scales;
  };

  void AddTokens(const RankInput& input, bool rows, Batch& batch) const;
  // Adds tokens [first, end) of another batch.
  static void AddRange(const Batch& from, int first, int end, Batch& batch);
  // Adds unused tokens until there are `tokens`.
  void Fill(int tokens, bool rows, Batch& batch) const;

  const EpConfig placed_;
  const EpConfig config_;  // of physical experts
  const NodesOfRanks nodes_;
  const bool blocks_;
  const int chunk_tokens_;
  const int node_;
  const EpConfig within_;
  std::vector<Batch> batches_;  // by local rank
  std::vector<RankInput> views_;
};

}  // namespace octet

#endif  // OCTET_TOOLS_STEP_NODE_BATCHES_H_
