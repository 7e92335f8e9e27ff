#include "kernels/fused/fused_experts.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "kernels/check_pointers.h"
#include "kernels/ep_internals.h"
#include "kernels/fused/dispatch_gemm.h"
#include "kernels/fused/fused_trace.h"
#include "kernels/fused/fused_tuning.h"
#include "kernels/fused/gemm_combine.h"
#include "kernels/fused/products.h"
#include "kernels/gemm/product_params.h"
#include "kernels/high_throughput/layout.h"
#include "kernels/layer_parts.h"
#include "kernels/row_quantizer.h"
#include "kernels/strategy_base.h"
#include "kernels/traffic.h"
#include "kernels/tuning.h"
#include "octet/grouped_gemm.h"
#include "octet/trace.h"
#include "runtime/node_memory.h"
#include "runtime/status_macros.h"

namespace octet {
namespace {

// The columns of a pass of the product that combine is fused with, and the most passes of a
// product: bench/PERFORMANCE.md.
constexpr int kPassColumns = 512;
constexpr int kMostPasses = 4;

int BuiltInRowParts(const EpConfig& ep) {
  return std::clamp(ep.hidden / kPassColumns, 1, kMostPasses);
}

// The most dispatches of a rank whose rows are valid at the same time.
constexpr size_t kBatches = 2;

absl::Status Refuse(absl::string_view member, absl::string_view value, absl::string_view must) {
  return absl::InvalidArgumentError(
      absl::StrCat("FusedExpertsConfig::", member, " is ", value, "; ", must));
}

bool IsOneKernel(Fusion fusion) { return fusion != Fusion::kAuto && fusion != Fusion::kNone; }

absl::Status CheckEp(const EpConfig& ep) {
  if (ep.output != Output::kPackedExperts) {
    return Refuse("ep.output", EnumName(ep.output), "the products need packed rows");
  }
  const Duplicates duplicates = ep.high_throughput.duplicates;
  if (duplicates != Duplicates::kFill) {
    return Refuse("ep.high_throughput.duplicates", EnumName(duplicates),
                  "the products need a row for each choice, fill");
  }
  const DispatchFormat format = ep.dispatch_format;
  if (format == DispatchFormat::kSame) return absl::OkStatus();
  if (!ReceivesFp8(ep)) {
    return Refuse("ep.dispatch_format", EnumName(format), "it must be same, fp8 or quantized_fp8");
  }
  if (ep.scale_group != kGemmScaleGroup) {
    return Refuse("ep.scale_group", absl::StrCat(ep.scale_group),
                  absl::StrCat("products of FP8 rows need ", kGemmScaleGroup));
  }
  if (ep.dtype != DType::kBFloat16) {
    return Refuse("ep.dtype", EnumName(ep.dtype), "products of FP8 rows are bf16");
  }
  constexpr int kFp8Unit = 16;  // a row's bytes are whole vectors
  if (ep.hidden % kFp8Unit != 0) {
    return Refuse("ep.hidden", absl::StrCat(ep.hidden),
                  absl::StrCat("products of FP8 rows need a multiple of ", kFp8Unit));
  }
  return absl::OkStatus();
}

// The dispatch that is fused with a product is one of high_throughput.
absl::Status CheckTiles(const EpConfig& ep) {
  constexpr absl::string_view kMust = "the dispatch_gemm tiles needs ";
  if (ep.strategy != Strategy::kAuto && ep.strategy != Strategy::kHighThroughput) {
    return Refuse("ep.strategy", EnumName(ep.strategy), absl::StrCat(kMust, "high_throughput"));
  }
  const HighThroughputOptions& options = ep.high_throughput;
  if (options.expert_alignment != 1) {
    return Refuse("ep.high_throughput.expert_alignment", absl::StrCat(options.expert_alignment),
                  absl::StrCat(kMust, "1"));
  }
  if (!options.host_totals) return absl::OkStatus();
  return Refuse("ep.high_throughput.host_totals", "true", absl::StrCat(kMust, "false"));
}

// The rows of a product that scatters are those of combine's order `flat`, where it expects them.
absl::Status CheckEpilogue(const EpConfig& ep) {
  constexpr absl::string_view kMust = "the gemm_combine epilogue needs ";
  if (ep.combine_order != CombineOrder::kAuto && ep.combine_order != CombineOrder::kFlat) {
    return Refuse("ep.combine_order", EnumName(ep.combine_order),
                  absl::StrCat(kMust, "flat; with tiles, sums over a rank's rows leave early"));
  }
  if (ep.combine_method != CombineMethod::kAuto && ep.combine_method != CombineMethod::kPush) {
    return Refuse("ep.combine_method", EnumName(ep.combine_method), absl::StrCat(kMust, "push"));
  }
  return absl::OkStatus();
}

absl::Status CheckSecondFormat(const FusedExpertsConfig& config) {
  if (config.second_format == GemmFormat::kSame) return absl::OkStatus();
  if (config.ep.dtype != DType::kBFloat16) {
    return Refuse("ep.dtype", EnumName(config.ep.dtype), "products of FP8 rows are bf16");
  }
  if (IsOneKernel(config.gemm_combine)) {
    return Refuse("gemm_combine", EnumName(config.gemm_combine),
                  "with the second_format fp8 it must be auto or none");
  }
  return absl::OkStatus();
}

absl::Status CheckTuning(absl::string_view member, const FusedTuning& tuning) {
  constexpr int kMostPercent = 100;
  constexpr int kMostStages = 2;
  const auto check = [member](absl::string_view field, int value, int most) {
    if (value >= 0 && value <= most) return absl::OkStatus();
    return Refuse(absl::StrCat(member, ".", field), absl::StrCat(value),
                  absl::StrCat("it must be from 0 to ", most));
  };
  if (tuning.tiles.has_value() && !fused::CanFuse(*tuning.tiles)) {
    return Refuse(absl::StrCat(member, ".tiles"), EnumName(*tuning.tiles),
                  "it must be wide or medium");
  }
  OCTET_RETURN_IF_ERROR(check("send_percent", tuning.send_percent, kMostPercent));
  OCTET_RETURN_IF_ERROR(check("fill_percent", tuning.fill_percent, kMostPercent));
  OCTET_RETURN_IF_ERROR(check("combine_percent", tuning.combine_percent, kMostPercent));
  OCTET_RETURN_IF_ERROR(check("stages", tuning.stages, kMostStages));
  return check("row_parts", tuning.row_parts, kMaxRowParts);
}

absl::Status CheckConfig(const FusedExpertsConfig& config) {
  OCTET_RETURN_IF_ERROR(CheckEp(config.ep));
  const bool fp8 = config.second_format == GemmFormat::kFp8;
  const int unit = fp8 ? 16 : 8;
  if (config.intermediate < unit || config.intermediate % unit != 0) {
    return Refuse("intermediate", absl::StrCat(config.intermediate),
                  absl::StrCat("it must be a positive multiple of ", unit,
                               fp8 ? " with the second_format fp8" : ""));
  }
  OCTET_RETURN_IF_ERROR(CheckSecondFormat(config));
  OCTET_RETURN_IF_ERROR(CheckTuning("dispatch_gemm_tuning", config.dispatch_gemm_tuning));
  OCTET_RETURN_IF_ERROR(CheckTuning("gemm_combine_tuning", config.gemm_combine_tuning));
  if (config.weights_in == WeightsIn::kFirstProduct &&
      config.ep.strategy != Strategy::kHighThroughput) {
    return Refuse("weights_in", EnumName(config.weights_in),
                  absl::StrCat("that needs the strategy high_throughput, not ",
                               EnumName(config.ep.strategy)));
  }
  if (config.dispatch_gemm == Fusion::kSerial || config.dispatch_gemm == Fusion::kEpilogue) {
    return Refuse("dispatch_gemm", EnumName(config.dispatch_gemm), "only gemm_combine can be");
  }
  if (IsOneKernel(config.gemm_combine) && config.ep.strategy != Strategy::kHighThroughput) {
    return Refuse("gemm_combine", EnumName(config.gemm_combine),
                  absl::StrCat("that needs the strategy high_throughput, not ",
                               EnumName(config.ep.strategy)));
  }
  if (config.gemm_combine == Fusion::kEpilogue) OCTET_RETURN_IF_ERROR(CheckEpilogue(config.ep));
  return config.dispatch_gemm == Fusion::kTiles ? CheckTiles(config.ep) : absl::OkStatus();
}

absl::Status CheckTrace(const ExpertParallelOptions& options) {
  const TraceCollector* const trace = options.trace;
  if (trace == nullptr || trace->tracks() >= FusedExperts::kTraceTracks) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("ExpertParallelOptions::trace has ", trace->tracks(),
                   " tracks for each block; experts need ", FusedExperts::kTraceTracks));
}

absl::Status CheckNotNull(absl::string_view name, const void* pointer) {
  if (pointer != nullptr) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(name, " must not be null"));
}

// Scales belong to FP8 weights, and to them alone.
absl::Status CheckScales(bool fp8, const void* b_scales) {
  if (fp8) return CheckNotNull("b_scales", b_scales);
  if (b_scales == nullptr) return absl::OkStatus();
  return absl::InvalidArgumentError("b_scales must be null: only FP8 weights have scales");
}

class FusedExpertsOnNode final : public FusedExperts {
 public:
  FusedExpertsOnNode(Node& node, const FusedExpertsConfig& config, std::unique_ptr<CheckedEp> ep,
                     const ExpertParallelOptions& options, int num_ranks)
      : node_(node.Share()),
        num_ranks_(num_ranks),
        config_(config),
        use_measured_tuning_(options.use_measured_tuning),
        trace_(options.trace),
        ep_(std::move(ep)),
        memory_(node),
        ranks_(static_cast<size_t>(node.num_ranks())) {
    config_.ep = ep_->config();
  }
  ~FusedExpertsOnNode() override;
  FusedExpertsOnNode(const FusedExpertsOnNode&) = delete;
  FusedExpertsOnNode& operator=(const FusedExpertsOnNode&) = delete;

  const FusedExpertsConfig& config() const override { return config_; }
  ExpertParallel& ep() override { return *ep_; }
  Traffic DispatchGemmTraffic(int rank, absl::Span<const int32_t> topk_idx) const override;
  absl::StatusOr<FusedReceived> DispatchGemm(Rank& rank, const DispatchGemmArgs& args) override;
  absl::Status GemmCombine(Rank& rank, const FusedReceived& received,
                           const GemmCombineArgs& args) override;

  // On the rank's thread inside Run, before any call.
  absl::Status InitRank(Rank& rank);
  // After it: adds to config() what the ranks have chosen.
  void NoteTuning();

 private:
  void Observe(LayerPartObserver* observer) override { observer_ = observer; }
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
    // With second_format kFp8, what quantizes the rows of the second product, and where to.
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
  GroupedGemmVariant FusedVariant(const GroupedGemmConfig& product, GemmTiles tiles) const;
  GroupedGemmParams FusedParams(const Rank& rank, const GroupedGemmConfig& product,
                                const GroupedGemmArgs& args) const;
  // The part of InitRank that is of GemmCombine.
  absl::Status InitSecond(Rank& rank, RankState& mine);
  absl::Status InitQuantizer(RankState& mine);
  // Enqueues the second product.
  static absl::Status RunSecond(const Rank& rank, const RankState& mine, GroupedGemmArgs product);
  absl::Status CheckDispatchGemm(const Rank& rank, const DispatchGemmArgs& args) const;
  absl::Status CheckGemmCombine(const Rank& rank, const GemmCombineArgs& args,
                                const DispatchHandle& handle, const CombineArgs& combine) const;
  // Enqueues a DispatchGemm as its parts. Its own arguments are checked, those of the dispatch not.
  absl::StatusOr<Received> DispatchThenGemm(Rank& rank, const DispatchGemmArgs& args);
  // The same as one kernel.
  absl::StatusOr<Received> DispatchWithGemm(Rank& rank, const DispatchGemmArgs& args);

  const std::shared_ptr<Node> node_;
  const int num_ranks_;  // of all nodes
  FusedExpertsConfig config_;
  const bool use_measured_tuning_;
  TraceCollector* const trace_;  // or null
  const std::unique_ptr<CheckedEp> ep_;
  LayerPartObserver* observer_ = nullptr;
  NodeMemory memory_;
  std::vector<RankState> ranks_;
};

FusedExpertsOnNode::~FusedExpertsOnNode() {
  if (node_->ReadyToFree()) return;
  for (RankState& mine : ranks_) {  // freeing would wait for work that does not end
    [[maybe_unused]] const GroupedGemm* const first = mine.first.release();
    [[maybe_unused]] const GroupedGemm* const second = mine.second.release();
  }
}

absl::StatusOr<std::unique_ptr<GroupedGemm>> FusedExpertsOnNode::MakeProduct(
    const Rank& rank, GroupedGemmConfig product) const {
  product.use_measured_tuning = use_measured_tuning_;
  return GroupedGemm::Create(product, {.trace = trace_,
                                       .rank = rank.rank(),
                                       .first_track = fused::kFirstProductTrack,
                                       .first_tag = fused::FirstProductTag(*ep_)});
}

GroupedGemmVariant FusedExpertsOnNode::FusedVariant(const GroupedGemmConfig& product,
                                                    GemmTiles tiles) const {
  GroupedGemmVariant variant = VariantOf(product, tiles);
  variant.traced = trace_ != nullptr;
  return variant;
}

GroupedGemmParams FusedExpertsOnNode::FusedParams(const Rank& rank,
                                                  const GroupedGemmConfig& product,
                                                  const GroupedGemmArgs& args) const {
  GroupedGemmParams params = ParamsOf(product, args);
  if (trace_ == nullptr) return params;
  params.trace = {.buffer = trace_->buffer(rank.rank()),
                  .first_track = fused::kFirstProductTrack,
                  .first_tag = fused::FirstProductTag(*ep_)};
  return params;
}

// A kernel of dispatch or combine with a product has few tile shapes.
GemmTiles FusedTiles(const FusedTuning& tuning, const GroupedGemm& product) {
  if (tuning.tiles.has_value()) return *tuning.tiles;
  return fused::CanFuse(product.tiles()) ? product.tiles() : GemmTiles::kWide;
}

// Sets what `tuning` leaves open to what `other` has.
void Complete(FusedTuning& tuning, const FusedTuning& other) {
  if (!tuning.tiles.has_value()) tuning.tiles = other.tiles;
  if (!tuning.send_order.has_value()) tuning.send_order = other.send_order;
  if (!tuning.tile_waits.has_value()) tuning.tile_waits = other.tile_waits;
  for (int FusedTuning::* const field :
       {&FusedTuning::send_percent, &FusedTuning::fill_percent, &FusedTuning::combine_percent,
        &FusedTuning::row_parts, &FusedTuning::stages}) {
    if (tuning.*field == 0) tuning.*field = other.*field;
  }
}

// Makes the choices of one call that `config` leaves open and that can be made without its
// products.
void ChooseFusion(const std::optional<FusedChoice>& measured, Fusion& fusion, FusedTuning& tuning) {
  // What is faster depends on the shape and the GPU (bench/PERFORMANCE.md): only tuning can tell.
  if (fusion == Fusion::kAuto) fusion = measured.has_value() ? measured->fusion : Fusion::kNone;
  if (fusion == Fusion::kNone) return;
  if (measured.has_value() && measured->fusion == fusion) Complete(tuning, measured->tuning);
  FusedTuning built_in = fused::kBuiltInTuning;
  if (fusion != Fusion::kTiles) built_in.combine_percent = 0;
  Complete(tuning, built_in);
}

// Makes the choices of the ExpertParallel that the chosen fusions need.
void ChooseEp(FusedExpertsConfig& config) {
  EpConfig& ep = config.ep;
  if (config.dispatch_gemm == Fusion::kTiles) ep.high_throughput.row_arrivals = true;
  if (config.gemm_combine == Fusion::kEpilogue) {
    ep.combine_order = CombineOrder::kFlat;
    ep.combine_method = CombineMethod::kPush;
  }
  const bool has_parts =
      config.gemm_combine == Fusion::kTiles || config.gemm_combine == Fusion::kEpilogue;
  if (!has_parts || ep.tuning.row_parts != 0) return;
  ep.tuning.row_parts = config.gemm_combine_tuning.row_parts;
  if (ep.tuning.row_parts != 0) return;
  ep.tuning.row_parts = config.gemm_combine == Fusion::kTiles ? BuiltInRowParts(ep) : 1;
}

// Returns `config` with the fusions chosen. A measured one that the configuration excludes is not
// taken.
absl::StatusOr<FusedExpertsConfig> WithFusions(const Node& node, const FusedExpertsConfig& config,
                                               bool use_measured_tuning) {
  std::shared_ptr<const TuningTable> table = std::make_shared<TuningTable>();
  if (use_measured_tuning && config.ep.strategy == Strategy::kHighThroughput) {
    OCTET_ASSIGN_OR_RETURN(table, TuningTable::Default());
  }
  const auto measured = [&](FusedCall call, Fusion FusedExpertsConfig::* fusion) {
    std::optional<FusedChoice> choice =
        table->FindFusion(node.topology(), node.num_ranks(), call, config);
    if (!choice.has_value()) return choice;
    // What was measured does not change results, and the order of the sums would.
    if (choice->fusion == Fusion::kEpilogue && config.ep.combine_order != CombineOrder::kFlat) {
      return std::optional<FusedChoice>();
    }
    FusedExpertsConfig with = config;
    with.*fusion = choice->fusion;
    return CheckConfig(with).ok() ? choice : std::nullopt;
  };
  FusedExpertsConfig chosen = config;
  ChooseFusion(measured(FusedCall::kDispatchGemm, &FusedExpertsConfig::dispatch_gemm),
               chosen.dispatch_gemm, chosen.dispatch_gemm_tuning);
  ChooseFusion(measured(FusedCall::kGemmCombine, &FusedExpertsConfig::gemm_combine),
               chosen.gemm_combine, chosen.gemm_combine_tuning);
  ChooseEp(chosen);
  return chosen;
}

absl::Status FusedExpertsOnNode::InitSecond(Rank& rank, RankState& mine) {
  mine.second_config = SecondProduct(config_, num_ranks_);
  OCTET_ASSIGN_OR_RETURN(mine.second, MakeProduct(rank, mine.second_config));
  if (config_.second_format == GemmFormat::kFp8) return InitQuantizer(mine);
  if (!IsOneKernel(config_.gemm_combine)) return absl::OkStatus();
  mine.second_variant =
      FusedVariant(mine.second_config, FusedTiles(config_.gemm_combine_tuning, *mine.second));
  const fused::GemmCombine product(mine.second_variant, ParamsOf(mine.second_config, {}),
                                   config_.gemm_combine);
  return EpInternals::PrepareGemmCombine(*ep_, rank, product);
}

absl::Status FusedExpertsOnNode::InitQuantizer(RankState& mine) {
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

absl::Status FusedExpertsOnNode::InitRank(Rank& rank) {
  RankState& mine = StateOf(rank);
  const EpConfig& ep = config_.ep;
  const GroupedGemmConfig first = FirstProduct(config_, num_ranks_);
  OCTET_ASSIGN_OR_RETURN(mine.first, MakeProduct(rank, first));
  GemmTiles tiles = mine.first->tiles();
  if (config_.dispatch_gemm == Fusion::kTiles) {
    tiles = FusedTiles(config_.dispatch_gemm_tuning, *mine.first);
    const fused::DispatchGemm product(FusedVariant(first, tiles), {}, false);
    OCTET_RETURN_IF_ERROR(EpInternals::PrepareDispatchGemm(*ep_, rank, product));
  }
  mine.first_variant = FusedVariant(first, tiles);
  mine.first_config = first;
  OCTET_RETURN_IF_ERROR(InitSecond(rank, mine));
  if (SecondProductInPlace(ep)) return absl::OkStatus();
  const size_t bytes = static_cast<size_t>(ep.max_rows(num_ranks_)) * ep.dtype_row_bytes();
  OCTET_ASSIGN_OR_RETURN(const absl::Span<char> out, memory_.Device<char>(bytes));
  mine.second_out = out.data();
  return absl::OkStatus();
}

void FusedExpertsOnNode::NoteTuning() {
  if (IsOneKernel(config_.dispatch_gemm)) {
    const GroupedGemmVariant& variant = ranks_.front().first_variant;
    config_.dispatch_gemm_tuning.tiles = variant.tiles;
    fused::ChooseShares(variant, config_.dispatch_gemm_tuning);
  }
  if (!IsOneKernel(config_.gemm_combine)) return;
  config_.gemm_combine_tuning.tiles = ranks_.front().second_variant.tiles;
  config_.gemm_combine_tuning.row_parts = config_.ep.tuning.row_parts;
}

Traffic FusedExpertsOnNode::DispatchGemmTraffic(int rank,
                                                absl::Span<const int32_t> topk_idx) const {
  if (config_.dispatch_gemm != Fusion::kTiles) return ep_->DispatchTraffic(rank, topk_idx);
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

absl::Status FusedExpertsOnNode::CheckDispatchGemm(const Rank& rank,
                                                   const DispatchGemmArgs& args) const {
  OCTET_RETURN_IF_ERROR(CheckNotNull("b", args.b));
  OCTET_RETURN_IF_ERROR(CheckNotNull("out", args.out));
  OCTET_RETURN_IF_ERROR(CheckScales(ReceivesFp8(config_.ep), args.b_scales));
  return CheckPointers(
      rank, {{"b", args.b}, {"b_scales", args.b_scales}, {"bias", args.bias}, {"out", args.out}});
}

absl::StatusOr<Received> FusedExpertsOnNode::DispatchThenGemm(Rank& rank,
                                                              const DispatchGemmArgs& args) {
  OCTET_ASSIGN_OR_RETURN(const Received received, ep_->Dispatch(rank, args.dispatch));
  OCTET_RETURN_IF_ERROR(Enqueued(rank, LayerPart::kDispatch));
  OCTET_RETURN_IF_ERROR(
      StateOf(rank).first->Run(FirstProductArgs(config_, args, received), rank.stream()));
  return received;
}

absl::StatusOr<Received> FusedExpertsOnNode::DispatchWithGemm(Rank& rank,
                                                              const DispatchGemmArgs& args) {
  const RankState& mine = StateOf(rank);
  const fused::DispatchGemm product(
      mine.first_variant, FusedParams(rank, mine.first_config, FirstProductArgs(config_, args, {})),
      config_.weights_in == WeightsIn::kFirstProduct, config_.dispatch_gemm_tuning);
  return EpInternals::DispatchGemm(*ep_, rank, args.dispatch, product);
}

absl::StatusOr<FusedReceived> FusedExpertsOnNode::DispatchGemm(Rank& rank,
                                                               const DispatchGemmArgs& args) {
  OCTET_RETURN_IF_ERROR(CheckDispatchGemm(rank, args));
  OCTET_ASSIGN_OR_RETURN(const Received received, config_.dispatch_gemm == Fusion::kTiles
                                                      ? DispatchWithGemm(rank, args)
                                                      : DispatchThenGemm(rank, args));
  OCTET_RETURN_IF_ERROR(Enqueued(rank, LayerPart::kFirstProduct));
  return FusedReceived{.received = received, .h = args.out};
}

absl::Status FusedExpertsOnNode::CheckGemmCombine(const Rank& rank, const GemmCombineArgs& args,
                                                  const DispatchHandle& handle,
                                                  const CombineArgs& combine) const {
  OCTET_RETURN_IF_ERROR(CheckNotNull("a", args.a));
  OCTET_RETURN_IF_ERROR(CheckNotNull("b", args.b));
  OCTET_RETURN_IF_ERROR(CheckScales(config_.second_format == GemmFormat::kFp8, args.b_scales));
  OCTET_RETURN_IF_ERROR(CheckPointers(
      rank, {{"a", args.a}, {"b", args.b}, {"b_scales", args.b_scales}, {"bias", args.bias}}));
  if (args.a == combine.expert_out) {
    return absl::InvalidArgumentError("a must not be received.x, which GemmCombine overwrites");
  }
  OCTET_RETURN_IF_ERROR(ep_->CheckCombine(rank, handle, combine));
  if (StateOf(rank).combined[handle.call % kBatches] != handle.call) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("dispatch ", handle.call,
                   " of this rank has been combined; GemmCombine takes each DispatchGemm once"));
}

absl::Status FusedExpertsOnNode::RunSecond(const Rank& rank, const RankState& mine,
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

absl::Status FusedExpertsOnNode::GemmCombine(Rank& rank, const FusedReceived& received,
                                             const GemmCombineArgs& args) {
  const DispatchHandle& handle = received.received.handle;
  OCTET_RETURN_IF_ERROR(ep_->CheckReceivedIsValid(rank, handle));
  RankState& mine = StateOf(rank);
  // The rows are memory of ep_, and its contract allows expert_out to be there.
  void* const out =
      mine.second_out != nullptr ? mine.second_out : const_cast<void*>(received.received.x);
  const CombineArgs combine = {
      .expert_out = out,
      .y = args.y,
      .bias = args.y_bias,
      .high_throughput = {.unweighted = config_.weights_in == WeightsIn::kFirstProduct}};
  OCTET_RETURN_IF_ERROR(CheckGemmCombine(rank, args, handle, combine));
  const GroupedGemmArgs product = SecondProductArgs(args, received.received, out);
  if (IsOneKernel(config_.gemm_combine)) {
    OCTET_RETURN_IF_ERROR(EpInternals::GemmCombine(
        *ep_, rank, handle, combine,
        fused::GemmCombine(mine.second_variant, FusedParams(rank, mine.second_config, product),
                           config_.gemm_combine, config_.gemm_combine_tuning,
                           received.received.sources)));
  } else {
    OCTET_RETURN_IF_ERROR(RunSecond(rank, mine, product));
    OCTET_RETURN_IF_ERROR(Enqueued(rank, LayerPart::kSecondProduct));
    OCTET_RETURN_IF_ERROR(ep_->Combine(rank, handle, combine));
  }
  mine.combined[handle.call % kBatches] = handle.call;
  return Enqueued(rank, LayerPart::kCombine);
}

}  // namespace

absl::StatusOr<std::unique_ptr<FusedExperts>> FusedExperts::Create(
    Node& node, const FusedExpertsConfig& config, const ExpertParallelOptions& options) {
  return MakeFusedExperts(node, config, options, {node.num_ranks(), [&](const EpConfig& ep) {
                                                    return MakeStrategy(node, ep, options);
                                                  }});
}

absl::StatusOr<std::unique_ptr<FusedExperts>> MakeFusedExperts(Node& node,
                                                               const FusedExpertsConfig& config,
                                                               const ExpertParallelOptions& options,
                                                               const CallsOfExperts& calls) {
  OCTET_RETURN_IF_ERROR(CheckConfig(config));
  OCTET_RETURN_IF_ERROR(CheckTrace(options));
  OCTET_ASSIGN_OR_RETURN(const FusedExpertsConfig chosen,
                         WithFusions(node, config, options.use_measured_tuning));
  OCTET_ASSIGN_OR_RETURN(std::unique_ptr<CheckedEp> ep, calls.make(chosen.ep));
  auto experts =
      std::make_unique<FusedExpertsOnNode>(node, chosen, std::move(ep), options, calls.num_ranks);
  OCTET_RETURN_IF_ERROR(node.Run([&](Rank& rank) { return experts->InitRank(rank); }));
  experts->NoteTuning();
  return experts;
}

absl::Span<const EnumEntry<Fusion>> EnumTable(Fusion /*unused*/) {
  static constexpr EnumEntry<Fusion> kTable[] = {{Fusion::kAuto, "auto"},
                                                 {Fusion::kNone, "none"},
                                                 {Fusion::kTiles, "tiles"},
                                                 {Fusion::kSerial, "serial"},
                                                 {Fusion::kEpilogue, "epilogue"}};
  return kTable;
}

absl::Span<const EnumEntry<SendOrder>> EnumTable(SendOrder /*unused*/) {
  static constexpr EnumEntry<SendOrder> kTable[] = {{SendOrder::kExpert, "expert"},
                                                    {SendOrder::kToken, "token"}};
  return kTable;
}

absl::Span<const EnumEntry<TileWaits>> EnumTable(TileWaits /*unused*/) {
  static constexpr EnumEntry<TileWaits> kTable[] = {{TileWaits::kGroup, "group"},
                                                    {TileWaits::kExpert, "expert"}};
  return kTable;
}

absl::Span<const EnumEntry<WeightsIn>> EnumTable(WeightsIn /*unused*/) {
  static constexpr EnumEntry<WeightsIn> kTable[] = {{WeightsIn::kCombine, "combine"},
                                                    {WeightsIn::kFirstProduct, "first_product"}};
  return kTable;
}

}  // namespace octet
