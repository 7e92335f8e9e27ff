#include "tools/step/node_batches.h"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "kernels/ep/physical.h"
#include "kernels/nodes/options.h"
#include "runtime/base/size.h"

namespace octet {
namespace {

// Adds tokens [first, end) of `tokens` to `to`.
template <typename T>
void AppendTokens(const std::vector<T>& from, int tokens, int first, int end, std::vector<T>& to) {
  const size_t of_token = from.size() / Size(tokens);
  const auto begin = from.begin();
  to.insert(to.end(), begin + static_cast<ptrdiff_t>(Size(first) * of_token),
            begin + static_cast<ptrdiff_t>(Size(end) * of_token));
}

template <typename T>
void Append(absl::Span<const T> from, std::vector<T>& to) {
  to.insert(to.end(), from.begin(), from.end());
}

}  // namespace

NodeBatches::NodeBatches(const EpConfig& config, const NodesOfRanks& nodes,
                         const RailOptions& options, int node)
    : placed_(config),
      config_(PhysicalConfig(config)),
      nodes_(nodes),
      blocks_(ChosenRows(options.rows, config.strategy) == RailRows::kBlocks),
      chunk_tokens_(options.chunk_tokens > 0 ? options.chunk_tokens : config.max_tokens_per_rank),
      node_(node),
      within_(nodes.num_nodes > 1 ? IntranodeConfig(config, nodes) : config),
      batches_(Size(nodes.ranks_per_node)) {}

void NodeBatches::Make(absl::Span<const RankInput> inputs, bool rows) {
  if (nodes_.num_nodes == 1) {
    views_.assign(inputs.begin(), inputs.end());
    return;
  }
  views_.clear();
  const PhysicalInputs physical(placed_, inputs);
  for (int local = 0; local < nodes_.ranks_per_node; ++local) {
    std::vector<Batch> of_nodes(Size(nodes_.num_nodes));
    for (int from = 0; from < nodes_.num_nodes; ++from) {
      Batch& batch = of_nodes[Size(from)];
      AddTokens(physical.inputs()[Size(from * nodes_.ranks_per_node + local)], rows, batch);
      if (blocks_) Fill(config_.max_tokens_per_rank, rows, batch);
    }
    // The rank's own tokens come first, then a chunk of each other node, another one, ...
    Batch& batch = batches_[Size(local)];
    batch = std::move(of_nodes[Size(node_)]);
    for (int first = 0; first < config_.max_tokens_per_rank; first += chunk_tokens_) {
      for (int from = 0; from < nodes_.num_nodes; ++from) {
        const Batch& other = of_nodes[Size(from)];
        const int end = std::min(first + chunk_tokens_, other.num_tokens);
        if (from != node_ && first < end) AddRange(other, first, end, batch);
      }
    }
    views_.push_back({.num_tokens = batch.num_tokens,
                      .x = batch.x,
                      .topk_idx = batch.topk_idx,
                      .topk_weights = batch.topk_weights,
                      .fp8 = batch.fp8,
                      .scales = batch.scales});
  }
}

// Adds the tokens that have chosen experts of the node: those first, in the order of k.
void NodeBatches::AddTokens(const RankInput& input, bool rows, Batch& batch) const {
  for (int t = 0; t < input.num_tokens; ++t) {
    const size_t before = batch.topk_idx.size();
    for (size_t i = Size(t) * Size(config_.topk); i < Size(t + 1) * Size(config_.topk); ++i) {
      const int32_t id = input.topk_idx[i];
      if (id < 0 || id / within_.num_experts != node_) continue;
      batch.topk_idx.push_back(id % within_.num_experts);
      batch.topk_weights.push_back(input.topk_weights.empty() ? 1.0F : input.topk_weights[i]);
    }
    if (batch.topk_idx.size() == before) continue;
    if (rows) {
      const RankInput token = input.Tokens(config_, Size(t), 1);
      Append(token.x, batch.x);
      Append(token.fp8, batch.fp8);
      Append(token.scales, batch.scales);
    }
    Fill(batch.num_tokens + 1, rows, batch);
  }
}

void NodeBatches::AddRange(const Batch& from, int first, int end, Batch& batch) {
  const int tokens = from.num_tokens;
  AppendTokens(from.x, tokens, first, end, batch.x);
  AppendTokens(from.topk_idx, tokens, first, end, batch.topk_idx);
  AppendTokens(from.topk_weights, tokens, first, end, batch.topk_weights);
  AppendTokens(from.fp8, tokens, first, end, batch.fp8);
  AppendTokens(from.scales, tokens, first, end, batch.scales);
  batch.num_tokens += end - first;
}

void NodeBatches::Fill(int tokens, bool rows, Batch& batch) const {
  batch.num_tokens = tokens;
  batch.topk_idx.resize(Size(tokens) * Size(within_.topk), -1);
  batch.topk_weights.resize(Size(tokens) * Size(within_.topk));
  if (!rows) return;
  batch.x.resize(Size(tokens) * Size(config_.hidden));
  if (config_.scale_words() == 0) return;
  batch.fp8.resize(Size(tokens) * Size(config_.hidden));
  batch.scales.resize(Size(tokens) * Size(config_.scale_words()));
}

}  // namespace octet
