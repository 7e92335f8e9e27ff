#include "kernels/direct/direct.h"

#include <hip/hip_runtime.h>

#include <algorithm>
#include <array>

#include "absl/strings/str_cat.h"
#include "kernels/ep/base/fill_memory.h"
#include "kernels/ep/trace_phases.h"
#include "runtime/device/epoch.h"
#include "runtime/gpu/gpu_status.h"

namespace octet::direct {

Direct::Direct(Node& node, const EpPlan& plan, const ExpertParallelOptions& options)
    : StrategyBase(node, plan, options), ranks_(Index(node.num_ranks())) {}

absl::StatusOr<ControlNeeds> Direct::Prepare() {
  layout_ = MakeLayout(config(), node().num_ranks());
  OCTET_RETURN_IF_ERROR(ChooseShape());
  return ControlNeeds{
      .layout = layout_,
      .state_bytes = sizeof(State) + static_cast<size_t>(layout_.num_experts) * sizeof(int32_t),
      .call_epochs = kCallEpochs};
}

// Chooses as many blocks as fit, half of them for sending, unless the caller has set them.
absl::Status Direct::ChooseShape() {
  OCTET_RETURN_IF_ERROR(
      launch().ChooseBlock(kMaxThreads, [this](int) { return SharedBytes(layout_); }));
  const bool fp16 = config().dtype == DType::kFloat16;
  int dispatch_blocks = 0;
  int combine_blocks = 0;
  OCTET_RETURN_IF_GPU_ERROR(DispatchBlocksPerUnit(traced(), shape(), &dispatch_blocks));
  OCTET_RETURN_IF_GPU_ERROR(CombineBlocksPerUnit(fp16, traced(), shape(), &combine_blocks));
  const int per_unit = std::min(dispatch_blocks, combine_blocks);
  OCTET_RETURN_IF_ERROR(launch().ChooseBlocks(per_unit, per_unit));
  return launch().ChooseSendBlocks();
}

absl::Status Direct::InitRank(Rank& rank) {
  RankState& mine = ranks_[Index(rank.rank())];
  const auto rows = static_cast<size_t>(layout_.max_rows);
  const auto num_local = static_cast<size_t>(layout_.num_local_experts);
  OCTET_ASSIGN_OR_RETURN(mine.recv_x, memory().Device<char>(rows * row_bytes()));
  OCTET_ASSIGN_OR_RETURN(mine.sources, memory().Device<RowSource>(rows));
  OCTET_ASSIGN_OR_RETURN(mine.expert_counts, memory().Device<int32_t>(num_local));
  OCTET_ASSIGN_OR_RETURN(mine.expert_offsets, memory().Device<int32_t>(num_local + 1));
  // Combine loads a first origin before it knows whether that row exists.
  OCTET_RETURN_IF_ERROR(Fill(rank, mine.sources, 0xff));
  OCTET_RETURN_IF_ERROR(Fill(rank, mine.expert_counts, 0));
  OCTET_RETURN_IF_ERROR(Fill(rank, mine.expert_offsets, 0));
  OCTET_RETURN_IF_GPU_ERROR(LoadDispatch(traced()));
  return OCTET_GPU(LoadCombine(config().dtype == DType::kFloat16, traced()));
}

std::vector<uint64_t> Direct::OwnFlags(const FlagWait& wait) {
  char* mine = control().copied(wait.rank);
  switch (static_cast<Site>(wait.site)) {
    case Site::kDispatchSource:
      return {*FlagOf(mine, layout_.source_flags, wait.peer)};
    case Site::kCombineSource:
      return {*FlagOf(mine, layout_.combine_source_flags, wait.peer)};
    case Site::kDispatchRow:
      return DispatchedRows(mine, wait);
    case Site::kCombineRow:
      return CombinedRows(mine, control().copied(wait.peer), wait.rank);
    case Site::kDispatchCredit:
    case Site::kDispatchCount:
    case Site::kCombineCredit:
      break;  // not its own
  }
  return {};
}

std::vector<uint64_t> Direct::DispatchedRows(char* mine, const FlagWait& wait) const {
  int announced = 0;
  for (int expert = 0; expert < layout_.num_local_experts; ++expert) {
    const uint64_t count = *layout_.Count(mine, wait.epoch, wait.peer, expert);
    if (device::EpochOf(count) == wait.epoch) announced += static_cast<int>(device::CountOf(count));
  }
  std::vector<uint64_t> epochs;
  for (int slot = 0; slot < layout_.slots_per_source; ++slot) {
    uint64_t seen = UINT64_MAX;
    for (int part = 0; part < layout_.row_parts; ++part) {
      seen = std::min(seen, layout_.PacketOf(mine, wait.peer, slot, part)->flag);
    }
    // After a failure, a sender with more calls in its stream continues and announces those.
    if (slot < announced || seen >= wait.epoch) epochs.push_back(seen);
  }
  return epochs;
}

std::vector<uint64_t> Direct::CombinedRows(char* mine, char* theirs, int rank) const {
  // The peer has to send back the rows that it received from this rank's last dispatch.
  uint64_t dispatch = 1;
  for (int slot = 0; slot < layout_.slots_per_source; ++slot) {
    dispatch = std::max(dispatch, layout_.PacketOf(theirs, rank, slot, 0)->flag);
  }
  std::vector<uint64_t> epochs;
  for (int slot = 0; slot < layout_.slots_per_source; ++slot) {
    const Packet& packet = *layout_.PacketOf(theirs, rank, slot, 0);
    if (packet.flag != dispatch) continue;
    const int flat = packet.source.token * layout_.topk + packet.source.k;
    epochs.push_back(UINT64_MAX);
    for (int part = 0; part < layout_.row_parts; ++part) {
      epochs.back() = std::min(epochs.back(), *layout_.CombineFlag(mine, flat, part));
    }
  }
  return epochs;
}

CommonParams Direct::Common(Rank& rank, Phases phases) const {
  CommonParams common = {};
  static_cast<CallParams&>(common) = ParamsOf(rank);
  common.layout = layout_;
  common.state = StateOn<State>(rank.rank());
  common.send_blocks = launch().SendBlocks(phases);
  common.source_flags = config().variant.flags == Flags::kSource;
  return common;
}

absl::Status Direct::EnqueueDispatch(Rank& rank, const DispatchRequest& request, Phases phases,
                                     DispatchHandle& /*handle*/) {
  const RankState& mine = ranks_[Index(rank.rank())];
  DispatchParams params = {};
  params.common = Common(rank, phases);
  SetTensors(request, params, params.common);
  params.atomic_slots = config().variant.slots == Slots::kAtomic;
  params.recv_x = mine.recv_x.data();
  params.sources = mine.sources.data();
  params.expert_counts = mine.expert_counts.data();
  params.expert_offsets = mine.expert_offsets.data();
  return Launch(rank, phases, "dispatch", [&] {
    return OCTET_GPU(LaunchDispatch(params, traced(), shape(), rank.stream()));
  });
}

absl::Status Direct::EnqueueCombine(Rank& rank, const CombineRequest& request, Phases phases) {
  const RankState& mine = ranks_[Index(rank.rank())];
  CombineParams params = {};
  SetTensors(request, params);
  params.common = Common(rank, phases);
  params.sources = mine.sources.data();
  params.expert_offsets = mine.expert_offsets.data();
  return Launch(rank, phases, "combine", [&] {
    return OCTET_GPU(
        LaunchCombine(params, config().dtype == DType::kFloat16, traced(), shape(), rank.stream()));
  });
}

Received Direct::ReceivedOn(const Rank& rank, const DispatchHandle& handle) const {
  const RankState& mine = ranks_[Index(rank.rank())];
  Received received;
  received.x = mine.recv_x.data();
  received.expert_counts = mine.expert_counts.data();
  received.expert_offsets = mine.expert_offsets.data();
  received.sources = mine.sources.data();
  received.row_bytes = row_bytes();
  received.max_rows = layout_.max_rows;
  received.handle = handle;
  return received;
}

std::vector<std::pair<void*, size_t>> Direct::Delivered(const Rank& rank, size_t rows) const {
  const RankState& mine = ranks_[Index(rank.rank())];
  return {
      {mine.recv_x.data(), rows * row_bytes()},
      {mine.sources.data(), rows * sizeof(RowSource)},
      {mine.expert_counts.data(), mine.expert_counts.size() * sizeof(int32_t)},
      {mine.expert_offsets.data(), mine.expert_offsets.size() * sizeof(int32_t)},
  };
}

WireFormat Direct::DispatchWire() const {
  // A packet carries the index, the origin and, with Flags::kToken, the flag. Each peer gets its
  // counts, two credits and, with Flags::kSource, the source's flag.
  const bool token_flags = config().variant.flags == Flags::kToken;
  constexpr auto kOriginBytes = static_cast<int64_t>(sizeof(uint32_t) + sizeof(RowSource));
  return {.row = static_cast<int64_t>(row_bytes()),
          .beside_row = layout_.row_parts * (kOriginBytes + (token_flags ? kWordBytes : 0)),
          .to_peer = (layout_.num_counts + (token_flags ? 2 : 3)) * kWordBytes};
}

WireFormat Direct::CombineWire() const {
  const bool token_flags = config().variant.flags == Flags::kToken;
  return {.row = static_cast<int64_t>(row_bytes()),
          .beside_row = token_flags ? layout_.row_parts * kWordBytes : 0,
          .to_peer = (token_flags ? 2 : 3) * kWordBytes};
}

absl::Span<const TraceTag> Direct::trace_tags() const {
  // In the order of Tag.
  static constexpr std::array<TraceTag, 10> kTags = {{
      {.name = "route", .phase = kDispatchSend},
      {.name = "wait credit", .phase = kDispatchSend, .detail = kTracePeer, .waits = true},
      {.name = "send", .phase = kDispatchSend, .detail = kTracePeer},
      {.name = "wait counts", .phase = kDispatchReceive, .detail = kTracePeer, .waits = true},
      {.name = "wait row", .phase = kDispatchReceive, .detail = kTracePeer, .waits = true},
      {.name = "copy", .phase = kDispatchReceive, .detail = {"row"}},
      {.name = "wait combine credit", .phase = kCombineSend, .detail = kTracePeer, .waits = true},
      {.name = "combine send", .phase = kCombineSend, .detail = kTracePeer},
      {.name = "wait outputs", .phase = kCombineReceive, .detail = kTracePeer, .waits = true},
      {.name = "reduce", .phase = kCombineReceive, .detail = {"token"}},
  }};
  return kTags;
}

}  // namespace octet::direct
