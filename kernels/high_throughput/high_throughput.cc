#include "kernels/high_throughput/high_throughput.h"

#include <hip/hip_runtime.h>

#include <algorithm>
#include <array>
#include <atomic>

#include "absl/strings/str_cat.h"
#include "kernels/ep/base/fill_memory.h"
#include "kernels/ep/base/packet_flags.h"
#include "kernels/ep/trace_phases.h"
#include "runtime/device/epoch.h"
#include "runtime/gpu/gpu_status.h"
#include "runtime/node/capture.h"

namespace octet::high_throughput {
namespace {

// If a call has at most this many blocks, 10 of 24 waves begin a dispatch that fills duplicates by
// sending, else 6: 4096 tokens on four H200s take 515 µs instead of 575 with 24 blocks, 507 instead
// of 495 with 48.
constexpr int kFewSendingBlocks = 32;

}  // namespace

HighThroughput::HighThroughput(Node& node, const EpPlan& plan, const ExpertParallelOptions& options)
    : StrategyBase(node, plan, options), ranks_(Index(node.num_ranks())) {}

absl::StatusOr<ControlNeeds> HighThroughput::Prepare() {
  layout_ = MakeLayout(config(), node().num_ranks());
  OCTET_RETURN_IF_ERROR(ChooseShape());
  return ControlNeeds{.layout = layout_,
                      .state_bytes = StateBytes(layout_, MostBlocks()),
                      .call_epochs = kCallEpochs,
                      .layouts_in_credits = true};
}

// Chooses one block on each compute unit, as large as possible, unless the caller has set them.
absl::Status HighThroughput::ChooseShape() {
  Tuning& tuning = launch().tuning();
  if (tuning.row_copies == RowCopies::kAuto) tuning.row_copies = RowCopies::kVectors;
  OCTET_RETURN_IF_ERROR(launch().ChooseBlock(kDispatchMaxThreads, [this](int waves) {
    dispatch_shared_ = SharedOfDispatch(layout_, DispatchKernel().bulk, waves);
    return dispatch_shared_.bytes;
  }));
  const int waves = tuning.waves_per_block;
  const int wave_size = shape().threads / waves;
  const int combine_waves = std::min(waves, kCombineMaxThreads / wave_size);
  combine_shape_.threads = combine_waves * wave_size;
  // Measured on H200s (bench/PERFORMANCE.md). If rows are received once, receivers of a dispatch
  // have little work, and senders of a combine only copy. With few blocks, more waves of each are
  // needed to keep the links busy.
  const bool once = config().rows_once();
  const int blocks = BlocksAskedFor(config());
  const bool few = blocks > 0 && blocks <= kFewSendingBlocks;
  if (tuning.send_waves == 0) {
    tuning.send_waves = once ? (waves * 5 + 7) / 8 : few ? (waves * 5 + 11) / 12 : (waves + 3) / 4;
  }
  if (tuning.combine_send_waves == 0) {
    tuning.combine_send_waves = config().output == Output::kDeduplicated
                                    ? (combine_waves * 9 + 15) / 16
                                    : (combine_waves * 13 + 15) / 16;
  }
  if (tuning.send_waves > waves || tuning.combine_send_waves > combine_waves) {
    return absl::InvalidArgumentError(absl::StrCat(
        "send_waves and combine_send_waves are ", tuning.send_waves, " and ",
        tuning.combine_send_waves, "; a block has ", waves, " and ", combine_waves, " waves"));
  }
  // Rows that leave during a combine are to be summed soon after they have come, not when little is
  // left to send (docs/several_nodes.md).
  chunked_send_waves_ = std::min(tuning.combine_send_waves, std::max(combine_waves / 2, 1));
  int dispatch_blocks = 0;
  int combine_blocks = 0;
  OCTET_RETURN_IF_GPU_ERROR(PrepareDispatch(DispatchKernel(), shape()));
  OCTET_RETURN_IF_GPU_ERROR(DispatchBlocksPerUnit(DispatchKernel(), shape(), &dispatch_blocks));
  OCTET_RETURN_IF_GPU_ERROR(CombineBlocksPerUnit(CombineKernel(), combine_shape_, &combine_blocks));
  OCTET_RETURN_IF_ERROR(launch().ChooseBlocks(1, std::min(dispatch_blocks, combine_blocks)));
  combine_shape_.blocks = shape().blocks;
  return absl::OkStatus();
}

DispatchVariant HighThroughput::DispatchKernel() const {
  return {.traced = traced(), .bulk = config().tuning.row_copies == RowCopies::kBulk};
}

CombineVariant HighThroughput::CombineKernel() const {
  const bool per_rank = config().combine_order == CombineOrder::kPerRank;
  return {.fp16 = config().dtype == DType::kFloat16,
          .traced = traced(),
          .rows = config().output == Output::kDeduplicated ? CombineRows::kReduced
                  : per_rank                               ? CombineRows::kSums
                                                           : CombineRows::kChoices};
}

absl::Status HighThroughput::AllocateKept(Rank& rank, RankState& mine) {
  const KeptPieces pieces = PlaceKept(layout_);
  for (int i = 0; i < config().high_throughput.kept_layouts; ++i) {
    OCTET_ASSIGN_OR_RETURN(const absl::Span<char> kept, memory().Device<char>(pieces.bytes));
    // Zero: no packets.
    OCTET_RETURN_IF_GPU_ERROR(hipMemsetAsync(kept.data(), 0, kept.size(), rank.stream()));
    char* base = kept.data();
    mine.kept.push_back(Kept{
        .routes = reinterpret_cast<Route*>(base + pieces.routes),
        .packets = base + pieces.packets,
        .packet_counts = reinterpret_cast<int32_t*>(base + pieces.packet_counts),
        .source_offsets = reinterpret_cast<int32_t*>(base + pieces.source_offsets),
        .first_slots = reinterpret_cast<int32_t*>(base + pieces.first_slots),
        .expert_counts = reinterpret_cast<int32_t*>(base + pieces.expert_counts),
        .expert_offsets = reinterpret_cast<int32_t*>(base + pieces.expert_offsets),
    });
  }
  return absl::OkStatus();
}

absl::Status HighThroughput::AllocateReceived(Rank& rank, RankState& mine) {
  const auto rows = static_cast<size_t>(layout_.max_rows);
  const size_t tokens = Index(layout_.num_ranks) * static_cast<size_t>(layout_.max_tokens);
  const auto topk = static_cast<size_t>(layout_.topk);
  const auto num_local = static_cast<size_t>(layout_.num_local_experts);
  const bool deduplicated = config().output == Output::kDeduplicated;
  OCTET_ASSIGN_OR_RETURN(mine.sources, memory().Device<RowSource>(deduplicated ? tokens : rows));
  if (deduplicated) {
    OCTET_ASSIGN_OR_RETURN(mine.recv_topk_idx, memory().Device<int32_t>(tokens * topk));
    OCTET_ASSIGN_OR_RETURN(mine.recv_topk_weights, memory().Device<float>(tokens * topk));
  } else {
    OCTET_ASSIGN_OR_RETURN(mine.row_weights, memory().Device<float>(rows));
  }
  if (config().high_throughput.duplicates == Duplicates::kIndex) {
    OCTET_ASSIGN_OR_RETURN(mine.row_index, memory().Device<int32_t>(rows));
  }
  OCTET_ASSIGN_OR_RETURN(mine.expert_counts, memory().Device<int32_t>(num_local));
  OCTET_ASSIGN_OR_RETURN(mine.expert_offsets, memory().Device<int32_t>(num_local + 1));
  OCTET_ASSIGN_OR_RETURN(mine.source_offsets,
                         memory().Device<int32_t>(Index(layout_.num_ranks) + 1));
  OCTET_RETURN_IF_ERROR(Fill(rank, mine.sources, 0xff));
  OCTET_RETURN_IF_ERROR(Fill(rank, mine.row_index, 0xff));
  OCTET_RETURN_IF_ERROR(Fill(rank, mine.recv_topk_idx, 0xff));
  OCTET_RETURN_IF_ERROR(Fill(rank, mine.recv_topk_weights, 0));
  OCTET_RETURN_IF_ERROR(Fill(rank, mine.row_weights, 0));
  OCTET_RETURN_IF_ERROR(Fill(rank, mine.expert_counts, 0));
  OCTET_RETURN_IF_ERROR(Fill(rank, mine.expert_offsets, 0));
  return Fill(rank, mine.source_offsets, 0);
}

absl::Status HighThroughput::InitRank(Rank& rank) {
  RankState& mine = ranks_[Index(rank.rank())];
  OCTET_RETURN_IF_GPU_ERROR(PrepareDispatch(DispatchKernel(), shape()));
  OCTET_RETURN_IF_GPU_ERROR(LoadCombine(CombineKernel()));
  OCTET_RETURN_IF_ERROR(AllocateKept(rank, mine));
  OCTET_RETURN_IF_ERROR(AllocateReceived(rank, mine));
  OCTET_ASSIGN_OR_RETURN(mine.before,
                         memory().Device<int32_t>(static_cast<size_t>(layout_.num_counts) *
                                                  static_cast<size_t>(MostBlocks())));
  if (layout_.arrivals) {
    OCTET_ASSIGN_OR_RETURN(mine.order,
                           memory().Device<SendEntry>(static_cast<size_t>(layout_.max_tokens) *
                                                      static_cast<size_t>(layout_.topk)));
  }
  if (layout_.bounded) {
    OCTET_ASSIGN_OR_RETURN(const absl::Span<uint64_t> word, memory().Pinned<uint64_t>(1));
    mine.rows_needed = word.data();
    *mine.rows_needed = 0;
  }
  if (config().high_throughput.host_totals) {
    OCTET_ASSIGN_OR_RETURN(
        const absl::Span<char> totals,
        memory().Pinned<char>(sizeof(HostTotals) +
                              static_cast<size_t>(layout_.num_local_experts) * sizeof(int32_t)));
    mine.totals = reinterpret_cast<HostTotals*>(totals.data());
    mine.totals->epoch = 0;
  }
  return absl::OkStatus();
}

absl::Status HighThroughput::VoidCalls(Rank& rank) {
  RankState& mine = ranks_[Index(rank.rank())];
  mine.void_layouts = mine.layouts;
  return absl::OkStatus();
}

std::vector<uint64_t> HighThroughput::OwnFlags(const FlagWait& wait) {
  char* mine = control().copied(wait.rank);
  const auto packets = [this](char* control, int source) {
    return layout_.PacketOf(control + layout_.packets, source, 0);
  };
  if (static_cast<Site>(wait.site) == Site::kDispatchPacket) {
    const uint64_t tokens =
        *layout_.Count(mine, wait.epoch, wait.peer, layout_.num_experts + wait.rank);
    return PacketWords(layout_, packets(mine, wait.peer), tokens, wait.epoch);
  }
  if (static_cast<Site>(wait.site) == Site::kRowArrival) return ArrivalWords(wait, mine);
  std::vector<uint64_t> words;
  for (const ReturnedRow& row :
       ReturnedRows(layout_, wait.peer, {packets(control().copied(wait.peer), wait.rank)})) {
    words.push_back(UINT64_MAX);
    for (int part = 0; part < layout_.combine_parts; ++part) {
      words.back() = std::min(words.back(), *layout_.CombineFlag(mine, row.token, row.slot, part));
    }
  }
  return words;
}

std::vector<uint64_t> HighThroughput::ArrivalWords(const FlagWait& wait, char* control) const {
  const int first_expert = layout_.experts().FirstExpert(wait.rank);
  std::vector<uint64_t> words;
  int row = 0;
  for (int e = 0; e < layout_.num_local_experts; ++e) {
    for (int source = 0; source < layout_.num_ranks; ++source) {
      const auto rows = static_cast<int>(
          device::CountOf(*layout_.Count(control, wait.epoch, source, first_expert + e)));
      for (int end = row + rows; row < end; ++row) {
        if (source == wait.peer && row < layout_.max_rows) {
          words.push_back(*layout_.RowArrival(control, row));
        }
      }
    }
  }
  return words;
}

absl::Status HighThroughput::CheckCachedAndScales(const Rank& rank,
                                                  const DispatchArgs& args) const {
  const DispatchHandle* cached = args.high_throughput.cached;
  if (cached != nullptr) {
    OCTET_RETURN_IF_ERROR(CheckOwner(rank, *cached));
    OCTET_RETURN_IF_ERROR(CheckHandle(rank, *cached));
    if (args.num_tokens != cached->num_tokens) {
      return absl::InvalidArgumentError(absl::StrCat("num_tokens is ", args.num_tokens,
                                                     "; the layout in `cached` is of ",
                                                     cached->num_tokens, " tokens"));
    }
  }
  if (args.num_tokens > 0 && layout_.scale_words > 0 && args.high_throughput.x_scales == nullptr) {
    return absl::InvalidArgumentError(
        "x_scales is null; rows of DispatchFormat::kFp8 need their scales");
  }
  return absl::OkStatus();
}

absl::Status HighThroughput::CheckHandle(const Rank& rank, const DispatchHandle& handle) const {
  const RankState& mine = ranks_[Index(rank.rank())];
  if (handle.layout == 0 || handle.layout > mine.layouts) {
    return absl::FailedPreconditionError(
        "the handle is of no dispatch of this rank; pass Received::handle of an earlier dispatch");
  }
  if (handle.layout <= mine.void_layouts) {
    return absl::FailedPreconditionError(
        "the node has failed since this dispatch; it is void: dispatch again");
  }
  if (handle.layout + static_cast<uint64_t>(config().high_throughput.kept_layouts) <=
      mine.layouts) {
    return absl::FailedPreconditionError(absl::StrCat(
        "the handle is of layout ", handle.layout, " of this rank, whose last is ", mine.layouts,
        "; only the last kept_layouts, ", config().high_throughput.kept_layouts,
        ", can be used: raise it to use older ones"));
  }
  return absl::OkStatus();
}

const Kept& HighThroughput::KeptOf(int rank, uint64_t layout) const {
  return ranks_[Index(rank)]
      .kept[(layout - 1) % static_cast<uint64_t>(config().high_throughput.kept_layouts)];
}

// Counts layouts from the last failure on, since ranks may have made different numbers of layouts
// before it. Those are void.
uint32_t HighThroughput::LayoutNumber(int rank, uint64_t layout) const {
  constexpr uint64_t kNumbers = uint64_t{1} << device::kCountBits;
  return static_cast<uint32_t>((layout - ranks_[Index(rank)].void_layouts) % kNumbers);
}

CommonParams HighThroughput::Common(Rank& rank, uint64_t layout, Phases phases,
                                    int send_waves) const {
  const int waves = config().tuning.waves_per_block;
  CommonParams common = {};
  static_cast<CallParams&>(common) = ParamsOf(rank);
  std::copy_n(control().cached_peers(rank.rank()).base, kMaxRanks, common.row_bases);
  common.layout = layout_;
  common.state = StateOn<State>(rank.rank());
  common.kept = KeptOf(rank.rank(), layout);
  switch (phases) {
    case Phases::kSend:
      common.send_waves = waves;
      common.receives = false;
      break;
    case Phases::kReceive:
      common.send_waves = 0;
      common.receives = true;
      break;
    case Phases::kBoth:
      common.send_waves = send_waves;
      common.receives = true;
      break;
  }
  return common;
}

DispatchParams HighThroughput::DispatchParamsOf(Rank& rank, const DispatchRequest& request,
                                                Phases phases, const DispatchHandle& handle) const {
  const HighThroughputArgs& own = request.args.high_throughput;
  const RankState& mine = ranks_[Index(rank.rank())];
  DispatchParams params = {};
  params.common = Common(rank, handle.layout, phases, config().tuning.send_waves);
  SetTensors(request, params, params.common);
  params.new_layout = own.cached == nullptr;
  params.layout_number = LayoutNumber(rank.rank(), handle.layout);
  params.x_scales = static_cast<const uint32_t*>(own.x_scales);
  params.scatter_idx = own.scatter_idx;
  params.shared = dispatch_shared_;
  params.share_counts = WordsAfter(params.common.state) + StateWords(layout_, 0).passes;
  params.before = mine.before.data();
  params.totals = mine.totals;
  if (request.may_lack_room) params.rows_needed = mine.rows_needed;
  params.sources = mine.sources.data();
  params.row_weights = mine.row_weights.data();
  params.row_index = mine.row_index.data();
  params.recv_topk_idx = mine.recv_topk_idx.data();
  params.recv_topk_weights = mine.recv_topk_weights.data();
  params.expert_counts = mine.expert_counts.data();
  params.expert_offsets = mine.expert_offsets.data();
  params.source_offsets = mine.source_offsets.data();
  return params;
}

absl::Status HighThroughput::EnqueueDispatch(Rank& rank, const DispatchRequest& request,
                                             Phases phases, DispatchHandle& handle) {
  if (request.may_lack_room) {
    OCTET_RETURN_IF_ERROR(CheckMayLackRoom(rank));
    std::atomic_ref(*ranks_[Index(rank.rank())].rows_needed).store(0, std::memory_order_relaxed);
  }
  if (request.product != nullptr) return EnqueueDispatchGemm(rank, request, handle);
  const DispatchArgs& args = request.args;
  RankState& mine = ranks_[Index(rank.rank())];
  const bool sends = phases != Phases::kReceive;
  const bool new_layout = args.high_throughput.cached == nullptr;
  if (mine.totals != nullptr && IsCapturing(rank.stream())) {
    return absl::FailedPreconditionError(
        "a dispatch with host_totals cannot be captured: the host would wait for totals, and "
        "nothing is executed before the graph is; set host_totals to false");
  }
  if (sends) {
    OCTET_RETURN_IF_ERROR(CheckCachedAndScales(rank, args));
    if (!new_layout) handle.topk_idx = args.high_throughput.cached->topk_idx;
    handle.layout = new_layout ? mine.layouts + 1 : args.high_throughput.cached->layout;
  }
  const DispatchParams params = DispatchParamsOf(rank, request, phases, handle);
  const uint64_t totals_before = mine.totals != nullptr ? mine.totals->epoch : 0;
  OCTET_RETURN_IF_ERROR(Launch(rank, phases, "dispatch", [&] {
    return OCTET_GPU(LaunchDispatch(params, DispatchKernel(), shape(), rank.stream()));
  }));
  if (!sends) return absl::OkStatus();
  if (new_layout) mine.layouts = handle.layout;
  return mine.totals != nullptr ? AwaitTotals(rank, totals_before) : absl::OkStatus();
}

// ---- A dispatch with a product.

int HighThroughput::MostBlocks() const {
  return shape().blocks * (layout_.arrivals ? kMostFusedBlocksPerUnit : 1);
}

absl::Status HighThroughput::PrepareDispatchGemm(Rank& rank, const DispatchProduct& product) {
  if (!layout_.arrivals) {
    return absl::FailedPreconditionError(
        "a fused dispatch needs HighThroughputOptions::row_arrivals");
  }
  OCTET_ASSIGN_OR_RETURN(ranks_[Index(rank.rank())].fused_blocks,
                         product.Prepare(layout_, shape().blocks, MostBlocks()));
  return absl::OkStatus();
}

absl::Status HighThroughput::EnqueueDispatchGemm(Rank& rank, const DispatchRequest& request,
                                                 DispatchHandle& handle) {
  const DispatchArgs& args = request.args;
  const DispatchProduct& product = *request.product;
  RankState& mine = ranks_[Index(rank.rank())];
  if (args.high_throughput.cached != nullptr || args.high_throughput.scatter_idx != nullptr) {
    return absl::InvalidArgumentError(
        "a fused dispatch takes neither `cached` nor scatter_idx; both must be null");
  }
  if (config().high_throughput.host_totals) {
    return absl::FailedPreconditionError(
        "a fused dispatch has no host_totals: set it to false, or the fusion to none");
  }
  OCTET_RETURN_IF_ERROR(CheckCachedAndScales(rank, args));
  handle.layout = mine.layouts + 1;
  if (mine.fused_blocks == 0) {
    return absl::FailedPreconditionError("the dispatch with this product has not been prepared");
  }
  DispatchGemmParams params = {};
  params.dispatch = DispatchParamsOf(rank, request, Phases::kBoth, handle);
  State* state = params.dispatch.common.state;
  const StateWords words(layout_, MostBlocks());
  params.order = mine.order.data();
  params.ordered_blocks = WordsAfter(state) + words.passes + words.share_counts;
  params.ready_groups = params.ordered_blocks + words.ordered_blocks;
  params.ready_rows = params.ready_groups + words.ready_groups;
  params.roles = product.Roles(mine.fused_blocks);
  char* rows = control().cached_peers(rank.rank()).base[rank.rank()];
  params.rows = layout_.Row(rows, 0);
  if (layout_.scale_words > 0) params.scales = layout_.Scales(rows, 0);
  params.next_unit = &state->next_unit;
  OCTET_RETURN_IF_ERROR(Launch(rank, Phases::kBoth, "dispatch", [&] {
    return OCTET_GPU(product.Launch(params, mine.fused_blocks, rank.stream()));
  }));
  mine.layouts = handle.layout;
  return absl::OkStatus();
}

// ---- Combine.

absl::StatusOr<CombineParams> HighThroughput::CombineParamsOf(Rank& rank,
                                                              const CombineRequest& request,
                                                              Phases phases) const {
  const bool reduced = config().output == Output::kDeduplicated;
  if (reduced && request.expert_scale != nullptr) {
    return absl::InvalidArgumentError(
        "expert_scale must be null: deduplicated rows are sums over experts");
  }
  CombineParams params = {};
  SetTensors(request, params);
  const bool in_chunks = params.departures.num_chunks > 0;
  params.common = Common(rank, request.handle.layout, phases,
                         in_chunks ? chunked_send_waves_ : config().tuning.combine_send_waves);
  params.weighted = !request.args.high_throughput.unweighted;
  if (!params.weighted) params.topk_weights = nullptr;
  return params;
}

absl::Status HighThroughput::EnqueueCombine(Rank& rank, const CombineRequest& request,
                                            Phases phases) {
  if (request.product != nullptr) return EnqueueGemmCombine(rank, request);
  OCTET_ASSIGN_OR_RETURN(const CombineParams params, CombineParamsOf(rank, request, phases));
  return Launch(rank, phases, "combine", [&] {
    return OCTET_GPU(LaunchCombine(params, CombineKernel(), combine_shape_, rank.stream()));
  });
}

absl::Status HighThroughput::PrepareGemmCombine(Rank& rank, const CombineProduct& product) {
  OCTET_ASSIGN_OR_RETURN(ranks_[Index(rank.rank())].product_blocks,
                         product.Prepare(CombineKernel(), shape().blocks));
  return absl::OkStatus();
}

absl::Status HighThroughput::EnqueueGemmCombine(Rank& rank, const CombineRequest& request) {
  const CombineProduct& product = *request.product;
  const int blocks = ranks_[Index(rank.rank())].product_blocks;
  if (blocks == 0) {
    return absl::FailedPreconditionError("the combine with this product has not been prepared");
  }
  GemmCombineParams params = {};
  OCTET_ASSIGN_OR_RETURN(params.combine, CombineParamsOf(rank, request, Phases::kBoth));
  params.next_unit = &params.combine.common.state->next_unit;
  return Launch(rank, Phases::kBoth, "combine", [&] {
    return OCTET_GPU(product.Launch(params, CombineKernel(), blocks, rank.stream()));
  });
}

absl::Status HighThroughput::AwaitTotals(Rank& rank, uint64_t epoch_before) {
  HostTotals* totals = ranks_[Index(rank.rank())].totals;
  const auto told = [&] {
    return std::atomic_ref(totals->epoch).load(std::memory_order_acquire) != epoch_before;
  };
  OCTET_RETURN_IF_ERROR(rank.WaitUntil(told, "the totals of its dispatch"));
  // A kernel that ended without storing the totals has failed and reports why.
  return told() ? absl::OkStatus() : absl::InternalError("a dispatch has ended without its totals");
}

absl::Status HighThroughput::CheckMayLackRoom(const Rank& rank) const {
  if (ranks_[Index(rank.rank())].rows_needed == nullptr) {
    return absl::FailedPreconditionError("there is room for every dispatch without capacity_rows");
  }
  if (!IsCapturing(rank.stream())) return absl::OkStatus();
  return absl::FailedPreconditionError(
      "a dispatch that may lack room cannot be captured: the host would wait for its counts");
}

absl::StatusOr<int> HighThroughput::RowsNeeded(Rank& rank) {
  const std::atomic_ref word(*ranks_[Index(rank.rank())].rows_needed);
  const auto told = [&] { return word.load(std::memory_order_relaxed) != 0; };
  OCTET_RETURN_IF_ERROR(rank.WaitUntil(told, "the counts of its dispatch"));
  // A kernel that ended without storing the word has failed and reports why.
  if (!told()) return absl::InternalError("a dispatch has ended without its counts");
  return static_cast<int>(word.load(std::memory_order_relaxed) & (kRowsKnown - 1));
}

Received HighThroughput::ReceivedOn(const Rank& rank, const DispatchHandle& handle) const {
  const RankState& mine = ranks_[Index(rank.rank())];
  char* rows = control().cached_peers(rank.rank()).base[rank.rank()];
  Received received;
  received.x = layout_.Row(rows, 0);
  received.expert_counts = mine.expert_counts.data();
  received.expert_offsets = mine.expert_offsets.data();
  received.sources = mine.sources.data();
  received.row_bytes = static_cast<size_t>(layout_.row_vecs) * kVecBytes;
  received.max_rows = layout_.max_rows;
  received.handle = handle;
  if (layout_.scale_words > 0) received.scales = layout_.Scales(rows, 0);
  received.high_throughput.source_offsets = mine.source_offsets.data();
  received.high_throughput.row_weights = mine.row_weights.data();
  received.high_throughput.row_index = mine.row_index.data();
  received.high_throughput.recv_topk_idx = mine.recv_topk_idx.data();
  received.high_throughput.recv_topk_weights = mine.recv_topk_weights.data();
  if (mine.totals != nullptr) {
    received.high_throughput.num_rows = mine.totals->rows;
    received.high_throughput.num_tokens = mine.totals->tokens;
    received.high_throughput.host_expert_counts = absl::MakeConstSpan(
        mine.totals->expert_counts, static_cast<size_t>(layout_.num_local_experts));
  }
  return received;
}

std::vector<std::pair<void*, size_t>> HighThroughput::Delivered(const Rank& rank,
                                                                size_t rows) const {
  const RankState& mine = ranks_[Index(rank.rank())];
  char* base = control().cached_peers(rank.rank()).base[rank.rank()];
  // If rows are received once, fewer of them hold `rows` choices. If rows are pulled, peers may
  // still need those of the last combine.
  const size_t row_slots =
      layout_.pull ? size_t{0} : std::min(rows, static_cast<size_t>(layout_.capacity()));
  return {
      {layout_.Row(base, 0), row_slots * static_cast<size_t>(layout_.row_vecs) * kVecBytes},
      {layout_.Scales(base, 0),
       row_slots * static_cast<size_t>(layout_.scale_words) * sizeof(uint32_t)},
      {mine.sources.data(), mine.sources.size() * sizeof(RowSource)},
      {mine.row_weights.data(), mine.row_weights.size() * sizeof(float)},
      {mine.row_index.data(), mine.row_index.size() * sizeof(int32_t)},
      {mine.recv_topk_idx.data(), mine.recv_topk_idx.size() * sizeof(int32_t)},
      {mine.recv_topk_weights.data(), mine.recv_topk_weights.size() * sizeof(float)},
      {mine.expert_counts.data(), mine.expert_counts.size() * sizeof(int32_t)},
      {mine.expert_offsets.data(), mine.expert_offsets.size() * sizeof(int32_t)},
      {mine.source_offsets.data(), mine.source_offsets.size() * sizeof(int32_t)},
  };
}

WireFormat HighThroughput::DispatchWire() const {
  // A packet carries the flag, the combine slot and the choices. Each peer gets all counts and two
  // credits.
  return {.once_per_rank = true,
          .row = int64_t{layout_.row_vecs} * static_cast<int64_t>(kVecBytes) +
                 int64_t{layout_.scale_words} * static_cast<int64_t>(sizeof(uint32_t)),
          .beside_row = sizeof(Packet::flag) + sizeof(Packet::combine_slot),
          .beside_choice = sizeof(Choice),
          .to_peer = (layout_.num_counts + 2) * kWordBytes};
}

WireFormat HighThroughput::CombineWire() const {
  return {.once_per_rank = layout_.per_rank,
          .row = int64_t{layout_.combine_vecs} * static_cast<int64_t>(kVecBytes),
          .beside_row = layout_.combine_parts * kWordBytes,
          .to_peer = kWordBytes};
}

absl::Span<const TraceTag> HighThroughput::trace_tags() const {
  // In the order of Tag.
  static constexpr std::array<TraceTag, static_cast<size_t>(Tag::kTags)> kTags = {{
      {.name = "begin", .phase = kDispatchLayout},
      {.name = "count", .phase = kDispatchLayout},
      {.name = "exchange", .phase = kDispatchLayout},
      {.name = "send", .phase = kDispatchSend, .detail = {"token"}},
      {.name = "wait packet", .phase = kDispatchReceive, .detail = kTracePeer, .waits = true},
      {.name = "fill", .phase = kDispatchReceive, .detail = {"choices"}},
      {.name = "combine send", .phase = kCombineSend, .detail = kTracePeer},
      {.name = "wait rows", .phase = kCombineReceive, .detail = kTracePeer, .waits = true},
      {.name = "reduce", .phase = kCombineReceive, .detail = {"token"}},
      {.name = "order", .phase = kDispatchLayout},
      {.name = "wait order", .phase = kDispatchLayout, .waits = true},
      {.name = "send rows", .phase = kDispatchSend, .detail = kTracePeer},
      {.name = "await rows", .phase = kDispatchReceive, .detail = kTracePeer, .waits = true},
      {.name = "fill rows", .phase = kDispatchReceive, .detail = {"row"}},
      {.name = "wait pass", .phase = kCombineSend, .detail = {"pass"}, .waits = true},
  }};
  return kTags;
}

}  // namespace octet::high_throughput
