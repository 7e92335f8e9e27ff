#include "kernels/fused/routed_experts.h"

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "kernels/ep/base/check_pointers.h"
#include "kernels/ep/ep_calls.h"
#include "kernels/ep/layer_parts.h"
#include "kernels/ep/on_all_nodes.h"
#include "kernels/ep/traffic.h"
#include "kernels/fused/choose_fusion.h"
#include "kernels/fused/dispatch_gemm.h"
#include "kernels/fused/fused_config.h"
#include "kernels/fused/fused_trace.h"
#include "kernels/fused/gemm_combine.h"
#include "kernels/fused/products.h"
#include "kernels/gemm/gemm_config.h"
#include "kernels/gemm/product_params.h"
#include "kernels/high_throughput/layout.h"
#include "kernels/types/row_quantizer.h"
#include "octet/domain.h"
#include "octet/grouped_gemm.h"
#include "octet/trace.h"
#include "runtime/base/status_macros.h"
#include "runtime/memory/node_memory.h"

namespace octet {
namespace {

// The most dispatches of a rank whose rows are valid at the same time.
constexpr size_t kBatches = 2;

absl::Status CheckTrace(const ExpertParallelOptions& options) {
  const TraceCollector* const trace = options.trace;
  if (trace == nullptr || trace->tracks() >= RoutedExperts::kTraceTracks) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("ExpertParallelOptions::trace has ", trace->tracks(),
                   " tracks for each block; experts need ", RoutedExperts::kTraceTracks));
}

// Weights have scales if their format has some, and only then.
absl::Status CheckScales(const GroupedGemmConfig& product, const void* b_scales) {
  const WeightFormatInfo& weights = InfoOf(product.weight_format());
  if (weights.format.has_scales() || b_scales == nullptr) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("b_scales must be null: ", weights.title, " weights have no scales"));
}

// Returns the weights that a product reads.
NamedRoom RoomOfWeights(const GroupedGemmConfig& product, const void* b) {
  const auto experts = static_cast<size_t>(product.experts);
  return {"b", b, experts, WeightBytes(product) / experts};
}
NamedRoom RoomOfScales(const GroupedGemmConfig& product, const void* b_scales) {
  return {"b_scales", b_scales,
          static_cast<size_t>(product.experts) * static_cast<size_t>(product.weight_scale_rows()),
          static_cast<size_t>(product.scale_words()) * sizeof(uint32_t)};
}
NamedRoom RoomOfBias(const GroupedGemmConfig& product, const float* bias) {
  return {"bias", bias, static_cast<size_t>(product.experts),
          static_cast<size_t>(product.n) * sizeof(float), true};
}

// A configuration before its fusions were chosen, and after that.
struct Configs {
  const RoutedExpertsConfig& asked;
  const RoutedExpertsConfig& chosen;
};

class RoutedExpertsOnNode final : public RoutedExperts {
 public:
  RoutedExpertsOnNode(Node& node, const Configs& configs, std::unique_ptr<EpCalls> calls,
                      const ExpertParallelOptions& options, int num_ranks)
      : node_(node.Share()),
        num_ranks_(num_ranks),
        takes_every_dispatch_(configs.asked.dispatch_gemm == Fusion::kAuto),
        config_(configs.chosen),
        use_measured_tuning_(options.use_measured_tuning),
        trace_(options.trace),
        ep_(std::move(calls)),
        memory_(node),
        ranks_(static_cast<size_t>(node.num_ranks())) {
    config_.ep = ep_.config();
  }
  ~RoutedExpertsOnNode() override;
  RoutedExpertsOnNode(const RoutedExpertsOnNode&) = delete;
  RoutedExpertsOnNode& operator=(const RoutedExpertsOnNode&) = delete;

  const RoutedExpertsConfig& config() const override { return config_; }
  ExpertParallel& ep() override { return ep_; }
  Traffic DispatchGemmTraffic(int rank, absl::Span<const int32_t> topk_idx) const override;
  absl::StatusOr<FusedReceived> DispatchGemm(Rank& rank, const DispatchGemmArgs& args) override {
    return DispatchGemm(rank, args, false);
  }
  absl::Status GemmCombine(Rank& rank, const FusedReceived& received,
                           const GemmCombineArgs& args) override;

  // On the rank's thread inside Run, before any call.
  absl::Status InitRank(Rank& rank);
  // After it: adds to config() what the ranks have chosen.
  void NoteTuning();

 private:
  void Observe(LayerPartObserver* observer) override { observer_ = observer; }
  absl::StatusOr<FusedReceived> DispatchGemmIfRoom(Rank& rank,
                                                   const DispatchGemmArgs& args) override {
    return DispatchGemm(rank, args, true);
  }
  absl::StatusOr<FusedReceived> DispatchGemm(Rank& rank, const DispatchGemmArgs& args,
                                             bool may_lack_room);
  absl::Status Enqueued(Rank& rank, LayerPart part) const {
    return observer_ == nullptr ? absl::OkStatus() : observer_->PartEnqueued(rank, part);
  }

  struct RankState {
    GroupedGemmConfig first_config;
    GroupedGemmVariant first_variant = {};  // with the tile shape in use
    GroupedGemmConfig second_config;
    GroupedGemmVariant second_variant = {};
    std::unique_ptr<GroupedGemm> first;
    std::unique_ptr<GroupedGemm> second;
    void* second_out = nullptr;  // null: the received rows' memory
    // Quantizes the rows of the second product into `quantized`, if second_format asks for it.
    std::optional<RowQuantizer> quantizer;
    void* quantized = nullptr;
    void* quantized_scales = nullptr;
    // The calls of the last combined dispatches, each at its number modulo kBatches.
    std::array<uint64_t, kBatches> combined = {};
  };

  RankState& StateOf(const Rank& rank) { return ranks_[static_cast<size_t>(rank.rank())]; }
  const RankState& StateOf(const Rank& rank) const {
    return ranks_[static_cast<size_t>(rank.rank())];
  }
  absl::StatusOr<std::unique_ptr<GroupedGemm>> MakeProduct(const Rank& rank,
                                                           GroupedGemmConfig product) const;
  // The kernels of a product that is fused with dispatch or combine, and their parameters.
  GroupedGemmVariant FusedVariant(const GroupedGemmConfig& product, GemmTiles tiles) const {
    return FusedVariantOf(product, tiles, trace_ != nullptr);
  }
  GroupedGemmParams FusedParams(const Rank& rank, const GroupedGemmConfig& product,
                                const GroupedGemmArgs& args) const;
  // The parts of InitRank that are of DispatchGemm and of GemmCombine.
  absl::Status InitFirst(Rank& rank, RankState& mine);
  absl::Status InitSecond(Rank& rank, RankState& mine);
  absl::Status InitQuantizer(RankState& mine);
  // Enqueues the second product.
  static absl::Status RunSecond(const Rank& rank, const RankState& mine, GroupedGemmArgs product);
  absl::Status CheckDispatchGemm(const Rank& rank, const DispatchGemmArgs& args) const;
  absl::Status CheckGemmCombine(const Rank& rank, const GemmCombineArgs& args,
                                const CombineRequest& combine) const;
  // Whether one kernel makes this DispatchGemm.
  bool IsFused(const DispatchArgs& args) const;
  // Enqueues a DispatchGemm as its parts. Its own arguments are checked, those of the dispatch not.
  absl::StatusOr<Received> DispatchThenGemm(Rank& rank, const DispatchGemmArgs& args,
                                            bool may_lack_room);
  // The same as one kernel.
  absl::StatusOr<Received> DispatchWithGemm(Rank& rank, const DispatchGemmArgs& args,
                                            bool may_lack_room);

  const std::shared_ptr<Node> node_;
  const int num_ranks_;  // of all nodes
  // kAuto: the kernels of separate calls take what the kernel of both does not.
  const bool takes_every_dispatch_;
  RoutedExpertsConfig config_;
  const bool use_measured_tuning_;
  TraceCollector* const trace_;  // or null
  ExpertParallel ep_;
  LayerPartObserver* observer_ = nullptr;
  NodeMemory memory_;
  std::vector<RankState> ranks_;
};

RoutedExpertsOnNode::~RoutedExpertsOnNode() {
  if (node_->ReadyToFree()) return;
  for (RankState& mine : ranks_) {  // freeing would wait for work that does not end
    [[maybe_unused]] const GroupedGemm* const first = mine.first.release();
    [[maybe_unused]] const GroupedGemm* const second = mine.second.release();
  }
}

absl::StatusOr<std::unique_ptr<GroupedGemm>> RoutedExpertsOnNode::MakeProduct(
    const Rank& rank, GroupedGemmConfig product) const {
  product.use_measured_tuning = use_measured_tuning_;
  return GroupedGemm::Create(product, {.trace = trace_,
                                       .rank = rank.rank(),
                                       .first_track = fused::kFirstProductTrack,
                                       .first_tag = fused::FirstProductTag(ep_)});
}

GroupedGemmParams RoutedExpertsOnNode::FusedParams(const Rank& rank,
                                                   const GroupedGemmConfig& product,
                                                   const GroupedGemmArgs& args) const {
  GroupedGemmParams params = ParamsOf(product, args);
  if (trace_ == nullptr) return params;
  params.trace = {.buffer = trace_->buffer(rank.rank()),
                  .first_track = fused::kFirstProductTrack,
                  .first_tag = fused::FirstProductTag(ep_)};
  return params;
}

// Prepares a kernel of dispatch or combine with a product, which has few tile shapes. If they are
// left open: those that the product has by itself, else the others if there is no room for them.
// Returns which.
absl::StatusOr<GemmTiles> PrepareTiles(const FusedTuning& tuning, const GroupedGemm& product,
                                       absl::FunctionRef<absl::Status(GemmTiles)> prepare) {
  const bool medium = product.tiles() == GemmTiles::kMedium;
  const GemmTiles tiles = tuning.tiles.value_or(medium ? GemmTiles::kMedium : GemmTiles::kWide);
  absl::Status status = prepare(tiles);
  if (status.ok()) return tiles;
  if (tuning.tiles.has_value() || !absl::IsUnimplemented(status)) return status;
  const GemmTiles others = medium ? GemmTiles::kWide : GemmTiles::kMedium;
  OCTET_RETURN_IF_ERROR(prepare(others));
  return others;
}

absl::Status RoutedExpertsOnNode::InitSecond(Rank& rank, RankState& mine) {
  mine.second_config = SecondProduct(config_, num_ranks_);
  OCTET_ASSIGN_OR_RETURN(mine.second, MakeProduct(rank, mine.second_config));
  if (mine.second_config.row_format().has_scales()) return InitQuantizer(mine);
  if (!IsOneKernel(config_.gemm_combine)) return absl::OkStatus();
  OCTET_ASSIGN_OR_RETURN(
      const GemmTiles tiles,
      PrepareTiles(config_.gemm_combine_tuning, *mine.second, [&](GemmTiles prepared) {
        const fused::GemmCombine product(FusedVariant(mine.second_config, prepared),
                                         ParamsOf(mine.second_config, {}), config_.gemm_combine);
        return ep_.calls().PrepareGemmCombine(rank, product);
      }));
  mine.second_variant = FusedVariant(mine.second_config, tiles);
  return absl::OkStatus();
}

absl::Status RoutedExpertsOnNode::InitQuantizer(RankState& mine) {
  OCTET_ASSIGN_OR_RETURN(mine.quantizer,
                         RowQuantizer::Create({.dtype = config_.ep.dtype,
                                               .columns = config_.intermediate,
                                               .scale_format = config_.ep.scale_format,
                                               .max_rows = config_.ep.max_rows(num_ranks_)}));
  OCTET_ASSIGN_OR_RETURN(const absl::Span<char> rows,
                         memory_.Device<char>(mine.quantizer->Fp8Bytes()));
  OCTET_ASSIGN_OR_RETURN(const absl::Span<char> scales,
                         memory_.Device<char>(mine.quantizer->ScaleBytes()));
  mine.quantized = rows.data();
  mine.quantized_scales = scales.data();
  return absl::OkStatus();
}

absl::Status RoutedExpertsOnNode::InitFirst(Rank& rank, RankState& mine) {
  mine.first_config = FirstProduct(config_, num_ranks_);
  OCTET_ASSIGN_OR_RETURN(mine.first, MakeProduct(rank, mine.first_config));
  GemmTiles tiles = mine.first->tiles();
  if (config_.dispatch_gemm == Fusion::kTiles) {
    OCTET_ASSIGN_OR_RETURN(
        tiles, PrepareTiles(config_.dispatch_gemm_tuning, *mine.first, [&](GemmTiles prepared) {
          const fused::DispatchGemm product(FusedVariant(mine.first_config, prepared), {}, false);
          return ep_.calls().PrepareDispatchGemm(rank, product);
        }));
  }
  mine.first_variant = FusedVariant(mine.first_config, tiles);
  return absl::OkStatus();
}

absl::Status RoutedExpertsOnNode::InitRank(Rank& rank) {
  RankState& mine = StateOf(rank);
  const EpConfig& ep = config_.ep;
  OCTET_RETURN_IF_ERROR(InitFirst(rank, mine));
  OCTET_RETURN_IF_ERROR(InitSecond(rank, mine));
  if (SecondProductInPlace(ep)) return absl::OkStatus();
  const size_t bytes = static_cast<size_t>(ep.max_rows(num_ranks_)) * ep.dtype_row_bytes();
  OCTET_ASSIGN_OR_RETURN(const absl::Span<char> out, memory_.Device<char>(bytes));
  mine.second_out = out.data();
  return absl::OkStatus();
}

void RoutedExpertsOnNode::NoteTuning() {
  if (IsOneKernel(config_.dispatch_gemm)) {
    const GroupedGemmVariant& variant = ranks_.front().first_variant;
    config_.dispatch_gemm_tuning.tiles = variant.tiles;
    fused::ChooseShares(variant, config_.dispatch_gemm_tuning);
  }
  if (!IsOneKernel(config_.gemm_combine)) return;
  config_.gemm_combine_tuning.tiles = ranks_.front().second_variant.tiles;
  config_.gemm_combine_tuning.row_parts = config_.ep.tuning.row_parts;
}

Traffic RoutedExpertsOnNode::DispatchGemmTraffic(int rank,
                                                 absl::Span<const int32_t> topk_idx) const {
  if (config_.dispatch_gemm != Fusion::kTiles) return ep_.DispatchTraffic(rank, topk_idx);
  // Each choice is described and announced. Each peer gets all counts and two credits.
  const int num_ranks = node_->num_ranks();
  const high_throughput::Layout layout = high_throughput::MakeLayout(config_.ep, num_ranks);
  return TrafficOf({.once_per_rank = config_.dispatch_gemm_tuning.stages != 1,
                    .row = int64_t{layout.row_vecs} * static_cast<int64_t>(kVecBytes) +
                           int64_t{layout.scale_words} * static_cast<int64_t>(sizeof(uint32_t)),
                    .beside_choice = sizeof(high_throughput::RowOrigin) + sizeof(uint64_t),
                    .to_peer = (layout.num_counts + 2) * static_cast<int64_t>(sizeof(uint64_t))},
                   config_.ep, num_ranks, rank, topk_idx);
}

absl::Status RoutedExpertsOnNode::CheckDispatchGemm(const Rank& rank,
                                                    const DispatchGemmArgs& args) const {
  const GroupedGemmConfig product = FirstProduct(config_, num_ranks_);
  OCTET_RETURN_IF_ERROR(CheckScales(product, args.b_scales));
  OCTET_RETURN_IF_ERROR(CheckPointers(
      rank, {{"b", args.b}, {"b_scales", args.b_scales}, {"bias", args.bias}, {"out", args.out}}));
  const int tokens = std::max(args.dispatch.num_tokens, 0);
  OCTET_RETURN_IF_ERROR(CheckApart(
      rank, {"out", args.out, OutputRowBytes(product)},
      {{"b", args.b, WeightBytes(product)},
       {"x", args.dispatch.x, static_cast<size_t>(tokens) * config_.ep.dispatch_row_bytes()}}));
  return CheckRoom(
      rank, {RoomOfWeights(product, args.b),
             RoomOfScales(product, args.b_scales),
             RoomOfBias(product, args.bias),
             {"out", args.out, static_cast<size_t>(product.max_rows), OutputRowBytes(product)}});
}

absl::StatusOr<Received> RoutedExpertsOnNode::DispatchThenGemm(Rank& rank,
                                                               const DispatchGemmArgs& args,
                                                               bool may_lack_room) {
  OCTET_ASSIGN_OR_RETURN(
      const Received received,
      ep_.calls().Dispatch(rank, {.args = args.dispatch, .may_lack_room = may_lack_room}));
  OCTET_RETURN_IF_ERROR(Enqueued(rank, LayerPart::kDispatch));
  OCTET_RETURN_IF_ERROR(
      StateOf(rank).first->Run(FirstProductArgs(config_, args, received), rank.stream()));
  return received;
}

absl::StatusOr<Received> RoutedExpertsOnNode::DispatchWithGemm(Rank& rank,
                                                               const DispatchGemmArgs& args,
                                                               bool may_lack_room) {
  const RankState& mine = StateOf(rank);
  const fused::DispatchGemm product(
      mine.first_variant, FusedParams(rank, mine.first_config, FirstProductArgs(config_, args, {})),
      config_.weights_in == WeightsIn::kFirstProduct, config_.dispatch_gemm_tuning);
  return ep_.calls().Dispatch(
      rank, {.args = args.dispatch, .product = &product, .may_lack_room = may_lack_room});
}

bool RoutedExpertsOnNode::IsFused(const DispatchArgs& args) const {
  if (config_.dispatch_gemm != Fusion::kTiles) return false;
  const bool plain =
      args.high_throughput.cached == nullptr && args.high_throughput.scatter_idx == nullptr;
  return plain || !takes_every_dispatch_;
}

absl::StatusOr<FusedReceived> RoutedExpertsOnNode::DispatchGemm(Rank& rank,
                                                                const DispatchGemmArgs& args,
                                                                bool may_lack_room) {
  OCTET_RETURN_IF_ERROR(CheckDispatchGemm(rank, args));
  OCTET_ASSIGN_OR_RETURN(const Received received,
                         IsFused(args.dispatch) ? DispatchWithGemm(rank, args, may_lack_room)
                                                : DispatchThenGemm(rank, args, may_lack_room));
  OCTET_RETURN_IF_ERROR(Enqueued(rank, LayerPart::kFirstProduct));
  return FusedReceived{.received = received, .h = args.out};
}

absl::Status RoutedExpertsOnNode::CheckGemmCombine(const Rank& rank, const GemmCombineArgs& args,
                                                   const CombineRequest& combine) const {
  const DispatchHandle& handle = combine.handle;
  const GroupedGemmConfig& product = StateOf(rank).second_config;
  OCTET_RETURN_IF_ERROR(CheckScales(product, args.b_scales));
  OCTET_RETURN_IF_ERROR(CheckPointers(
      rank, {{"a", args.a}, {"b", args.b}, {"b_scales", args.b_scales}, {"bias", args.bias}}));
  if (args.a == combine.args.expert_out) {
    return absl::InvalidArgumentError("a must not be received.x, which GemmCombine overwrites");
  }
  const size_t a_row = static_cast<size_t>(config_.intermediate) * InfoOf(config_.ep.dtype).bytes;
  const size_t y_bytes = static_cast<size_t>(handle.num_tokens) * config_.ep.dtype_row_bytes();
  OCTET_RETURN_IF_ERROR(CheckApart(rank, {"y", args.y, y_bytes},
                                   {{"a", args.a, a_row}, {"b", args.b, WeightBytes(product)}}));
  OCTET_RETURN_IF_ERROR(
      CheckRoom(rank, {{"a", args.a, static_cast<size_t>(product.max_rows), a_row},
                       RoomOfWeights(product, args.b),
                       RoomOfScales(product, args.b_scales),
                       RoomOfBias(product, args.bias)}));
  OCTET_RETURN_IF_ERROR(ep_.calls().CheckCombine(rank, combine));
  if (StateOf(rank).combined[handle.call % kBatches] != handle.call) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("dispatch ", handle.call,
                   " of this rank has been combined; GemmCombine takes each DispatchGemm once"));
}

absl::Status RoutedExpertsOnNode::RunSecond(const Rank& rank, const RankState& mine,
                                            GroupedGemmArgs product) {
  if (mine.quantizer.has_value()) {
    // Rows of padding are quantized, too, whatever they hold: the product does not read them.
    OCTET_RETURN_IF_ERROR(
        mine.quantizer->Run({.x = product.a,
                             .fp8 = mine.quantized,
                             .scales = mine.quantized_scales,
                             .num_rows = product.expert_offsets + mine.second_config.experts},
                            rank.stream()));
    product.a = mine.quantized;
    product.a_scales = mine.quantized_scales;
  }
  return mine.second->Run(product, rank.stream());
}

absl::Status RoutedExpertsOnNode::GemmCombine(Rank& rank, const FusedReceived& received,
                                              const GemmCombineArgs& args) {
  const DispatchHandle& handle = received.received.handle;
  OCTET_RETURN_IF_ERROR(ep_.calls().CheckReceivedIsValid(rank, handle));
  RankState& mine = StateOf(rank);
  // The rows are memory of ep_, and its contract allows expert_out to be there.
  void* const out =
      mine.second_out != nullptr ? mine.second_out : const_cast<void*>(received.received.x);
  CombineRequest combine = {
      .handle = handle,
      .args = {.expert_out = out,
               .y = args.y,
               .bias = args.y_bias,
               .high_throughput = {.unweighted = config_.weights_in == WeightsIn::kFirstProduct}}};
  OCTET_RETURN_IF_ERROR(CheckGemmCombine(rank, args, combine));
  const GroupedGemmArgs product = SecondProductArgs(args, received.received, out);
  if (IsOneKernel(config_.gemm_combine)) {
    const fused::GemmCombine fused(
        mine.second_variant, FusedParams(rank, mine.second_config, product), config_.gemm_combine,
        config_.gemm_combine_tuning, received.received.sources);
    combine.product = &fused;
    OCTET_RETURN_IF_ERROR(ep_.calls().Combine(rank, combine));
  } else {
    OCTET_RETURN_IF_ERROR(RunSecond(rank, mine, product));
    OCTET_RETURN_IF_ERROR(Enqueued(rank, LayerPart::kSecondProduct));
    OCTET_RETURN_IF_ERROR(ep_.calls().Combine(rank, combine));
  }
  mine.combined[handle.call % kBatches] = handle.call;
  return Enqueued(rank, LayerPart::kCombine);
}

}  // namespace

absl::StatusOr<std::unique_ptr<RoutedExperts>> RoutedExperts::Create(
    Domain& domain, const RoutedExpertsConfig& config, const ExpertParallelOptions& options) {
  return MakeOnAllNodes<RoutedExperts>(
      domain, "RoutedExperts::Create", [&] { return TextOf(config, options.rails); },
      [&] { return MakeRoutedExperts(domain, config, options); },
      [&](const RoutedExperts& made) { return TextOf(made.config(), options.rails); });
}

absl::StatusOr<std::unique_ptr<RoutedExperts>> MakeRoutedExperts(
    Domain& domain, const RoutedExpertsConfig& config, const ExpertParallelOptions& options) {
  OCTET_RETURN_IF_ERROR(CheckFusedConfig(config));
  OCTET_RETURN_IF_ERROR(CheckTrace(options));
  RoutedExpertsConfig asked = config;
  if (HasRails(domain)) OCTET_RETURN_IF_ERROR(ChooseNoFusion(asked));
  Node& node = domain.node();
  OCTET_ASSIGN_OR_RETURN(const RoutedExpertsConfig chosen, ChooseFusions(node, asked, options));
  OCTET_ASSIGN_OR_RETURN(std::unique_ptr<EpCalls> calls, MakeCalls(domain, chosen.ep, options));
  auto experts = std::make_unique<RoutedExpertsOnNode>(
      node, Configs{asked, chosen}, std::move(calls), options, domain.num_ranks());
  OCTET_RETURN_IF_ERROR(node.Run([&](Rank& rank) { return experts->InitRank(rank); }));
  experts->NoteTuning();
  return experts;
}

}  // namespace octet
