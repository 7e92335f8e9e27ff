#include "octet/moe_layer.h"

#include <hip/hip_runtime.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "kernels/ep/base/check_pointers.h"
#include "kernels/ep/base/whole_gpu.h"
#include "kernels/ep/layer_parts.h"
#include "kernels/ep/nodes_of_ranks.h"
#include "kernels/ep/on_all_nodes.h"
#include "kernels/fused/products.h"
#include "kernels/layer/add_shared.h"
#include "kernels/layer/layer_config.h"
#include "kernels/layer/layer_workspace.h"
#include "kernels/layer/pack_weights.h"
#include "kernels/layer/route.h"
#include "kernels/layer/shared_mlp.h"
#include "kernels/types/row_quantizer.h"
#include "octet/domain.h"
#include "octet/ep_config.h"
#include "octet/expert_parallel.h"
#include "octet/grouped_gemm.h"
#include "octet/routed_experts.h"
#include "runtime/base/mutex.h"
#include "runtime/base/status_macros.h"
#include "runtime/gpu/gpu_status.h"
#include "runtime/memory/node_memory.h"
#include "runtime/node/caller.h"
#include "runtime/node/capture_need.h"

namespace octet {
namespace {

size_t Size(int n) { return static_cast<size_t>(n); }

// A layer's weights on one rank.
struct RankWeights {
  absl::Span<char> router, first, first_scales, second, second_scales, shared_first, shared_second;
  absl::Span<float> router_bias;  // zeros if the layer has none
};

absl::Status Upload(absl::Span<char> memory, size_t offset, const void* data, size_t bytes) {
  if (bytes == 0) return absl::OkStatus();
  if (offset + bytes > memory.size()) {
    return absl::InternalError(absl::StrCat("weights of ", bytes, " bytes at ", offset,
                                            " exceed their ", memory.size(), " bytes"));
  }
  return OCTET_GPU(hipMemcpy(memory.data() + offset, data, bytes, hipMemcpyHostToDevice));
}

// Copies a packed matrix to where the index-th of its kind belongs.
absl::Status Upload(absl::Span<char> elements, absl::Span<char> scales, size_t index,
                    const PackedMatrix& matrix) {
  OCTET_RETURN_IF_ERROR(Upload(elements, index * matrix.elements.size(), matrix.elements.data(),
                               matrix.elements.size()));
  const size_t bytes = matrix.scales.size() * sizeof(float);
  return Upload(scales, index * bytes, matrix.scales.data(), bytes);
}

class MoeLayerOnNode final : public MoeLayer {
 public:
  MoeLayerOnNode(Node& node, std::shared_ptr<LayerWorkspace> workspace, const std::string& name)
      : node_(node.Share()),
        caller_(node, name),
        workspace_(std::move(workspace)),
        memory_(node),
        weights_(Size(node.num_ranks())) {
    need_->what = "the MoeLayer whose weights it uses, which has been destroyed";
  }
  ~MoeLayerOnNode() override { need_->gone = true; }
  MoeLayerOnNode(const MoeLayerOnNode&) = delete;
  MoeLayerOnNode& operator=(const MoeLayerOnNode&) = delete;

  absl::Status Load(const MoeLayerWeights& weights) override;
  absl::Status Forward(Rank& rank, const void* x, int num_tokens, void* y) override;
  RoutedTokens Routed(const Rank& rank) const override;
  const MoeLayerConfig& config() const override { return workspace_->config(); }
  const std::shared_ptr<LayerWorkspace>& workspace() const { return workspace_; }

  // On the rank's thread inside Run, before any call.
  absl::Status AllocateWeights(Rank& rank);

 private:
  // A call's tokens.
  struct Tokens {
    const void* x;
    int count;
    void* y;
  };

  void Observe(LayerPartObserver* observer) override { observer_ = observer; }
  absl::Status Enqueued(Rank& rank, LayerPart part) const {
    return observer_ == nullptr ? absl::OkStatus() : observer_->PartEnqueued(rank, part);
  }
  absl::Status LoadRank(Rank& rank, const MoeLayerWeights& weights);
  absl::Status LoadRouter(const RankWeights& mine, const MoeLayerWeights& weights) const;
  absl::Status LoadExpert(const RankWeights& mine, size_t index, const MlpWeights& expert) const;
  // On as many threads as the rank has CPUs, or as there can be: conversion takes longer than
  // copying.
  absl::Status LoadExperts(const Rank& rank, const MoeLayerWeights& weights) const;
  absl::Status CheckTokens(const Rank& rank, const Tokens& tokens) const;
  absl::Status Route(Rank& rank, const Tokens& tokens);
  // Returns what is dispatched, after enqueueing what makes it.
  absl::StatusOr<DispatchArgs> Dispatched(Rank& rank, const Tokens& tokens);
  absl::Status Experts(Rank& rank, const Tokens& tokens);
  // Experts and, for tokens that there are, the shared experts, in the order of the configuration.
  absl::Status AllExperts(Rank& rank, const Tokens& tokens);
  absl::Status AddShared(Rank& rank, const Tokens& tokens);

  const std::shared_ptr<Node> node_;
  const Caller caller_;
  const std::shared_ptr<LayerWorkspace> workspace_;
  NodeMemory memory_;
  std::vector<RankWeights> weights_;
  bool loaded_ = false;
  const std::shared_ptr<CaptureNeed> need_ = std::make_shared<CaptureNeed>();  // of graphs
  LayerPartObserver* observer_ = nullptr;
};

absl::Status MoeLayerOnNode::AllocateWeights(Rank& rank) {
  if (!rank.IsOf(workspace_->node())) {
    return absl::InvalidArgumentError("MoeLayerOptions::share must be a layer of the same node");
  }
  RankWeights& mine = weights_[Size(rank.rank())];
  const MoeLayerConfig& c = config();
  const RoutedExpertsConfig experts = ExpertsConfig(c);
  const int num_ranks = workspace_->layer_ranks().num_ranks();
  const size_t local = Size(c.num_experts / num_ranks);
  const size_t element = ExpertWeights(c).element_bytes();
  const size_t plain = InfoOf(c.dtype).bytes;
  const size_t hidden = Size(c.hidden);
  const GroupedGemmConfig first = FirstProduct(experts, num_ranks);
  const GroupedGemmConfig second = SecondProduct(experts, num_ranks);
  const auto scale_bytes = [&](const GroupedGemmConfig& product) {
    return local * Size(product.weight_scale_rows()) * Size(product.scale_words()) * sizeof(float);
  };
  struct Piece {
    absl::Span<char>* memory;
    size_t bytes;
  };
  for (const auto& [memory, bytes] : {
           Piece{&mine.router, Size(LogitStride(c)) * hidden * plain},
           Piece{&mine.first, local * 2 * Size(c.intermediate) * hidden * element},
           Piece{&mine.first_scales, scale_bytes(first)},
           Piece{&mine.second, local * hidden * Size(c.intermediate) * element},
           Piece{&mine.second_scales, scale_bytes(second)},
           Piece{&mine.shared_first, 2 * Size(c.shared_intermediate) * hidden * plain},
           Piece{&mine.shared_second, hidden * Size(c.shared_intermediate) * plain},
       }) {
    OCTET_ASSIGN_OR_RETURN(*memory, memory_.Device<char>(bytes));
  }
  OCTET_ASSIGN_OR_RETURN(mine.router_bias, memory_.Device<float>(Size(c.num_experts)));
  return absl::OkStatus();
}

absl::Status MoeLayerOnNode::LoadRouter(const RankWeights& mine,
                                        const MoeLayerWeights& weights) const {
  const WeightFormat format = PlainWeights(config());
  // Rows that nothing belongs to are zero.
  std::vector<uint8_t> rows = PackMatrix(weights.router, format).elements;
  if (config().shared_gate) {
    const std::vector<uint8_t> gate = PackMatrix(weights.shared_gate, format).elements;
    rows.insert(rows.end(), gate.begin(), gate.end());
  }
  rows.resize(mine.router.size(), 0);
  OCTET_RETURN_IF_ERROR(Upload(mine.router, 0, rows.data(), rows.size()));
  std::vector<float> bias(Size(config().num_experts), 0.0F);
  if (!weights.router_bias.empty()) {
    for (int e = 0; e < config().num_experts; ++e) {
      bias[Size(e)] = ElementOf(weights.router_bias, 0, e);
    }
  }
  return OCTET_GPU(hipMemcpy(mine.router_bias.data(), bias.data(), bias.size() * sizeof(float),
                             hipMemcpyHostToDevice));
}

absl::Status MoeLayerOnNode::LoadExpert(const RankWeights& mine, size_t index,
                                        const MlpWeights& expert) const {
  const WeightFormat format = ExpertWeights(config());
  OCTET_RETURN_IF_ERROR(Upload(mine.first, mine.first_scales, index, PackGateUp(expert, format)));
  return Upload(mine.second, mine.second_scales, index, PackMatrix(expert.down, format));
}

absl::Status MoeLayerOnNode::LoadExperts(const Rank& rank, const MoeLayerWeights& weights) const {
  const RankWeights& mine = weights_[Size(rank.rank())];
  const LayerRanks& ranks = workspace_->layer_ranks();
  const size_t local = Size(config().num_experts / ranks.num_ranks());
  const size_t first = ranks.global(rank) * local;
  // Each loads the next expert until none is left, or one has failed.
  Mutex mutex;
  size_t next = 0;
  absl::Status failure;
  const auto load = [&] {
    const hipError_t current = hipSetDevice(rank.device());
    absl::Status status = GpuStatus(current, "hipSetDevice");
    while (true) {
      size_t index = 0;
      {
        MutexLock lock(&mutex);
        if (failure.ok()) failure = status;
        if (!failure.ok() || next == local) return;
        index = next++;
      }
      status = LoadExpert(mine, index, weights.experts[first + index]);
    }
  };
  const size_t cpus = std::max(std::thread::hardware_concurrency(), 1U);
  std::vector<std::thread> helpers;
  while (helpers.size() + 1 < std::min(cpus / Size(rank.num_ranks()), local)) {
    // The standard library reports by exceptions only.
    try {
      helpers.emplace_back(load);
    } catch (const std::system_error&) {
      break;  // the system has no more threads: those that there are do all of it
    }
  }
  load();
  for (std::thread& helper : helpers) helper.join();
  return failure;
}

absl::Status MoeLayerOnNode::LoadRank(Rank& rank, const MoeLayerWeights& weights) {
  const RankWeights& mine = weights_[Size(rank.rank())];
  OCTET_RETURN_IF_ERROR(LoadRouter(mine, weights));
  OCTET_RETURN_IF_ERROR(LoadExperts(rank, weights));
  if (config().shared_intermediate == 0) return absl::OkStatus();
  const WeightFormat format = PlainWeights(config());
  OCTET_RETURN_IF_ERROR(Upload(mine.shared_first, {}, 0, PackGateUp(weights.shared, format)));
  return Upload(mine.shared_second, {}, 0, PackMatrix(weights.shared.down, format));
}

absl::Status MoeLayerOnNode::Load(const MoeLayerWeights& weights) {
  OCTET_RETURN_IF_ERROR(CheckWeights(config(), weights));
  std::atomic<bool> begun = false;
  const absl::Status status = node_->Run([&](Rank& rank) {
    begun = true;
    return LoadRank(rank, weights);
  });
  // What has begun and failed leaves weights of this and of earlier calls.
  if (begun) loaded_ = status.ok();
  return status;
}

absl::Status MoeLayerOnNode::CheckTokens(const Rank& rank, const Tokens& tokens) const {
  if (!loaded_) {
    return absl::FailedPreconditionError("MoeLayer::Forward needs weights: call Load first");
  }
  if (tokens.count < 0 || tokens.count > config().max_tokens_per_rank) {
    return absl::InvalidArgumentError(absl::StrCat("num_tokens is ", tokens.count,
                                                   "; it must be 0 to max_tokens_per_rank, ",
                                                   config().max_tokens_per_rank));
  }
  if (tokens.count > 0 && (tokens.x == nullptr || tokens.y == nullptr)) {
    return absl::InvalidArgumentError(
        absl::StrCat(tokens.x == nullptr ? "x" : "y", " must not be null"));
  }
  OCTET_RETURN_IF_ERROR(CheckPointers(rank, {{"x", tokens.x}, {"y", tokens.y}}));
  const size_t bytes = Size(tokens.count) * Size(config().hidden) * InfoOf(config().dtype).bytes;
  return CheckApart(rank, {"y", tokens.y, bytes}, {{"x", tokens.x, bytes}});
}

absl::Status MoeLayerOnNode::Route(Rank& rank, const Tokens& tokens) {
  LayerWorkspace::OfRank& work = workspace_->of(rank);
  const RankWeights& mine = weights_[Size(rank.rank())];
  const MoeLayerConfig& c = config();
  if (tokens.count > 0) {
    OCTET_RETURN_IF_ERROR(
        work.router->Run({.a = tokens.x,
                          .b = mine.router.data(),
                          .expert_offsets = work.offsets.data() + 2 * Size(tokens.count),
                          .out = work.logits.data()},
                         rank.stream()));
    const RouteParams params = {
        .logits = reinterpret_cast<const float*>(work.logits.data()),
        .stride = LogitStride(c),
        .bias = mine.router_bias.data(),
        .num_tokens = tokens.count,
        .num_experts = c.num_experts,
        .topk = c.topk,
        .sigmoid = c.router.scores == RouterScores::kSigmoid,
        .groups = c.router.groups,
        .top_groups = c.router.top_groups,
        .sum_of_two_best = c.router.group_score == GroupScore::kSumOfTwoBest,
        .normalize = c.router.normalize,
        .normalize_epsilon = c.router.normalize_epsilon,
        .scaling = c.router.scaling,
        .topk_idx = reinterpret_cast<int32_t*>(work.topk_idx.data()),
        .topk_weights = reinterpret_cast<float*>(work.topk_weights.data())};
    OCTET_RETURN_IF_GPU_ERROR(
        LaunchRoute(params, WholeGpuForWaves(rank, tokens.count), rank.stream()));
  }
  return Enqueued(rank, LayerPart::kRouter);
}

absl::StatusOr<DispatchArgs> MoeLayerOnNode::Dispatched(Rank& rank, const Tokens& tokens) {
  LayerWorkspace::OfRank& work = workspace_->of(rank);
  DispatchArgs args = {.x = tokens.x,
                       .topk_idx = reinterpret_cast<const int32_t*>(work.topk_idx.data()),
                       .topk_weights = reinterpret_cast<const float*>(work.topk_weights.data()),
                       .num_tokens = tokens.count};
  if (!work.quantizer.has_value()) return args;
  args.x = work.x_fp8.data();
  args.high_throughput.x_scales = work.x_scales.data();
  OCTET_RETURN_IF_ERROR(work.quantizer->Run({.x = tokens.x,
                                             .fp8 = work.x_fp8.data(),
                                             .scales = work.x_scales.data(),
                                             .rows = tokens.count},
                                            rank.stream()));
  return args;
}

absl::Status MoeLayerOnNode::Experts(Rank& rank, const Tokens& tokens) {
  const RankWeights& mine = weights_[Size(rank.rank())];
  LayerWorkspace::OfRank& work = workspace_->of(rank);
  const bool fp8 = config().weights == GemmFormat::kFp8;
  OCTET_ASSIGN_OR_RETURN(const DispatchArgs dispatch, Dispatched(rank, tokens));
  OCTET_ASSIGN_OR_RETURN(const FusedReceived received,
                         workspace_->experts().DispatchGemm(
                             rank, {.dispatch = dispatch,
                                    .b = mine.first.data(),
                                    .b_scales = fp8 ? mine.first_scales.data() : nullptr,
                                    .out = work.h.data()}));
  return workspace_->experts().GemmCombine(rank, received,
                                           {.a = work.h.data(),
                                            .b = mine.second.data(),
                                            .b_scales = fp8 ? mine.second_scales.data() : nullptr,
                                            .y = tokens.y});
}

absl::Status MoeLayerOnNode::AllExperts(Rank& rank, const Tokens& tokens) {
  LayerWorkspace::OfRank& work = workspace_->of(rank);
  if (work.shared == nullptr || tokens.count == 0) return Experts(rank, tokens);
  const RankWeights& mine = weights_[Size(rank.rank())];
  OCTET_RETURN_IF_ERROR(
      work.shared->Begin(rank, {.x = tokens.x,
                                .expert_offsets = work.offsets.data() + 2 * Size(tokens.count),
                                .first = mine.shared_first.data(),
                                .second = mine.shared_second.data()}));
  work.shared_runs = true;
  absl::Status status = Experts(rank, tokens);
  work.shared_runs = false;
  status.Update(work.shared->End(rank, /*after_error=*/!status.ok()));
  return status.ok() ? AddShared(rank, tokens) : status;
}

absl::Status MoeLayerOnNode::AddShared(Rank& rank, const Tokens& tokens) {
  const MoeLayerConfig& c = config();
  LayerWorkspace::OfRank& work = workspace_->of(rank);
  constexpr int kElementsPerVec = 8;
  const auto* const logits = reinterpret_cast<const float*>(work.logits.data());
  const AddSharedParams params = {.y = tokens.y,
                                  .shared = work.shared->out(),
                                  .gate = c.shared_gate ? logits + c.num_experts : nullptr,
                                  .gate_stride = LogitStride(c),
                                  .num_tokens = tokens.count,
                                  .row_vecs = c.hidden / kElementsPerVec};
  const int64_t vecs = int64_t{params.num_tokens} * params.row_vecs;
  OCTET_RETURN_IF_GPU_ERROR(LaunchAddShared(params, c.dtype == DType::kFloat16,
                                            WholeGpuForThreads(rank, vecs), rank.stream()));
  return Enqueued(rank, LayerPart::kShared);
}

absl::Status MoeLayerOnNode::Forward(Rank& rank, const void* x, int num_tokens, void* y) {
  const Tokens tokens = {x, num_tokens, y};
  OCTET_RETURN_IF_ERROR(CheckTokens(rank, tokens));
  CaptureNeeds::Add(rank, need_);
  const CallerScope scope(rank, caller_.id());
  workspace_->of(rank).observer = observer_;
  OCTET_RETURN_IF_ERROR(Route(rank, tokens));
  return AllExperts(rank, tokens);
}

RoutedTokens MoeLayerOnNode::Routed(const Rank& rank) const {
  const LayerWorkspace::OfRank& work = workspace_->of(rank);
  return {.logits = reinterpret_cast<const float*>(work.logits.data()),
          .stride = LogitStride(config()),
          .topk_idx = reinterpret_cast<const int32_t*>(work.topk_idx.data()),
          .topk_weights = reinterpret_cast<const float*>(work.topk_weights.data())};
}

// Not collective: all nodes of the domain must have agreed on the arguments.
absl::StatusOr<std::unique_ptr<MoeLayer>> MakeMoeLayer(Domain& domain, const MoeLayerConfig& config,
                                                       const MoeLayerOptions& options) {
  OCTET_RETURN_IF_ERROR(Validate(config, NodesOf(domain, options.rails.intranode_order)));
  const MoeLayer* const share = options.share;
  std::shared_ptr<LayerWorkspace> workspace;
  if (share == nullptr) {
    OCTET_ASSIGN_OR_RETURN(workspace, LayerWorkspace::Create(domain, config, options.rails));
  } else {
    const auto* const other = dynamic_cast<const MoeLayerOnNode*>(share);
    if (other == nullptr || !(other->workspace()->requested() == config)) {
      return absl::InvalidArgumentError(
          "MoeLayerOptions::share must be a layer that was created with an equal configuration");
    }
    workspace = other->workspace();
    if (workspace->layer_ranks().nodes.num_nodes != domain.num_nodes()) {
      return absl::InvalidArgumentError(absl::StrCat(
          "the layer to share memory with is one of ", workspace->layer_ranks().nodes.num_nodes,
          " nodes; it must be one of ", domain.num_nodes()));
    }
  }
  Node& node = domain.node();
  auto layer = std::make_unique<MoeLayerOnNode>(node, std::move(workspace), options.name);
  OCTET_RETURN_IF_ERROR(node.Run([&](Rank& rank) { return layer->AllocateWeights(rank); }));
  return layer;
}

}  // namespace

absl::StatusOr<std::unique_ptr<MoeLayer>> MoeLayer::Create(Domain& domain,
                                                           const MoeLayerConfig& config,
                                                           const MoeLayerOptions& options) {
  return MakeOnAllNodes<MoeLayer>(
      domain, "MoeLayer::Create", TextOf(config, options),
      [&] { return MakeMoeLayer(domain, config, options); },
      [&](const MoeLayer& made) { return TextOf(made.config(), options); });
}

}  // namespace octet
