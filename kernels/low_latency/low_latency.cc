#include "kernels/low_latency/low_latency.h"

#include <hip/hip_runtime.h>

#include <algorithm>
#include <array>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "kernels/ep/base/fill_memory.h"
#include "kernels/ep/base/packet_flags.h"
#include "kernels/ep/trace_phases.h"
#include "runtime/base/status_macros.h"
#include "runtime/device/epoch.h"
#include "runtime/gpu/gpu_status.h"

namespace octet::low_latency {
namespace {

// Waves that take a received row together if the caller leaves it open. With four, each lane loads
// a row of 7168 16-bit elements in one step, kCopyUnroll deep.
constexpr int kRowWaves = 4;

}  // namespace

LowLatency::LowLatency(Node& node, const EpPlan& plan, const ExpertParallelOptions& options)
    : StrategyBase(node, plan, options, kCallsInFlight),
      batches_(Index(node.num_ranks())),
      watches_(Index(node.num_ranks())) {}

absl::StatusOr<ControlNeeds> LowLatency::Prepare() {
  if (config().low_latency.mask_timeout > node().timeout()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "mask_timeout is ", absl::FormatDuration(config().low_latency.mask_timeout),
        "; it must be at most the node's timeout, ", absl::FormatDuration(node().timeout())));
  }
  layout_ = MakeLayout(config(), node().num_ranks());
  OCTET_RETURN_IF_ERROR(ChooseShape());
  return ControlNeeds{.layout = layout_, .state_bytes = sizeof(State), .call_epochs = kCallEpochs};
}

// Chooses as many blocks as fit, half of them for sending in dispatch, unless the caller has set
// them.
absl::Status LowLatency::ChooseShape() {
  OCTET_RETURN_IF_ERROR(
      launch().ChooseBlock(kMaxThreads, [this](int) { return DispatchSharedBytes(layout_); }));
  int dispatch_blocks = 0;
  int combine_blocks = 0;
  OCTET_RETURN_IF_GPU_ERROR(DispatchBlocksPerUnit(DispatchKernel(), shape(), &dispatch_blocks));
  OCTET_RETURN_IF_GPU_ERROR(CombineBlocksPerUnit(CombineKernel(), shape(), &combine_blocks));
  const int per_unit = std::min(dispatch_blocks, combine_blocks);
  OCTET_RETURN_IF_ERROR(launch().ChooseBlocks(per_unit, per_unit));
  OCTET_RETURN_IF_ERROR(launch().ChooseSendBlocks());
  Tuning& tuning = launch().tuning();
  if (tuning.row_parts == 0) tuning.row_parts = kRowWaves;
  const int wave_size = node().topology().gpus[0].wave_size;
  tuning.row_parts = std::min(
      {tuning.row_parts, tuning.waves_per_block, (layout_.row_vecs + wave_size - 1) / wave_size});
  return absl::OkStatus();
}

DispatchVariant LowLatency::DispatchKernel() const {
  return {.quantized = layout_.scale_words > 0,
          .fp16 = config().dtype == DType::kFloat16,
          .traced = traced(),
          .watched = watched()};
}

CombineVariant LowLatency::CombineKernel() const {
  return {.fp16 = config().dtype == DType::kFloat16,
          .traced = traced(),
          .per_rank = layout_.per_rank,
          .watched = watched()};
}

absl::Status LowLatency::AllocateBatch(Rank& rank, Batch& batch) {
  const auto rows = static_cast<size_t>(layout_.max_rows);
  const auto ranks = static_cast<size_t>(layout_.num_ranks);
  const auto num_local = static_cast<size_t>(layout_.num_local_experts);
  const size_t packets = ranks * static_cast<size_t>(layout_.max_tokens);
  OCTET_ASSIGN_OR_RETURN(batch.x, memory().Device<char>(rows * row_bytes()));
  OCTET_ASSIGN_OR_RETURN(
      batch.scales, memory().Device<uint32_t>(rows * static_cast<size_t>(layout_.scale_words)));
  OCTET_ASSIGN_OR_RETURN(batch.sources, memory().Device<RowSource>(rows));
  OCTET_ASSIGN_OR_RETURN(batch.ranges, memory().Device<RowRange>(num_local * ranks));
  OCTET_ASSIGN_OR_RETURN(batch.expert_counts, memory().Device<int32_t>(num_local));
  if (config().output == Output::kRankMajor) {
    OCTET_ASSIGN_OR_RETURN(batch.split_counts, memory().Device<int32_t>(ranks * num_local));
  } else {
    OCTET_ASSIGN_OR_RETURN(batch.expert_offsets, memory().Device<int32_t>(num_local + 1));
  }
  OCTET_ASSIGN_OR_RETURN(
      batch.packets, memory().Device<char>(packets * static_cast<size_t>(layout_.packet_bytes)));
  OCTET_ASSIGN_OR_RETURN(batch.packet_counts, memory().Device<int32_t>(ranks));
  if (config().low_latency.failure_policy == FailurePolicy::kMask) {
    OCTET_ASSIGN_OR_RETURN(const absl::Span<LeftOut> left_out, memory().Pinned<LeftOut>(1));
    left_out[0] = {};
    batch.left_out = left_out.data();
  }
  OCTET_RETURN_IF_ERROR(Fill(rank, batch.sources, 0xff));
  OCTET_RETURN_IF_ERROR(Fill(rank, batch.ranges, 0));
  OCTET_RETURN_IF_ERROR(Fill(rank, batch.expert_counts, 0));
  OCTET_RETURN_IF_ERROR(Fill(rank, batch.expert_offsets, 0));
  OCTET_RETURN_IF_ERROR(Fill(rank, batch.split_counts, 0));
  // Zero: no packets, and no choices in packets that a failed dispatch leaves unchanged.
  OCTET_RETURN_IF_ERROR(Fill(rank, batch.packets, 0));
  return Fill(rank, batch.packet_counts, 0);
}

absl::Status LowLatency::InitRank(Rank& rank) {
  for (Batch& batch : batches_[Index(rank.rank())]) {
    OCTET_RETURN_IF_ERROR(AllocateBatch(rank, batch));
  }
  OCTET_RETURN_IF_GPU_ERROR(LoadDispatch(DispatchKernel()));
  OCTET_RETURN_IF_GPU_ERROR(LoadCombine(CombineKernel()));
  return watches_[Index(rank.rank())].Init(rank, config(), shape().blocks, memory());
}

std::vector<uint64_t> LowLatency::OwnFlags(const FlagWait& wait) {
  char* mine = control().copied(wait.rank);
  const auto site = static_cast<Site>(wait.site);
  if (site == Site::kDispatchPacket) {
    const uint64_t tokens = *layout_.Count(mine, wait.epoch, wait.peer, layout_.num_local_experts);
    return PacketWords(layout_, layout_.PacketOf(mine, wait.epoch, wait.peer, 0), tokens,
                       wait.epoch);
  }
  if (site == Site::kCombineBegun) return {*FlagOf(mine, layout_.combine_begun, wait.peer)};
  char* theirs = control().copied(wait.peer);
  std::vector<uint64_t> words;
  for (const ReturnedRow& row : ReturnedRows(layout_, wait.peer,
                                             {layout_.PacketOf(theirs, 0, wait.rank, 0),
                                              layout_.PacketOf(theirs, 1, wait.rank, 0)})) {
    words.push_back(*layout_.CombineFlag(mine, wait.epoch, row.token, row.slot));
  }
  return words;
}

CommonParams LowLatency::Common(Rank& rank, const Batch& batch, Phases phases,
                                Watch::Call call) const {
  CommonParams common = {};
  static_cast<CallParams&>(common) = ParamsOf(rank);
  common.layout = layout_;
  common.state = StateOn<State>(rank.rank());
  common.kept = {.packets = batch.packets.data(), .received = batch.packet_counts.data()};
  common.send_blocks = launch().SendBlocks(phases);
  RankSet* left_out = nullptr;
  if (batch.left_out != nullptr) {
    left_out =
        call == Watch::Call::kDispatch ? &batch.left_out->dispatch : &batch.left_out->combine;
  }
  WatchOf(rank).Join(&common.state->blocks_done, left_out, &common.failure, &common.end);
  common.statistics = WatchOf(rank).statistics(call);
  return common;
}

absl::Status LowLatency::EnqueueDispatch(Rank& rank, const DispatchRequest& request, Phases phases,
                                         DispatchHandle& handle) {
  const Batch& batch = BatchOf(rank, handle.call);
  DispatchParams params = {};
  params.common = Common(rank, batch, phases, Watch::Call::kDispatch);
  SetTensors(request, params, params.common);
  params.row_waves = config().tuning.row_parts;
  params.recv_x = batch.x.data();
  params.recv_scales = batch.scales.data();
  params.sources = batch.sources.data();
  params.ranges = batch.ranges.data();
  params.expert_counts = batch.expert_counts.data();
  params.expert_offsets = batch.expert_offsets.data();
  params.split_counts = batch.split_counts.data();
  return Launch(rank, phases, "dispatch", [&] {
    return OCTET_GPU(LaunchDispatch(params, DispatchKernel(), shape(), rank.stream()));
  });
}

absl::Status LowLatency::EnqueueCombine(Rank& rank, const CombineRequest& request, Phases phases) {
  CombineParams params = {};
  SetTensors(request, params);
  params.common = Common(rank, BatchOf(rank, request.handle.call), phases, Watch::Call::kCombine);
  return Launch(rank, phases, "combine", [&] {
    return OCTET_GPU(LaunchCombine(params, CombineKernel(), shape(), rank.stream()));
  });
}

Received LowLatency::ReceivedOn(const Rank& rank, const DispatchHandle& handle) const {
  const Batch& batch = BatchOf(rank, handle.call);
  Received received;
  received.x = batch.x.data();
  if (layout_.scale_words > 0) received.scales = batch.scales.data();
  received.expert_counts = batch.expert_counts.data();
  received.expert_offsets = batch.expert_offsets.data();
  received.sources = batch.sources.data();
  received.low_latency.ranges = batch.ranges.data();
  received.low_latency.split_counts = batch.split_counts.data();
  received.low_latency.left_out = batch.left_out;
  received.row_bytes = row_bytes();
  received.max_rows = layout_.max_rows;
  received.handle = handle;
  return received;
}

std::vector<std::pair<void*, size_t>> LowLatency::Delivered(const Rank& rank, size_t rows) const {
  const Batch& batch = BatchOf(rank, NextCall(rank));
  const auto bytes = [](const auto& span) {
    return std::make_pair(static_cast<void*>(span.data()), span.size() * sizeof(*span.data()));
  };
  return {
      {batch.x.data(), rows * row_bytes()},
      {batch.scales.data(), rows * static_cast<size_t>(layout_.scale_words) * sizeof(uint32_t)},
      {batch.sources.data(), rows * sizeof(RowSource)},
      bytes(batch.ranges),
      bytes(batch.expert_counts),
      bytes(batch.expert_offsets),
      bytes(batch.split_counts),
  };
}

WireFormat LowLatency::DispatchWire() const {
  // A packet carries the flag, the combine slot and the choices. Each peer gets its counts and one
  // credit.
  return {.once_per_rank = true,
          .row = static_cast<int64_t>(row_bytes()) +
                 layout_.scale_words * static_cast<int64_t>(sizeof(uint32_t)),
          .beside_row = sizeof(Packet::flag) + sizeof(Packet::combine_slot),
          .beside_choice = sizeof(Choice),
          .to_peer = (layout_.num_counts + 1) * kWordBytes};
}

WireFormat LowLatency::CombineWire() const {
  return {.once_per_rank = layout_.per_rank,
          .row = int64_t{layout_.dtype_vecs} * static_cast<int64_t>(kVecBytes),
          .beside_row = kWordBytes,
          .to_peer = (layout_.own_slots ? 2 : 1) * kWordBytes};
}

// ---- Masks and statistics.

absl::Status LowLatency::VoidCalls(Rank& rank) {
  const Watch& watch = WatchOf(rank);
  return watch.has_statistics() ? watch.SettleStatistics(rank) : absl::OkStatus();
}

absl::StatusOr<RankSet> LowLatency::MaskedRanks(Rank& rank) {
  const Watch& watch = WatchOf(rank);
  return watch.has_masks() ? watch.MaskedRanks(rank) : EpCalls::MaskedRanks(rank);
}

absl::Status LowLatency::Mask(Rank& rank, RankSet ranks) {
  const Watch& watch = WatchOf(rank);
  return watch.has_masks() ? watch.Mask(rank, ranks) : EpCalls::Mask(rank, ranks);
}

// Epochs are each rank's own numbers of its calls, and a rank that was away has made fewer calls.
// So all ranks reset their epochs, with idle streams: then none of their stores is still in flight.
absl::Status LowLatency::Unmask(Rank& rank, RankSet still_masked) {
  const Watch& watch = WatchOf(rank);
  if (!watch.has_masks()) return EpCalls::Unmask(rank, still_masked);
  const RankSet others = still_masked & ~(RankSet{1} << rank.rank());
  OCTET_RETURN_IF_ERROR(Watch::CheckMask(rank, others));
  OCTET_RETURN_IF_ERROR(watch.ClearMasks(rank));
  OCTET_RETURN_IF_ERROR(watch.Mask(rank, others));
  OCTET_RETURN_IF_ERROR(rank.Synchronize());
  OCTET_RETURN_IF_ERROR(ResetCalls(rank));
  // All ranks must be done before any of them sends.
  OCTET_RETURN_IF_ERROR(rank.Synchronize());
  return rank.Barrier("the return of Unmask");
}

absl::StatusOr<EpStatistics> LowLatency::Statistics(Rank& rank) {
  const Watch& watch = WatchOf(rank);
  if (!watch.has_statistics()) return EpCalls::Statistics(rank);
  OCTET_ASSIGN_OR_RETURN(EpStatistics statistics, watch.Waits(rank));
  OCTET_ASSIGN_OR_RETURN(ExpertLoads loads, this->loads().Read(rank.rank()));
  statistics.expert_rows = std::move(loads.rows);
  return statistics;
}

absl::Status LowLatency::ResetStatistics(Rank& rank) {
  const Watch& watch = WatchOf(rank);
  if (!watch.has_statistics()) return StrategyBase::ResetStatistics(rank);
  OCTET_RETURN_IF_ERROR(watch.ResetStatistics(rank));
  return loads().Reset(rank);
}

absl::Span<const TraceTag> LowLatency::trace_tags() const {
  // In the order of Tag.
  static constexpr std::array<TraceTag, 8> kTags = {{
      {.name = "route", .phase = kDispatchSend},
      {.name = "send", .phase = kDispatchSend, .detail = {"token"}},
      {.name = "wait counts", .phase = kDispatchReceive, .detail = kTracePeer, .waits = true},
      {.name = "wait row", .phase = kDispatchReceive, .detail = kTracePeer, .waits = true},
      {.name = "copy", .phase = kDispatchReceive, .detail = {"choices"}},
      {.name = "combine send", .phase = kCombineSend, .detail = {"rows"}},
      {.name = "wait rows", .phase = kCombineReceive, .detail = kTracePeer, .waits = true},
      {.name = "reduce", .phase = kCombineReceive, .detail = {"token"}},
  }};
  return kTags;
}

}  // namespace octet::low_latency
