#include "octet/moe_layer.h"

#include <hip/hip_runtime.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "kernels/ep/base/check_pointers.h"
#include "kernels/ep/base/whole_gpu.h"
#include "kernels/ep/ep_calls.h"
#include "kernels/ep/layer_parts.h"
#include "kernels/ep/nodes_of_ranks.h"
#include "kernels/ep/on_all_nodes.h"
#include "kernels/layer/add_shared.h"
#include "kernels/layer/layer_config.h"
#include "kernels/layer/layer_weights.h"
#include "kernels/layer/layer_workspace.h"
#include "kernels/layer/shared_mlp.h"
#include "kernels/layer/weigh_input.h"
#include "kernels/placement/expert_moves.h"
#include "kernels/placement/kernels.h"
#include "kernels/placement/placement_tables.h"
#include "kernels/router/few_tokens.h"
#include "kernels/router/route.h"
#include "kernels/router/route_params.h"
#include "kernels/types/row_quantizer.h"
#include "octet/domain.h"
#include "octet/ep_config.h"
#include "octet/expert_parallel.h"
#include "octet/placement.h"
#include "octet/routed_experts.h"
#include "runtime/base/size.h"
#include "runtime/base/status_macros.h"
#include "runtime/gpu/gpu_status.h"
#include "runtime/node/caller.h"
#include "runtime/node/capture.h"
#include "runtime/node/capture_need.h"
#include "runtime/node/rank_threads.h"

namespace octet {
namespace {

// Returns the values, or null if there are none.
const float* FloatsOrNull(absl::Span<const char> values) {
  return values.empty() ? nullptr : reinterpret_cast<const float*>(values.data());
}

class MoeLayerOnNode final : public MoeLayer {
 public:
  // `tables`: null if the layer has no placement.
  MoeLayerOnNode(Node& node, const MoeLayerConfig& config,
                 std::shared_ptr<LayerWorkspace> workspace, std::unique_ptr<PlacementTables> tables,
                 const std::string& name)
      : node_(node.Share()),
        caller_(node, name),
        workspace_(std::move(workspace)),
        config_(config),
        tables_(std::move(tables)),
        weights_(node, config_, workspace_->layer_ranks()) {
    need_->what = "the MoeLayer whose weights it uses, which has been destroyed";
  }
  ~MoeLayerOnNode() override { need_->gone = true; }
  MoeLayerOnNode(const MoeLayerOnNode&) = delete;
  MoeLayerOnNode& operator=(const MoeLayerOnNode&) = delete;

  absl::Status Load(const MoeLayerWeights& weights) override;
  absl::Status Forward(Rank& rank, const void* x, int num_tokens, void* y) override;
  absl::Status Forward(Rank& rank, const void* x, const int32_t* num_tokens, void* y) override;
  RoutedTokens Routed(const Rank& rank) const override;
  absl::Status Prepare(Rank& rank, const Placement& placement, int max_blocks) override;
  absl::Status Apply(Rank& rank) override;
  Placement PlacementOf(const Rank& rank) const override {
    return moves_ == nullptr ? config_.placement : moves_->PlacementOf(rank);
  }
  absl::StatusOr<ExpertLoads> Loads() const override;
  const MoeLayerConfig& config() const override { return config_; }
  const std::shared_ptr<LayerWorkspace>& workspace() const { return workspace_; }

  // Before any call, and not during Run. Over several nodes experts cannot be moved.
  absl::Status Init(bool several_nodes, const std::string& name);

 private:
  // A call's tokens.
  struct Tokens {
    const void* x;
    int count;  // at most, with count_of
    void* y;
    const int32_t* count_of = nullptr;  // not null: where the number lies, on the GPU
  };

  void Observe(LayerPartObserver* observer) override { observer_ = observer; }
  absl::Status Enqueued(Rank& rank, LayerPart part) const {
    return observer_ == nullptr ? absl::OkStatus() : observer_->PartEnqueued(rank, part);
  }
  // Whether experts can be moved, now.
  absl::Status CheckMoves(absl::string_view call) const;
  absl::Status CheckTokens(const Rank& rank, const Tokens& tokens) const;
  absl::Status Route(Rank& rank, const Tokens& tokens);
  absl::Status WeighInput(const Rank& rank, const Tokens& tokens);
  // Returns what is dispatched, after enqueueing what makes it.
  absl::StatusOr<DispatchArgs> Dispatched(Rank& rank, const Tokens& tokens);
  absl::Status Experts(Rank& rank, const Tokens& tokens);
  // A part of a call's tokens, of what is dispatched and of y.
  struct Pass {
    DispatchArgs dispatch;
    void* y;
  };
  // Enqueues a pass, or only its dispatch if some rank has too little room for its rows: then
  // returns how many passes its tokens are to be taken in, else 0. All ranks return the same. Waits
  // on the host for the counts.
  absl::StatusOr<int> PassIfRoom(Rank& rank, const Pass& pass);
  absl::Status WholePass(Rank& rank, const Pass& pass);
  absl::Status CombinePass(Rank& rank, const Pass& pass, const FusedReceived& received);
  DispatchGemmArgs FirstProductOf(const Rank& rank, const Pass& pass) const;
  // Returns the index-th of `parts` parts of a pass, whose tokens are on all ranks about as many.
  Pass PartOf(const Pass& pass, int index, int parts) const;
  // Experts and, for tokens that there are, the shared experts, in the order of the configuration.
  absl::Status AllExperts(Rank& rank, const Tokens& tokens);
  absl::Status AddShared(Rank& rank, const Tokens& tokens);
  // All of it in one launch.
  absl::Status Decode(Rank& rank, const Tokens& tokens);
  absl::Status ForwardTokens(Rank& rank, const Tokens& tokens);

  const std::shared_ptr<Node> node_;
  const Caller caller_;
  const std::shared_ptr<LayerWorkspace> workspace_;
  const MoeLayerConfig config_;  // that of the workspace, but for the placement
  const std::unique_ptr<PlacementTables> tables_;
  LayerWeights weights_;
  std::unique_ptr<ExpertMoves> moves_;  // of a placement on one node; otherwise null
  bool loaded_ = false;
  const std::shared_ptr<CaptureNeed> need_ = std::make_shared<CaptureNeed>();  // of graphs
  LayerPartObserver* observer_ = nullptr;
};

absl::Status MoeLayerOnNode::Init(bool several_nodes, const std::string& name) {
  OCTET_RETURN_IF_ERROR(node_->Run([this](const Rank& rank) {
    return rank.IsOf(workspace_->node())
               ? absl::OkStatus()
               : absl::InvalidArgumentError(
                     "MoeLayerOptions::share must be a layer of the same node");
  }));
  const bool movable = !config().placement.empty() && !several_nodes;
  OCTET_RETURN_IF_ERROR(weights_.Allocate(movable));
  if (!movable) return absl::OkStatus();
  const LayerWeights::ExpertArrays arrays = weights_.Arrays();
  OCTET_ASSIGN_OR_RETURN(
      moves_, ExpertMoves::Create(
                  *node_, config().placement, *tables_,
                  {.heap = &weights_.heap(), .arrays = {arrays.begin(), arrays.end()}}, name));
  return absl::OkStatus();
}

absl::Status MoeLayerOnNode::Load(const MoeLayerWeights& weights) {
  OCTET_RETURN_IF_ERROR(CheckOutsideRun("MoeLayer::Load"));
  OCTET_RETURN_IF_ERROR(CheckWeights(config(), weights));
  std::atomic<bool> begun = false;
  const absl::Status status = node_->Run([&](Rank& rank) -> absl::Status {
    begun = true;
    if (moves_ != nullptr) OCTET_RETURN_IF_ERROR(moves_->Abandon(rank));
    return weights_.Load(rank, weights, PlacementOf(rank));
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
  OCTET_RETURN_IF_ERROR(CheckPointers(rank, {{"x", tokens.x}, {"y", tokens.y}}));
  const size_t row_bytes = Size(config().hidden) * InfoOf(config().dtype).bytes;
  const size_t rows = Size(tokens.count);
  OCTET_RETURN_IF_ERROR(
      CheckApart(rank, {"y", tokens.y, rows * row_bytes}, {{"x", tokens.x, rows * row_bytes}}));
  return CheckRoom(rank, {{"x", tokens.x, rows, row_bytes}, {"y", tokens.y, rows, row_bytes}});
}

absl::Status MoeLayerOnNode::Route(Rank& rank, const Tokens& tokens) {
  LayerWorkspace::OfRank& work = workspace_->of(rank);
  const LayerWeights::OfRank& mine = weights_.of(rank);
  const MoeLayerConfig& c = config();
  auto* const logits = reinterpret_cast<float*>(work.logits.data());
  RouteParams params = RouteParamsOf(c);
  params.logits = logits;
  params.bias = mine.router_bias.data();
  params.num_tokens = tokens.count;
  params.topk_idx = reinterpret_cast<int32_t*>(work.topk_idx.data());
  params.topk_weights = reinterpret_cast<float*>(work.topk_weights.data());
  const float* const logit_bias = mine.logit_bias.empty() ? nullptr : mine.logit_bias.data();
  if (tokens.count > kFewRoutedTokens) {
    OCTET_RETURN_IF_ERROR(
        work.router->Run({.a = tokens.x,
                          .b = mine.router.data(),
                          .expert_offsets = work.offsets.data() + 2 * Size(tokens.count),
                          .bias = logit_bias,
                          .out = logits,
                          .rows = tokens.count},
                         rank.stream()));
    OCTET_RETURN_IF_GPU_ERROR(
        LaunchRoute(params, WholeGpuForWaves(rank, tokens.count), rank.stream()));
  } else if (tokens.count > 0) {
    OCTET_RETURN_IF_GPU_ERROR(LaunchRouteFewTokens({.x = tokens.x,
                                                    .router = mine.router.data(),
                                                    .hidden = c.hidden,
                                                    .logit_rows = LogitRows(c),
                                                    .logit_bias = logit_bias,
                                                    .route = params,
                                                    .logits = logits,
                                                    .parts = work.logit_parts.data(),
                                                    .fp16 = c.dtype == DType::kFloat16},
                                                   rank.stream()));
  }
  return Enqueued(rank, LayerPart::kRouter);
}

absl::Status MoeLayerOnNode::WeighInput(const Rank& rank, const Tokens& tokens) {
  LayerWorkspace::OfRank& work = workspace_->of(rank);
  constexpr int kElementsPerVec = 8;
  const WeighInputParams params = {
      .x = tokens.x,
      .weights = reinterpret_cast<const float*>(work.topk_weights.data()),
      .out = work.weighed_x.data(),
      .ones = reinterpret_cast<float*>(work.ones.data()),
      .num_tokens = tokens.count,
      .row_vecs = config().hidden / kElementsPerVec};
  if (tokens.count == 0) return absl::OkStatus();
  const int64_t vecs = int64_t{params.num_tokens} * params.row_vecs;
  return OCTET_GPU(LaunchWeighInput(params, config().dtype == DType::kFloat16,
                                    WholeGpuForThreads(rank, vecs), rank.stream()));
}

absl::StatusOr<DispatchArgs> MoeLayerOnNode::Dispatched(Rank& rank, const Tokens& tokens) {
  LayerWorkspace::OfRank& work = workspace_->of(rank);
  DispatchArgs args = {.x = tokens.x,
                       .topk_idx = reinterpret_cast<const int32_t*>(work.topk_idx.data()),
                       .topk_weights = reinterpret_cast<const float*>(work.topk_weights.data()),
                       .num_tokens = tokens.count};
  if (tables_ != nullptr) {
    OCTET_ASSIGN_OR_RETURN(args.topk_idx, tables_->Translate(rank, args.topk_idx, tokens.count));
  }
  if (config().weighs_input) {
    OCTET_RETURN_IF_ERROR(WeighInput(rank, tokens));
    args.x = work.weighed_x.data();
    args.topk_weights = reinterpret_cast<const float*>(work.ones.data());
  }
  if (!work.quantizer.has_value()) return args;
  const void* const x = args.x;
  args.x = work.x_fp8.data();
  args.high_throughput.x_scales = work.x_scales.data();
  OCTET_RETURN_IF_ERROR(work.quantizer->Run(
      {.x = x, .fp8 = work.x_fp8.data(), .scales = work.x_scales.data(), .rows = tokens.count},
      rank.stream()));
  return args;
}

DispatchGemmArgs MoeLayerOnNode::FirstProductOf(const Rank& rank, const Pass& pass) const {
  const LayerWeights::OfRank& mine = weights_.of(rank);
  const bool scaled = ExpertWeights(config()).has_scales();
  return {.dispatch = pass.dispatch,
          .b = mine.first.data(),
          .b_scales = scaled ? mine.first_scales.data() : nullptr,
          .bias = FloatsOrNull(mine.first_bias),
          .out = workspace_->of(rank).h.data()};
}

absl::Status MoeLayerOnNode::CombinePass(Rank& rank, const Pass& pass,
                                         const FusedReceived& received) {
  const LayerWeights::OfRank& mine = weights_.of(rank);
  const bool scaled = ExpertWeights(config()).has_scales();
  return workspace_->experts().GemmCombine(
      rank, received,
      {.a = workspace_->of(rank).h.data(),
       .b = mine.second.data(),
       .b_scales = scaled ? mine.second_scales.data() : nullptr,
       .bias = FloatsOrNull(mine.second_bias),
       .y = pass.y});
}

absl::Status MoeLayerOnNode::WholePass(Rank& rank, const Pass& pass) {
  OCTET_ASSIGN_OR_RETURN(const FusedReceived received,
                         workspace_->experts().DispatchGemm(rank, FirstProductOf(rank, pass)));
  return CombinePass(rank, pass, received);
}

absl::StatusOr<int> MoeLayerOnNode::PassIfRoom(Rank& rank, const Pass& pass) {
  RoutedExperts& experts = workspace_->experts();
  OCTET_ASSIGN_OR_RETURN(
      const FusedReceived received,
      LayerInternals::DispatchGemmIfRoom(experts, rank, FirstProductOf(rank, pass)));
  OCTET_ASSIGN_OR_RETURN(const int rows, experts.ep().calls().RowsNeeded(rank));
  const int room = received.received.max_rows;
  if (rows > room) return (rows + room - 1) / room;
  OCTET_RETURN_IF_ERROR(CombinePass(rank, pass, received));
  return 0;
}

MoeLayerOnNode::Pass MoeLayerOnNode::PartOf(const Pass& pass, int index, int parts) const {
  const EpConfig& ep = workspace_->experts().config().ep;
  const int tokens = pass.dispatch.num_tokens;
  const int size = ((tokens + parts - 1) / parts + kPassTokens - 1) / kPassTokens * kPassTokens;
  const int begin = std::min(index * size, tokens);
  Pass part = pass;
  DispatchArgs& args = part.dispatch;
  args.num_tokens = std::min(size, tokens - begin);
  if (args.num_tokens == 0) return part;  // with pointers that are those of memory
  const size_t first = Size(begin);
  args.x = static_cast<const char*>(args.x) + first * ep.dispatch_row_bytes();
  args.topk_idx += first * Size(ep.topk);
  args.topk_weights += first * Size(ep.topk);
  if (args.high_throughput.x_scales != nullptr) {
    args.high_throughput.x_scales = static_cast<const uint32_t*>(args.high_throughput.x_scales) +
                                    first * Size(ep.x_scale_words());
  }
  part.y = static_cast<char*>(pass.y) + first * ep.dtype_row_bytes();
  return part;
}

absl::Status MoeLayerOnNode::Experts(Rank& rank, const Tokens& tokens) {
  OCTET_ASSIGN_OR_RETURN(const DispatchArgs dispatch, Dispatched(rank, tokens));
  const Pass whole = {.dispatch = dispatch, .y = tokens.y};
  if (config().capacity_rows == 0 || IsCapturing(rank.stream())) return WholePass(rank, whole);
  // Ends, since each part has fewer tokens until no rank has more than kPassTokens, which fit.
  std::vector<Pass> passes = {whole};  // the next one last
  while (!passes.empty()) {
    const Pass pass = passes.back();
    passes.pop_back();
    OCTET_ASSIGN_OR_RETURN(const int parts, PassIfRoom(rank, pass));
    for (int i = parts - 1; i >= 0; --i) passes.push_back(PartOf(pass, i, parts));
  }
  return absl::OkStatus();
}

absl::Status MoeLayerOnNode::AllExperts(Rank& rank, const Tokens& tokens) {
  LayerWorkspace::OfRank& work = workspace_->of(rank);
  if (work.shared == nullptr || tokens.count == 0) return Experts(rank, tokens);
  const LayerWeights::OfRank& mine = weights_.of(rank);
  OCTET_RETURN_IF_ERROR(
      work.shared->Begin(rank, {.x = tokens.x,
                                .tokens = tokens.count,
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

absl::Status MoeLayerOnNode::Decode(Rank& rank, const Tokens& tokens) {
  LayerWorkspace::OfRank& work = workspace_->of(rank);
  const LayerWeights::OfRank& mine = weights_.of(rank);
  const DecodePath::Call call = {
      .x = tokens.x,
      .num_tokens = tokens.count,
      .tokens_of = tokens.count_of,
      .y = tokens.y,
      .weights = {.router = mine.router.data(),
                  .router_bias = mine.router_bias.data(),
                  .logit_bias = mine.logit_bias.empty() ? nullptr : mine.logit_bias.data(),
                  .routed = {.first = mine.first.data(),
                             .second = mine.second.data(),
                             .first_scales = mine.first_scales.data(),
                             .second_scales = mine.second_scales.data(),
                             .first_bias = FloatsOrNull(mine.first_bias),
                             .second_bias = FloatsOrNull(mine.second_bias)},
                  .shared = {.first = mine.shared_first.data(),
                             .second = mine.shared_second.data()}},
      .placement = tables_ == nullptr ? placement::PlacementTable() : tables_->of(rank),
      .logits = reinterpret_cast<float*>(work.logits.data()),
      .topk_idx = reinterpret_cast<int32_t*>(work.topk_idx.data()),
      .topk_weights = reinterpret_cast<float*>(work.topk_weights.data())};
  OCTET_RETURN_IF_ERROR(workspace_->decode()->Enqueue(rank, call));
  return Enqueued(rank, LayerPart::kCombine);
}

absl::Status MoeLayerOnNode::ForwardTokens(Rank& rank, const Tokens& tokens) {
  OCTET_RETURN_IF_ERROR(CheckTokens(rank, tokens));
  CaptureNeeds::Add(rank, need_);
  const CallerScope scope(rank, caller_.id());
  if (LoadCounting* const counting = workspace_->placed_counting(); counting != nullptr) {
    counting->SetLocals(rank, tables_->locals(rank));
  }
  if (workspace_->decode() != nullptr) return Decode(rank, tokens);
  workspace_->of(rank).observer = observer_;
  OCTET_RETURN_IF_ERROR(Route(rank, tokens));
  return AllExperts(rank, tokens);
}

absl::Status MoeLayerOnNode::Forward(Rank& rank, const void* x, int num_tokens, void* y) {
  return ForwardTokens(rank, {.x = x, .count = num_tokens, .y = y});
}

absl::Status MoeLayerOnNode::Forward(Rank& rank, const void* x, const int32_t* num_tokens,
                                     void* y) {
  if (workspace_->decode() == nullptr) {
    return absl::UnimplementedError(
        "MoeLayer::Forward with num_tokens in GPU memory needs MoeLayerConfig::path decode, and "
        "this layer has launches: the numbers of its launches follow from num_tokens");
  }
  if (num_tokens == nullptr) {
    return absl::InvalidArgumentError("num_tokens, an address in GPU memory, must not be null");
  }
  return ForwardTokens(
      rank, {.x = x, .count = config().max_tokens_per_rank, .y = y, .count_of = num_tokens});
}

absl::StatusOr<ExpertLoads> MoeLayerOnNode::Loads() const {
  OCTET_ASSIGN_OR_RETURN(ExpertLoads loads, workspace_->Loads());
  const size_t experts = Size(config().num_experts);
  for (size_t i = experts; i < loads.rows.size(); ++i) {  // of experts that several ranks count
    loads.rows[i % experts] += loads.rows[i];
    loads.window[i % experts] += loads.window[i];
  }
  loads.rows.resize(experts);
  loads.window.resize(experts);
  return loads;
}

absl::Status MoeLayerOnNode::CheckMoves(absl::string_view call) const {
  if (config().placement.empty()) {
    return absl::UnimplementedError(
        absl::StrCat(call, " needs a layer with a placement (MoeLayerConfig::placement)"));
  }
  if (moves_ == nullptr) {
    return absl::UnimplementedError(absl::StrCat(
        call,
        ": experts of a layer over several nodes cannot be moved; make it with the placement "
        "that it is to have"));
  }
  if (loaded_) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(call, " needs weights: call Load first"));
}

absl::Status MoeLayerOnNode::Prepare(Rank& rank, const Placement& placement, int max_blocks) {
  OCTET_RETURN_IF_ERROR(CheckMoves("MoeLayer::Prepare"));
  const CallerScope scope(rank, caller_.id());
  return moves_->Prepare(rank, placement, max_blocks);
}

absl::Status MoeLayerOnNode::Apply(Rank& rank) {
  OCTET_RETURN_IF_ERROR(CheckMoves("MoeLayer::Apply"));
  const CallerScope scope(rank, caller_.id());
  return moves_->Apply(rank);
}

RoutedTokens MoeLayerOnNode::Routed(const Rank& rank) const {
  const LayerWorkspace::OfRank& work = workspace_->of(rank);
  return {.logits = reinterpret_cast<const float*>(work.logits.data()),
          .stride = LogitStride(config()),
          .topk_idx = reinterpret_cast<const int32_t*>(work.topk_idx.data()),
          .topk_weights = reinterpret_cast<const float*>(work.topk_weights.data())};
}

// Whether the memory of a layer serves another one.
bool CanShare(MoeLayerConfig a, MoeLayerConfig b) {
  if (a.placement.slots().size() != b.placement.slots().size()) return false;
  a.placement = Placement();
  b.placement = Placement();
  return a == b;
}

absl::StatusOr<std::unique_ptr<PlacementTables>> MakeTables(Domain& domain,
                                                            const MoeLayerConfig& config,
                                                            const std::string& name) {
  const bool decodes = config.path == LayerPath::kDecode;
  return PlacementTables::Create(
      domain, config.placement,
      {.topk = config.topk,
       .max_tokens = decodes ? 0 : config.max_tokens_per_rank,
       .sources = decodes ? PlacementTables::Sources::kAllRanks : PlacementTables::Sources::kOwn,
       .name = name});
}

// Not collective: all nodes of the domain must have agreed on the arguments.
absl::StatusOr<std::unique_ptr<MoeLayer>> MakeMoeLayer(Domain& domain, const MoeLayerConfig& config,
                                                       const MoeLayerOptions& options) {
  OCTET_RETURN_IF_ERROR(Validate(config, NodesOf(domain, options.rails.intranode_order)));
  const MoeLayer* const share = options.share;
  std::shared_ptr<LayerWorkspace> workspace;
  if (share == nullptr) {
    OCTET_ASSIGN_OR_RETURN(workspace, LayerWorkspace::Create(domain, config, options));
  } else {
    const auto* const other = dynamic_cast<const MoeLayerOnNode*>(share);
    if (other == nullptr || !CanShare(other->workspace()->requested(), config)) {
      return absl::InvalidArgumentError(
          "MoeLayerOptions::share must be a layer that was created with an equal configuration, or "
          "one with another placement of as many slots");
    }
    workspace = other->workspace();
    if (workspace->layer_ranks().nodes.num_nodes != domain.num_nodes()) {
      return absl::InvalidArgumentError(absl::StrCat(
          "the layer to share memory with is one of ", workspace->layer_ranks().nodes.num_nodes,
          " nodes; it must be one of ", domain.num_nodes()));
    }
  }
  MoeLayerConfig chosen = workspace->config();
  chosen.placement = config.placement;
  std::unique_ptr<PlacementTables> tables;
  if (!config.placement.empty()) {
    OCTET_ASSIGN_OR_RETURN(tables, MakeTables(domain, chosen, options.name));
  }
  Node& node = domain.node();
  auto layer = std::make_unique<MoeLayerOnNode>(node, chosen, std::move(workspace),
                                                std::move(tables), options.name);
  OCTET_RETURN_IF_ERROR(layer->Init(domain.several_nodes(), options.name));
  return layer;
}

}  // namespace

absl::StatusOr<std::unique_ptr<MoeLayer>> MoeLayer::Create(Domain& domain,
                                                           const MoeLayerConfig& config,
                                                           const MoeLayerOptions& options) {
  return MakeOnAllNodes<MoeLayer>(
      domain, "MoeLayer::Create", [&] { return TextOf(config, options); },
      [&] { return MakeMoeLayer(domain, config, options); },
      [&](const MoeLayer& made) { return TextOf(made.config(), options); });
}

}  // namespace octet
