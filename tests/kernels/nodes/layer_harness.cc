#include "tests/kernels/nodes/layer_harness.h"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "absl/memory/memory.h"
#include "absl/strings/str_cat.h"
#include "octet/graph.h"
#include "runtime/base/size.h"
#include "runtime/base/status_macros.h"
#include "tools/check/verify_layer.h"

namespace octet {
namespace {

constexpr uint64_t kWeightSeed = 7;

}  // namespace

std::string TextOf(const MoeLayerConfig& c) {
  return absl::StrCat("E ", c.num_experts, " K ", c.topk, " H ", c.hidden, " I ", c.intermediate,
                      " M ", c.max_tokens_per_rank, " S ", c.shared_intermediate,
                      c.shared_gate ? " gated" : "", " ", EnumName(c.dtype), " ",
                      EnumName(c.weights), " ", EnumName(c.strategy), " shared ",
                      EnumName(c.shared_experts));
}

MoeLayerConfig DrawLayer(std::mt19937_64& rng, const NodesOfRanks& shape) {
  const auto below = [&](int n) { return static_cast<int>(rng() % static_cast<uint64_t>(n)); };
  MoeLayerConfig config;
  config.num_experts = shape.num_nodes * shape.ranks_per_node * (1 + below(4));
  config.topk = 1 + below(std::min(config.num_experts, 6));
  const bool fp8 = below(3) == 0;
  config.weights = fp8 ? GemmFormat::kFp8 : GemmFormat::kSame;
  config.dtype = !fp8 && below(2) == 0 ? DType::kFloat16 : DType::kBFloat16;
  config.hidden = 16 * (1 + below(10));
  config.intermediate = 16 * (1 + below(10));
  if (below(2) == 0) config.shared_intermediate = 8 * (1 + below(8));
  config.shared_gate = config.shared_intermediate > 0 && below(2) == 0;
  constexpr SharedExperts kShared[] = {SharedExperts::kAuto, SharedExperts::kAfter,
                                       SharedExperts::kBeside};
  config.shared_experts = kShared[below(3)];
  constexpr Strategy kStrategies[] = {Strategy::kHighThroughput, Strategy::kLowLatency,
                                      Strategy::kAuto};
  config.strategy = kStrategies[below(3)];
  config.max_blocks = 2;
  config.router.scores = below(2) == 0 ? RouterScores::kSigmoid : RouterScores::kSoftmax;
  config.router.normalize = below(2) == 0;
  config.router.scaling = 1.0F + static_cast<float>(below(3));
  config.max_tokens_per_rank = 1 + below(12);
  return config;
}

LayerTokens DrawLayerTokens(std::mt19937_64& rng, const MoeLayerConfig& config, int num_ranks) {
  LayerTokens tokens = RandomTokens(config.max_tokens_per_rank, config.hidden, num_ranks,
                                    config.dtype, rng() % 100000);
  for (std::vector<uint16_t>& rows : tokens.rows) {
    rows.resize(rng() % (Size(config.max_tokens_per_rank) + 1) * Size(config.hidden));
  }
  return tokens;
}

LayerHarness::LayerHarness(const JoinedNodes& nodes, const MoeLayerConfig& config)
    : nodes_(nodes),
      weights_(config, config.router.scores == RouterScores::kSigmoid, kWeightSeed) {}

absl::StatusOr<std::unique_ptr<LayerHarness>> LayerHarness::Create(const JoinedNodes& nodes,
                                                                   const MoeLayerConfig& config,
                                                                   const Make& make) {
  auto harness = absl::WrapUnique(new LayerHarness(nodes, config));
  for (const JoinedNodes::OneNode& node : nodes.nodes()) {
    OCTET_ASSIGN_OR_RETURN(std::unique_ptr<MoeLayer> layer, make(*node.domain, config));
    OCTET_RETURN_IF_ERROR(layer->Load(harness->weights()));
    harness->layers_.push_back(std::move(layer));
  }
  return harness;
}

std::vector<LayerTokens> LayerHarness::OwnTokens(const LayerTokens& tokens) const {
  std::vector<LayerTokens> own;
  for (const JoinedNodes::OneNode& node : nodes_.nodes()) {
    const int ranks = nodes_.shape().ranks_per_node;
    const auto first = tokens.rows.begin() + ptrdiff_t{node.domain->GlobalRank(0)};
    own.push_back({.leading = {}, .rows = {first, first + ranks}, .hidden = tokens.hidden});
  }
  return own;
}

absl::StatusOr<LayerHarness::NodeCalls> LayerHarness::Begin(const std::vector<LayerTokens>& own) {
  NodeCalls calls;
  for (size_t n = 0; n < own.size(); ++n) {
    calls.push_back(
        std::make_unique<LayerCalls>(nodes_.nodes()[n].domain->node(), *layers_[n], own[n]));
    OCTET_RETURN_IF_ERROR(calls.back()->Init());
  }
  return calls;
}

absl::StatusOr<std::vector<LayerOutput>> LayerHarness::Call(const LayerTokens& tokens) {
  const std::vector<LayerTokens> own = OwnTokens(tokens);
  OCTET_ASSIGN_OR_RETURN(const NodeCalls calls, Begin(own));
  OCTET_RETURN_IF_ERROR(nodes_.Run(
      [&](Rank& rank, int global) { return calls[nodes_.IndexOf(global)]->Call(rank); }));
  std::vector<LayerOutput> outputs;
  for (const std::unique_ptr<LayerCalls>& node : calls) {
    OCTET_ASSIGN_OR_RETURN(outputs.emplace_back(), node->Read());
  }
  return outputs;
}

absl::Status LayerHarness::Verify(const std::vector<LayerOutput>& outputs) {
  for (size_t n = 0; n < outputs.size(); ++n) {
    const MoeLayerConfig& config = layers_[n]->config();
    const LayerCheck check =
        VerifyLayer(config, weights(), outputs[n], {.node_sums = nodes_.shape().num_nodes > 1});
    if (!check.ok()) return absl::DataLossError(check.first_wrong);
    if (Size(static_cast<int>(check.routed)) != outputs[n].x.size() / Size(config.hidden)) {
      return absl::InternalError(absl::StrCat("only ", check.routed, " tokens were compared"));
    }
  }
  return absl::OkStatus();
}

absl::Status LayerHarness::Check(const LayerTokens& tokens) {
  OCTET_ASSIGN_OR_RETURN(const std::vector<LayerOutput> outputs, Call(tokens));
  return Verify(outputs);
}

absl::Status LayerHarness::CheckReplays(const LayerTokens& tokens) {
  const std::vector<LayerTokens> own = OwnTokens(tokens);
  OCTET_ASSIGN_OR_RETURN(const NodeCalls calls, Begin(own));
  const auto calls_of = [&](int global) -> LayerCalls& { return *calls[nodes_.IndexOf(global)]; };
  std::vector<std::unique_ptr<Graph>> graphs(Size(nodes_.num_ranks()));
  OCTET_RETURN_IF_ERROR(nodes_.Run([&](Rank& rank, int global) -> absl::Status {
    OCTET_ASSIGN_OR_RETURN(Graph graph,
                           Graph::Capture(rank, [&] { return calls_of(global).Call(rank); }));
    graphs[Size(global)] = std::make_unique<Graph>(std::move(graph));
    return absl::OkStatus();
  }));
  OCTET_RETURN_IF_ERROR(nodes_.Run([&](Rank& rank, int global) -> absl::Status {
    for (int i = 0; i < 3; ++i) OCTET_RETURN_IF_ERROR(graphs[Size(global)]->Launch(rank));
    return absl::OkStatus();
  }));
  std::vector<LayerOutput> outputs;
  for (const std::unique_ptr<LayerCalls>& node : calls) {
    OCTET_ASSIGN_OR_RETURN(outputs.emplace_back(), node->Read());
  }
  return Verify(outputs);
}

}  // namespace octet
