#include "kernels/layer/layer_workspace.h"

#include <hip/hip_runtime.h>

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "kernels/ep/ep_calls.h"
#include "kernels/ep/ep_plan.h"
#include "kernels/ep/strategy_registry.h"
#include "kernels/fused/routed_experts.h"
#include "kernels/layer/add_shared.h"
#include "kernels/layer/layer_config.h"
#include "kernels/layer/weigh_input.h"
#include "kernels/router/few_tokens.h"
#include "kernels/router/route.h"
#include "kernels/router/route_params.h"
#include "kernels/tuning/tuning.h"
#include "octet/ep_config.h"
#include "octet/topology.h"
#include "runtime/base/size.h"
#include "runtime/base/status_macros.h"
#include "runtime/gpu/gpu_status.h"

namespace octet {
namespace {

static_assert(kMaxExperts <= kMostRoutedExperts);

bool IsFused(const MoeLayerConfig& config) {
  return config.fusion == Fusion::kTiles || config.fusion == Fusion::kSerial;
}

// The nodes that a choice is made for.
struct ChoiceNodes {
  const Topology& topology;
  const NodesOfRanks& nodes;
};

absl::StatusOr<Strategy> ChosenStrategy(const ChoiceNodes& of, const MoeLayerConfig& config) {
  OCTET_ASSIGN_OR_RETURN(const std::shared_ptr<const TuningTable> table, TuningTable::Default());
  OCTET_ASSIGN_OR_RETURN(const EpPlan plan,
                         EpPlan::Resolve(IntranodeConfig(ExpertsConfig(config).ep, of.nodes),
                                         of.nodes.ranks_per_node, of.topology, *table));
  return plan.config.strategy;
}

// Makes the choice of Strategy::kAuto where rows are quantized and a strategy that does so itself
// would be chosen if they were not: otherwise the format of rows that are quantized before dispatch
// would decide.
absl::Status ChooseQuantizingStrategy(const ChoiceNodes& of, MoeLayerConfig& config) {
  if (!QuantizesRows(config) || config.strategy != Strategy::kAuto || IsFused(config)) {
    return absl::OkStatus();
  }
  MoeLayerConfig plain = config;
  plain.weights = GemmFormat::kSame;
  plain.fp8_rows = false;
  OCTET_ASSIGN_OR_RETURN(const Strategy strategy, ChosenStrategy(of, plain));
  if (Takes(strategy, DispatchFormat::kQuantizedFp8)) config.strategy = strategy;
  return absl::OkStatus();
}

// Makes the choice of SharedExperts::kAuto as measured on an H200 (bench/PERFORMANCE.md): calls of
// few tokens gain, those of many do not, whose kernels leave nothing idle.
absl::Status ChooseSharedExperts(const ChoiceNodes& of, MoeLayerConfig& config) {
  constexpr int kMostTokens = 1024;
  if (config.shared_experts != SharedExperts::kAuto) return absl::OkStatus();
  config.shared_experts = SharedExperts::kAfter;
  if (config.shared_intermediate == 0 || config.max_tokens_per_rank > kMostTokens ||
      IsFused(config)) {
    return absl::OkStatus();
  }
  config.shared_experts = SharedExperts::kBeside;
  if (config.link_blocks != 0 || config.max_blocks != 0) return absl::OkStatus();
  OCTET_ASSIGN_OR_RETURN(const Strategy strategy, ChosenStrategy(of, config));
  if (!Has(strategy, &StrategyInfo::takes_all_units)) return absl::OkStatus();
  config.link_blocks = std::max(of.topology.gpus[0].num_compute_units / 2, 1);
  return absl::OkStatus();
}

// Returns for how many tokens of all ranks together a layer in one launch is the faster one, as
// measured (bench/PERFORMANCE.md): for more, products whose tiles take the tokens of one expert
// read as fast; sooner if there is an exchange, or FP8 or MXFP4 to be converted.
int MostDecodedTokens(const ChoiceNodes& of, const MoeLayerConfig& config) {
  constexpr int kMost = 8;
  constexpr int kOnOneGpu = 16;
  constexpr int kOfFp8 = 4;
  constexpr int kOfFp8OnOneGpu = 8;
  constexpr int kOfMxfp4OnOneGpu = 4;
  constexpr int kOfLargeExperts = 1;
  constexpr int64_t kLargeExpert = 16 << 20;  // bytes
  const bool one_gpu = of.nodes.ranks_per_node == 1;
  const int64_t weights = int64_t{3} * config.hidden * config.intermediate;
  if (config.weights == GemmFormat::kMxfp4) {
    if (!one_gpu) return 0;  // with an exchange it has not been measured
    return weights / 2 > kLargeExpert ? kOfLargeExperts : kOfMxfp4OnOneGpu;
  }
  if (ExpertWeights(config).has_scales()) {
    if (weights > kLargeExpert) return kOfLargeExperts;
    return one_gpu ? kOfFp8OnOneGpu : kOfFp8;
  }
  return one_gpu ? kOnOneGpu : kMost;
}

// Makes the choice of LayerPath::kAuto. What says how the launches are to be made asks for them.
LayerPath ChosenPath(Node& node, const ChoiceNodes& of, const MoeLayerConfig& config) {
  if (config.path != LayerPath::kAuto) return config.path;
  const int ranks = of.nodes.ranks_per_node;
  const bool open = config.strategy == Strategy::kAuto && config.link_blocks == 0 &&
                    config.capacity_rows == 0 && config.shared_experts == SharedExperts::kAuto;
  const bool decodes = open && of.nodes.num_nodes == 1 && of.topology.platform != "amd" &&
                       config.max_tokens_per_rank * ranks <= MostDecodedTokens(of, config) &&
                       CheckDecodes(config, ranks).ok() && DecodePath::CheckFits(node, config).ok();
  return decodes ? LayerPath::kDecode : LayerPath::kLaunches;
}

}  // namespace

absl::Status ChooseLaunches(const Topology& topology, const NodesOfRanks& nodes,
                            MoeLayerConfig& config) {
  OCTET_RETURN_IF_ERROR(ChooseQuantizingStrategy({topology, nodes}, config));
  return ChooseSharedExperts({topology, nodes}, config);
}

LayerWorkspace::~LayerWorkspace() {
  if (node_->ReadyToFree()) return;
  for (OfRank& mine : ranks_) {  // freeing would wait for work that does not end
    [[maybe_unused]] const GroupedGemm* const router = mine.router.release();
    SharedMlp::Abandon(std::move(mine.shared));
  }
}

absl::Status LayerWorkspace::PartEnqueued(Rank& rank, LayerPart part) {
  OfRank& mine = of(rank);
  if (mine.shared_runs) OCTET_RETURN_IF_ERROR(mine.shared->PartEnqueued(rank, part));
  return mine.observer == nullptr ? absl::OkStatus() : mine.observer->PartEnqueued(rank, part);
}

absl::Status LayerWorkspace::MakeProducts(OfRank& mine) {
  OCTET_ASSIGN_OR_RETURN(mine.router, GroupedGemm::Create(RouterProduct(config_)));
  // low_latency quantizes x itself.
  if (experts_->config().ep.x_scale_words() > 0) {
    OCTET_ASSIGN_OR_RETURN(mine.quantizer,
                           RowQuantizer::Create({.dtype = config_.dtype,
                                                 .columns = config_.hidden,
                                                 .max_rows = config_.max_tokens_per_rank}));
  }
  if (config_.shared_intermediate == 0) return absl::OkStatus();
  OCTET_ASSIGN_OR_RETURN(mine.shared, SharedMlp::Create(config_, memory_));
  return absl::OkStatus();
}

absl::Status LayerWorkspace::LoadKernels() const {
  const bool fp16 = config_.dtype == DType::kFloat16;
  OCTET_RETURN_IF_GPU_ERROR(LoadRoute(config_.num_experts));
  OCTET_RETURN_IF_GPU_ERROR(LoadRouteFewTokens(config_.num_experts, fp16));
  if (config_.shared_intermediate != 0) OCTET_RETURN_IF_GPU_ERROR(LoadAddShared(fp16));
  if (config_.weighs_input) OCTET_RETURN_IF_GPU_ERROR(LoadWeighInput(fp16));
  return absl::OkStatus();
}

absl::Status LayerWorkspace::AllocateRouted(OfRank& mine) {
  const size_t tokens = Size(config_.max_tokens_per_rank);
  OCTET_ASSIGN_OR_RETURN(mine.logits,
                         memory_.Device<char>(tokens * Size(LogitStride(config_)) * sizeof(float)));
  OCTET_ASSIGN_OR_RETURN(mine.topk_idx,
                         memory_.Device<char>(tokens * Size(config_.topk) * sizeof(int32_t)));
  OCTET_ASSIGN_OR_RETURN(mine.topk_weights,
                         memory_.Device<char>(tokens * Size(config_.topk) * sizeof(float)));
  return absl::OkStatus();
}

absl::Status LayerWorkspace::InitRank(Rank& rank) {
  OfRank& mine = of(rank);
  OCTET_RETURN_IF_ERROR(AllocateRouted(mine));
  OCTET_RETURN_IF_ERROR(MakeProducts(mine));
  OCTET_RETURN_IF_ERROR(LoadKernels());
  const size_t tokens = Size(config_.max_tokens_per_rank);
  const size_t element = InfoOf(config_.dtype).bytes;
  const EpConfig& ep = experts_->config().ep;
  struct Piece {
    absl::Span<char>* memory;
    size_t bytes;
  };
  const size_t fp8_bytes = mine.quantizer.has_value() ? mine.quantizer->Fp8Bytes() : 0;
  const size_t scale_bytes = mine.quantizer.has_value() ? mine.quantizer->ScaleBytes() : 0;
  for (const auto& [memory, bytes] : {
           Piece{&mine.h, Size(ep.max_rows(layer_ranks_.num_ranks())) * Size(config_.intermediate) *
                              element},
           Piece{&mine.x_fp8, fp8_bytes},
           Piece{&mine.x_scales, scale_bytes},
           Piece{&mine.weighed_x,
                 config_.weighs_input ? tokens * Size(config_.hidden) * element : 0},
           Piece{&mine.ones, config_.weighs_input ? tokens * sizeof(float) : 0},
       }) {
    OCTET_ASSIGN_OR_RETURN(*memory, memory_.Device<char>(bytes));
  }
  std::vector<int32_t> offsets(2 * (tokens + 1), 0);
  for (size_t t = 0; t <= tokens; ++t) offsets[2 * t + 1] = static_cast<int32_t>(t);
  const size_t part_words = LogitPartWords(LogitRows(config_));
  OCTET_ASSIGN_OR_RETURN(mine.logit_parts, memory_.Device<uint32_t>(part_words));
  OCTET_RETURN_IF_GPU_ERROR(
      hipMemset(mine.logit_parts.data(), kNoLogitPartByte, part_words * sizeof(uint32_t)));
  OCTET_ASSIGN_OR_RETURN(mine.offsets, memory_.Device<int32_t>(offsets.size()));
  return OCTET_GPU(hipMemcpy(mine.offsets.data(), offsets.data(), offsets.size() * sizeof(int32_t),
                             hipMemcpyHostToDevice));
}

absl::StatusOr<std::shared_ptr<LayerWorkspace>> LayerWorkspace::Create(
    Domain& domain, const MoeLayerConfig& requested, const MoeLayerOptions& options) {
  Node& node = domain.node();
  const NodesOfRanks nodes = NodesOf(domain, options.rails.intranode_order);
  auto workspace = std::make_shared<LayerWorkspace>(
      node, LayerRanks{.nodes = nodes, .node = domain.node_index()}, requested);
  MoeLayerConfig& config = workspace->config_;
  config.path = ChosenPath(node, {node.topology(), nodes}, config);
  if (config.path == LayerPath::kDecode) {
    config.fusion = Fusion::kNone;
    OCTET_ASSIGN_OR_RETURN(workspace->decode_, DecodePath::Create(node, config, options.trace));
    OCTET_RETURN_IF_ERROR(
        node.Run([&](Rank& rank) { return workspace->AllocateRouted(workspace->of(rank)); }));
  } else {
    OCTET_RETURN_IF_ERROR(workspace->MakeLaunches(domain, options.rails));
  }
  if (config.loads.count && !config.placement.empty() && !domain.several_nodes()) {
    OCTET_RETURN_IF_ERROR(workspace->CountLogicalExperts(node));
  }
  return workspace;
}

absl::Status LayerWorkspace::CountLogicalExperts(Node& node) {
  LoadCounting* const counting =
      decode_ != nullptr ? &decode_->load_counting() : experts_->ep().calls().load_counting();
  if (counting == nullptr) return absl::InternalError("the strategy counts no rows");
  OCTET_RETURN_IF_ERROR(
      node.Run([&](Rank& rank) { return counting->CountExperts(rank, config_.num_experts); }));
  placed_counting_ = counting;
  return absl::OkStatus();
}

absl::Status LayerWorkspace::MakeLaunches(Domain& domain, const RailOptions& rails) {
  OCTET_RETURN_IF_ERROR(ChooseLaunches(node_->topology(), layer_ranks_.nodes, config_));
  OCTET_ASSIGN_OR_RETURN(
      experts_, MakeRoutedExperts(domain, PhysicalExpertsConfig(config_), {.rails = rails}));
  const RoutedExpertsConfig& experts = experts_->config();
  config_.strategy = experts.ep.strategy;
  config_.fusion = experts.gemm_combine;
  LayerInternals::Observe(*experts_, this);
  return domain.node().Run([this](Rank& rank) { return InitRank(rank); });
}

}  // namespace octet
