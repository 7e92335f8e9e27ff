#include "kernels/decode/decode_path.h"

#include <hip/hip_runtime.h>

#include <algorithm>
#include <limits>
#include <string>
#include <utility>

#include "absl/memory/memory.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "kernels/decode/layout.h"
#include "kernels/decode/sites.h"
#include "kernels/router/route_params.h"
#include "octet/dtype.h"
#include "octet/enum_names.h"
#include "runtime/base/size.h"
#include "runtime/base/status_macros.h"
#include "runtime/device/epoch.h"
#include "runtime/failure/failure.h"
#include "runtime/gpu/gpu_status.h"
#include "runtime/node/caller.h"

namespace octet {
namespace {

using decode::Site;

size_t Aligned(size_t bytes) {
  return (bytes + SymmetricHeap::kAlignment - 1) / SymmetricHeap::kAlignment *
         SymmetricHeap::kAlignment;
}

decode::Layout LayoutOf(const MoeLayerConfig& config, int num_ranks) {
  constexpr int kBytesOfPart = 8 << 10;  // that a block sends at once
  const size_t rows = Size(num_ranks) * Size(config.max_tokens_per_rank) * Size(config.hidden);
  const size_t element = InfoOf(config.dtype).bytes;
  decode::Layout layout = {};
  layout.num_ranks = num_ranks;
  layout.max_tokens = config.max_tokens_per_rank;
  layout.hidden = config.hidden;
  layout.parts = std::clamp(
      config.max_tokens_per_rank * config.hidden * static_cast<int>(element) / kBytesOfPart, 1,
      decode::kMostParts);
  layout.token_flags = 0;
  layout.partial_flags = Aligned(Size(num_ranks) * Size(layout.parts) * sizeof(uint64_t));
  layout.partials = layout.partial_flags + Aligned(Size(num_ranks) * sizeof(uint64_t));
  layout.uncached_bytes = layout.partials + Aligned(rows * sizeof(float));
  layout.tokens = 0;
  layout.cached_bytes = Aligned(rows * element);
  return layout;
}

decode::DecodeVariant VariantOf(const MoeLayerConfig& config, int num_ranks) {
  return {.fp16 = config.dtype == DType::kFloat16,
          .fp8 = config.weights == GemmFormat::kFp8,
          .mxfp4 = config.weights == GemmFormat::kMxfp4,
          .max_tokens = config.max_tokens_per_rank * num_ranks,
          .shared_experts = config.shared_intermediate > 0};
}

int BlocksOn(const GpuInfo& gpu, const MoeLayerConfig& config) {
  return config.max_blocks > 0 ? std::min(config.max_blocks, gpu.num_compute_units)
                               : gpu.num_compute_units;
}

// The kernel, which is the same on all GPUs.
decode::DecodeVariant VariantOn(const Node& node, const MoeLayerConfig& config) {
  decode::DecodeVariant variant = VariantOf(config, node.num_ranks());
  variant.fewer_rows =
      decode::HasFewerRows(variant, config.hidden, BlocksOn(node.topology().gpus.front(), config));
  return variant;
}

decode::SharedLayout SharedOf(const MoeLayerConfig& config, int num_ranks) {
  return decode::SharedLayoutOf(VariantOf(config, num_ranks), config.num_local_experts(num_ranks),
                                config.topk);
}

// Tells the sizes of what a rank has beside its heap.
struct Sizes {
  size_t logits;
  size_t h_bytes;
  size_t shared_h_bytes;
};

Sizes SizesOf(const MoeLayerConfig& config, int num_ranks) {
  const decode::DecodeVariant variant = VariantOf(config, num_ranks);
  const size_t tokens = Size(variant.max_tokens);
  const size_t pairs =
      Size(decode::MostPairs(variant, config.num_local_experts(num_ranks), config.topk));
  const size_t element = InfoOf(config.dtype).bytes;
  return {.logits = tokens * Size(LogitStride(config)),
          .h_bytes = pairs * Size(config.intermediate) * element,
          .shared_h_bytes = tokens * Size(config.shared_intermediate) * element};
}

absl::Status Refuse(absl::string_view member, int value, absl::string_view must) {
  return absl::InvalidArgumentError(absl::StrCat("MoeLayerConfig::", member, " is ", value,
                                                 "; with the path decode it must be ", must));
}

}  // namespace

absl::Status CheckDecodes(const MoeLayerConfig& config, int num_ranks) {
  if (config.max_tokens_per_rank * num_ranks > decode::kMostTokens) {
    return Refuse("max_tokens_per_rank", config.max_tokens_per_rank,
                  absl::StrCat("at most ", decode::kMostTokens / num_ranks, ", for ",
                               decode::kMostTokens, " tokens of ", num_ranks, " ranks together"));
  }
  if (config.num_experts > decode::kMostExperts) {
    return Refuse("num_experts", config.num_experts,
                  absl::StrCat("at most ", decode::kMostExperts));
  }
  const auto refuse = [](absl::string_view what) {
    return absl::InvalidArgumentError(absl::StrCat("MoeLayerConfig::path is decode, which has no ",
                                                   what, "; it must be auto or launches"));
  };
  if (config.weights == GemmFormat::kFp8 && (config.expert_biases || config.swiglu != SwiGlu())) {
    return refuse("biases of experts or parameters of SwiGLU with FP8 weights");
  }
  if (config.weighs_input) return refuse("weights of x (weighs_input)");
  if (config.fusion != Fusion::kAuto && config.fusion != Fusion::kNone) {
    return absl::InvalidArgumentError(
        absl::StrCat("MoeLayerConfig::fusion is ", EnumName(config.fusion),
                     "; with the path decode, which is one kernel, it must be auto or none"));
  }
  return absl::OkStatus();
}

DecodePath::DecodePath(Node& node, const MoeLayerConfig& config, TraceCollector* trace)
    : shared_node_(node.Share()),
      node_(*shared_node_),
      config_(config),
      trace_(trace),
      layout_(LayoutOf(config, node.num_ranks())),
      variant_(VariantOn(node, config)),
      shared_(SharedOf(config, node.num_ranks())),
      memory_(node),
      loads_(node),
      ranks_(Size(node.num_ranks())),
      client_(Register(node, this)) {
  need_->what = "the MoeLayer whose memory it uses, which has been destroyed";
}

DecodePath::~DecodePath() {
  need_->gone = true;
  Unregister(node_, client_);
}

absl::Status DecodePath::CheckFits(Node& node, const MoeLayerConfig& config) {
  const size_t bytes = SharedOf(config, node.num_ranks()).bytes;
  std::vector<int> most(Size(node.num_ranks()), std::numeric_limits<int>::max());  // if too little
  OCTET_RETURN_IF_ERROR(node.Run([&](const Rank& rank) {
    const hipError_t loaded = decode::LoadDecode(VariantOn(node, config), bytes);
    if (loaded != hipErrorInvalidValue) return OCTET_GPU(loaded);
    return OCTET_GPU(hipDeviceGetAttribute(&most[Size(rank.rank())],
                                           hipDeviceAttributeMaxSharedMemoryPerBlock,
                                           node.topology().gpus[Size(rank.rank())].device));
  }));
  for (size_t rank = 0; rank < most.size(); ++rank) {
    if (most[rank] == std::numeric_limits<int>::max()) continue;
    return absl::UnimplementedError(absl::StrCat(
        "rank ", rank, ": with the path decode a block needs ", bytes,
        " bytes of shared memory for this layer, and some for itself; it can have ", most[rank],
        " on this GPU: give it fewer tokens or experts, or the path launches"));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<DecodePath>> DecodePath::Create(Node& node,
                                                               const MoeLayerConfig& config,
                                                               TraceCollector* trace) {
  OCTET_RETURN_IF_ERROR(CheckFits(node, config));
  auto path = absl::WrapUnique(new DecodePath(node, config, trace));
  OCTET_RETURN_IF_ERROR(path->Init());
  return path;
}

void DecodePath::ListMemory(const MoeLayerConfig& config, int num_ranks,
                            std::vector<MemoryPiece>& pieces) {
  const decode::Layout layout = LayoutOf(config, num_ranks);
  const Sizes sizes = SizesOf(config, num_ranks);
  pieces.push_back({MemoryUse::kHeap, "flags and partial rows", layout.uncached_bytes});
  pieces.push_back({MemoryUse::kHeap, "tokens of all ranks", layout.cached_bytes});
  pieces.push_back({MemoryUse::kWorkspace, "logits of all tokens", sizes.logits * sizeof(float)});
  pieces.push_back({MemoryUse::kWorkspace, "rows between the products", sizes.h_bytes});
  pieces.push_back({MemoryUse::kWorkspace, "shared rows between products", sizes.shared_h_bytes});
}

absl::Status DecodePath::Init() {
  OCTET_ASSIGN_OR_RETURN(heap_, SymmetricHeap::Create(node_, {.uncached = layout_.uncached_bytes,
                                                              .cached = layout_.cached_bytes}));
  return node_.Run([this](Rank& rank) -> absl::Status {
    OCTET_RETURN_IF_ERROR(InitRank(rank));
    return Recover(rank);
  });
}

absl::Status DecodePath::InitRank(Rank& rank) {
  OfRank& mine = of(rank);
  const Sizes sizes = SizesOf(config_, layout_.num_ranks);
  OCTET_ASSIGN_OR_RETURN(mine.state, memory_.Device<decode::State>(1));
  OCTET_ASSIGN_OR_RETURN(mine.logits, memory_.Device<float>(sizes.logits));
  OCTET_ASSIGN_OR_RETURN(mine.h, memory_.Device<char>(sizes.h_bytes));
  OCTET_ASSIGN_OR_RETURN(mine.shared_h, memory_.Device<char>(sizes.shared_h_bytes));
  return loads_.InitRank(rank, config_.loads, config_.num_local_experts(layout_.num_ranks));
}

absl::StatusOr<ExpertLoads> DecodePath::Loads() const {
  if (config_.loads.count) return loads_.Read();
  return absl::FailedPreconditionError(
      "there are no loads: MoeLayerConfig::loads.count does not ask for them");
}

decode::DecodeParams DecodePath::ParamsOf(const Rank& rank, const Call& call) const {
  const OfRank& mine = of(rank);
  decode::DecodeParams params = {};
  params.failure = PortOf(rank, client_);
  params.peers = heap_->peers(rank.rank());
  params.cached_peers = heap_->peers(rank.rank(), HeapMemory::kCached);
  params.layout = layout_;
  params.shared = shared_;
  params.state = mine.state.data();
  params.loads = loads_.of(rank.rank());
  if (trace_ != nullptr) params.trace = trace_->buffer(rank.rank());
  params.x = static_cast<const char*>(call.x);
  params.y = call.y;
  params.num_tokens = call.num_tokens;
  params.tokens_of = call.tokens_of;
  params.router = static_cast<const char*>(call.weights.router);
  params.logit_rows = LogitRows(config_);
  params.route = RouteParamsOf(config_);
  params.logit_bias = call.weights.logit_bias;
  params.logits = mine.logits.data();
  params.route.logits = mine.logits.data();
  params.route.bias = call.weights.router_bias;
  params.route.topk_idx = call.topk_idx;
  params.route.topk_weights = call.topk_weights;
  params.own_logits = call.logits;
  params.num_local_experts = config_.num_local_experts(layout_.num_ranks);
  params.placement = call.placement;
  params.shared_gate = config_.shared_gate;
  params.routed = call.weights.routed;
  params.routed.columns = config_.intermediate;
  const auto expert_bytes =
      static_cast<int64_t>(FormatOf(config_.dtype, config_.weights)
                               .Bytes(Size(config_.hidden) * Size(config_.intermediate)));
  params.routed.first_bytes = 2 * expert_bytes;
  params.routed.second_bytes = expert_bytes;
  params.swiglu = config_.swiglu;
  params.shared_experts = call.weights.shared;
  params.shared_experts.columns = config_.shared_intermediate;
  params.h = mine.h.data();
  params.shared_h = mine.shared_h.data();
  return params;
}

absl::Status DecodePath::Enqueue(Rank& rank, const Call& call) const {
  CaptureNeeds::Add(rank, need_);
  const CallerScope scope(rank, client_);
  const GpuInfo& gpu = node_.topology().gpus[Size(rank.rank())];
  const LaunchShape shape = {.blocks = BlocksOn(gpu, config_),
                             .threads = decode::BlockThreads(gpu.wave_size),
                             .shared_bytes = shared_.bytes};
  const decode::DecodeParams params = ParamsOf(rank, call);
  return rank.CoordinatedLaunch(
      [&] { return OCTET_GPU(LaunchDecode(params, variant_, shape, rank.stream())); },
      "MoeLayer::Forward");
}

absl::Status DecodePath::Describe(int rank, const device::FailureRecord& record) const {
  switch (static_cast<Site>(record.site)) {
    case Site::kTokens:
      return DeadlineStatus(RecordedFailure(rank, record, "decode, exchange", "token flag"));
    case Site::kLogits:
      return DeadlineStatus(
          RecordedFailure(rank, record, "decode, logits", "all blocks of the GPU; block"));
    case Site::kProducts:
      return DeadlineStatus(
          RecordedFailure(rank, record, "decode, products", "all blocks of the GPU; block"));
    case Site::kPartials:
      break;
  }
  return DeadlineStatus(RecordedFailure(rank, record, "decode, reduce", "partial rows' flag"));
}

absl::Status DecodePath::CopyFlags(Rank& rank) {
  OfRank& mine = of(rank);
  if (heap_ == nullptr) return absl::OkStatus();
  mine.copied.resize((layout_.partial_flags + Size(layout_.num_ranks) * sizeof(uint64_t)) /
                     sizeof(uint64_t));
  const char* const base = heap_->peers(rank.rank()).base[rank.rank()];
  return OCTET_GPU(hipMemcpyAsync(mine.copied.data(), base, mine.copied.size() * sizeof(uint64_t),
                                  hipMemcpyDeviceToHost, rank.stream()));
}

std::vector<FlagTable> DecodePath::FlagTables(absl::Span<const device::FailureRecord> waits) {
  FlagTable tokens = {.title = "decode, token flags: epoch seen from each rank", .rows = {}};
  FlagTable partials = {.title = "decode, partial rows: epoch seen from each rank", .rows = {}};
  for (size_t r = 0; r < ranks_.size(); ++r) {
    const device::FailureRecord& wait = waits[r];
    if (wait.kind == device::FailureKind::kNone || wait.peer < 0 || ranks_[r].copied.empty()) {
      continue;
    }
    const bool of_tokens = static_cast<Site>(wait.site) == Site::kTokens;
    FlagTable::Row row = {
        .rank = static_cast<int>(r), .expected = absl::StrCat(wait.expected), .peers = {}};
    for (int peer = 0; peer < layout_.num_ranks; ++peer) {
      const size_t first = layout_.partial_flags / sizeof(uint64_t);
      const uint64_t seen = of_tokens
                                ? device::EpochOf(ranks_[r].copied[Size(peer * layout_.parts)])
                                : ranks_[r].copied[first + Size(peer)];
      row.peers.push_back({.seen = absl::StrCat(seen), .behind = seen < wait.expected});
    }
    (of_tokens ? tokens : partials).rows.push_back(std::move(row));
  }
  std::vector<FlagTable> tables;
  for (FlagTable* table : {&tokens, &partials}) {
    if (!table->rows.empty()) tables.push_back(std::move(*table));
  }
  for (OfRank& rank : ranks_) rank.copied.clear();
  return tables;
}

// All ranks begin again with epoch 1.
absl::Status DecodePath::Recover(Rank& rank) {
  const OfRank& mine = of(rank);
  if (heap_ == nullptr || mine.state.empty()) return absl::OkStatus();
  static constexpr decode::State kFirst = {
      .call = {.epoch = 1, .blocks_started = 0}, .arrived = 0, .blocks_done = 0};
  char* const base = heap_->peers(rank.rank()).base[rank.rank()];
  OCTET_RETURN_IF_GPU_ERROR(hipMemsetAsync(base, 0, layout_.partials, rank.stream()));
  OCTET_RETURN_IF_ERROR(loads_.ClearWindow(rank));  // epochs begin again
  return OCTET_GPU(hipMemcpyAsync(mine.state.data(), &kFirst, sizeof(kFirst), hipMemcpyHostToDevice,
                                  rank.stream()));
}

}  // namespace octet
