#include "kernels/direct/direct.h"

#include <hip/hip_runtime.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/memory/memory.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "runtime/device/epoch.h"
#include "runtime/failure.h"
#include "runtime/gpu_status.h"
#include "runtime/launch.h"

namespace octet::direct {
namespace {

// The smallest piece worth a wave of its own, and how many pieces a call should have: measured on
// H200s over the challenge's shapes; more pieces mean more flags than they save time.
constexpr int kSmallestPartVecs = 64;
constexpr int kWantedParts = 1024;
constexpr int kMostRowParts = 4;

// A flag, a count or a credit on the wire.
constexpr size_t kWordBytes = sizeof(uint64_t);

// Calls between two recoveries. Epochs have 44 bits (runtime/device/epoch.h).
constexpr int kCallBits = 28;

constexpr size_t AlignUp(size_t value, size_t alignment) {
  return (value + alignment - 1) / alignment * alignment;
}

// What a wait was for: the phase that waited, and the words for the flag.
struct SiteText {
  absl::string_view phase;
  absl::string_view flag;
};
SiteText TextOf(Site site) {
  switch (site) {
    case Site::kDispatchCredit:
      return {"dispatch-send", "dispatch credit"};
    case Site::kDispatchCount:
      return {"dispatch-receive", "row count for local expert"};
    case Site::kDispatchToken:
      return {"dispatch-receive", "token flag of slot"};
    case Site::kDispatchSource:
      return {"dispatch-receive", "source flag"};
    case Site::kCombineCredit:
      return {"combine-send", "combine credit"};
    case Site::kCombineToken:
      return {"combine-receive", "token flag of (token, k)"};
    case Site::kCombineSource:
      return {"combine-receive", "source flag"};
    case Site::kExpertOutOfRange:
    case Site::kExpertTwice:
      return {"dispatch-send", "expert id"};
  }
  return {"direct", "flag"};
}

// The title of a table of such flags, and whether its cells are epochs; else they are rows.
struct FlagWords {
  absl::string_view title;
  bool by_epoch;
};
FlagWords WordsOf(Site site) {
  switch (site) {
    case Site::kDispatchCredit:
      return {"dispatch credits: epoch seen from each rank", true};
    case Site::kDispatchCount:
      return {"row counts: epoch seen from each rank", true};
    case Site::kDispatchToken:
      return {"dispatched rows: arrived / announced by each rank", false};
    case Site::kDispatchSource:
      return {"dispatch source flags: epoch seen from each rank", true};
    case Site::kCombineCredit:
      return {"combine credits: epoch seen from each rank", true};
    case Site::kCombineToken:
      return {"combined rows: arrived / to come back from each rank", false};
    case Site::kCombineSource:
      return {"combine source flags: epoch seen from each rank", true};
    case Site::kExpertOutOfRange:
    case Site::kExpertTwice:
      break;
  }
  return {"flags", true};
}

// An epoch as people read it: the number of the call since the last recovery.
uint64_t CallOf(uint64_t epoch) { return epoch & ((uint64_t{1} << kCallBits) - 1); }

uint64_t ExpectedEpoch(const device::FailureRecord& wait) {
  return static_cast<Site>(wait.site) == Site::kDispatchCount ? device::EpochOf(wait.expected)
                                                              : wait.expected;
}

absl::Status RefusedInput(int rank, const device::FailureRecord& record, int topk) {
  const auto id = static_cast<int64_t>(record.seen);
  const auto flat = static_cast<int>(record.index);
  const std::string where = absl::StrCat("rank ", rank, ": topk_idx of token ", flat / topk, ", k ",
                                         flat % topk, " is ", id);
  if (static_cast<Site>(record.site) == Site::kExpertTwice) {
    return absl::InvalidArgumentError(
        absl::StrCat(where, ", which the token has chosen before; a token's experts must differ"));
  }
  return absl::InvalidArgumentError(
      absl::StrCat(where, "; it must be -1 (dropped) or from 0 to ", record.expected - 1));
}

}  // namespace

int ChooseRowParts(const EpConfig& config) {
  const int row_vecs = config.hidden / 8;
  const int rows = config.max_tokens_per_rank * config.topk;
  const int wanted = std::max(1, kWantedParts / rows);
  return std::clamp(std::min(wanted, row_vecs / kSmallestPartVecs), 1, kMostRowParts);
}

Layout MakeLayout(const EpConfig& config, int num_ranks) {
  Layout layout = {};
  layout.num_ranks = num_ranks;
  layout.num_experts = config.num_experts;
  layout.num_local_experts = config.num_local_experts(num_ranks);
  layout.topk = config.topk;
  layout.max_tokens = config.max_tokens_per_rank;
  layout.slots_per_source =
      config.max_tokens_per_rank * std::min(config.topk, layout.num_local_experts);
  layout.row_vecs = static_cast<int>(config.hidden * kElementBytes / kVecBytes);
  layout.row_parts = config.tuning.row_parts;

  const auto ranks = static_cast<size_t>(num_ranks);
  const auto slots = static_cast<size_t>(layout.slots_per_source);
  const auto parts = static_cast<size_t>(layout.row_parts);
  const auto flat_tokens =
      static_cast<size_t>(config.max_tokens_per_rank) * static_cast<size_t>(config.topk);
  const size_t row_bytes = static_cast<size_t>(layout.row_vecs) * kVecBytes;
  size_t end = 0;
  const auto place = [&end](size_t bytes) {
    const size_t offset = end;
    end = AlignUp(end + bytes, SymmetricHeap::kAlignment);
    return offset;
  };
  layout.counts = place(2 * static_cast<size_t>(layout.num_experts) * sizeof(uint64_t));
  layout.packets = place(ranks * slots * parts * sizeof(Packet));
  layout.source_flags = place(ranks * sizeof(Flag));
  layout.credits = place(ranks * sizeof(Flag));
  layout.combine_flags = place(flat_tokens * parts * sizeof(Flag));
  layout.combine_source_flags = place(ranks * sizeof(Flag));
  layout.combine_credits = place(ranks * sizeof(Flag));
  layout.control_bytes = end;
  layout.rows = place(ranks * slots * row_bytes);
  layout.combine_rows = place(flat_tokens * row_bytes);
  layout.bytes = end;
  return layout;
}

absl::StatusOr<std::unique_ptr<ExpertParallel>> Direct::Create(
    Node& node, const EpConfig& config, const ExpertParallelOptions& options) {
  auto direct = absl::WrapUnique(new Direct(node, config, options));
  OCTET_RETURN_IF_ERROR(direct->Init());
  return direct;
}

Direct::Direct(Node& node, const EpConfig& config, const ExpertParallelOptions& options)
    : node_(node),
      config_(config),
      options_(options),
      ranks_(static_cast<size_t>(node.num_ranks())),
      recoveries_(static_cast<size_t>(node.num_ranks())) {
  client_ = node.AddClient(this);
}

Direct::~Direct() {
  node_.RemoveClient(client_);
  if (!node_.stuck()) return;
  for (RankState& rank : ranks_) {
    for (DeviceMemory* memory :
         {&rank.state, &rank.recv_x, &rank.sources, &rank.expert_counts, &rank.expert_offsets}) {
      memory->Abandon();
    }
  }
}

absl::Status Direct::Init() {
  if (config_.tuning.row_parts == 0) config_.tuning.row_parts = ChooseRowParts(config_);
  layout_ = MakeLayout(config_, node_.num_ranks());
  OCTET_RETURN_IF_ERROR(ChooseShape());
  SymmetricHeap* heap = options_.heap;
  if (heap == nullptr) {
    OCTET_ASSIGN_OR_RETURN(own_heap_, SymmetricHeap::Create(node_, layout_.bytes));
    heap = own_heap_.get();
  }
  OCTET_ASSIGN_OR_RETURN(const size_t offset,
                         heap->AllocateBytes(layout_.bytes, SymmetricHeap::kAlignment));
  for (int r = 0; r < node_.num_ranks(); ++r) {
    device::PeerBases peers = heap->peers(r);
    for (int peer = 0; peer < peers.num_ranks; ++peer) peers.base[peer] += offset;
    peers_.push_back(peers);
  }
  return node_.Run([this](Rank& rank) { return InitRank(rank); });
}

// As many blocks as fit, half of them for sending, unless the caller has said otherwise.
absl::Status Direct::ChooseShape() {
  Tuning& tuning = config_.tuning;
  const GpuInfo& gpu = node_.topology().gpus[0];
  const int most_waves = kMaxThreads / gpu.wave_size;
  if (tuning.waves_per_block == 0) tuning.waves_per_block = most_waves;
  if (tuning.waves_per_block > most_waves) {
    return absl::InvalidArgumentError(absl::StrCat("waves_per_block is ", tuning.waves_per_block,
                                                   "; with waves of ", gpu.wave_size,
                                                   " lanes it can be ", most_waves, " at most"));
  }
  shape_.threads = tuning.waves_per_block * gpu.wave_size;
  shape_.shared_bytes = SharedBytes(layout_);

  const bool traced = options_.trace != nullptr;
  const bool fp16 = config_.dtype == DType::kFloat16;
  int dispatch_blocks = 0;
  int combine_blocks = 0;
  OCTET_RETURN_IF_GPU_ERROR(DispatchBlocksPerUnit(traced, shape_, &dispatch_blocks));
  OCTET_RETURN_IF_GPU_ERROR(CombineBlocksPerUnit(fp16, traced, shape_, &combine_blocks));
  const int per_unit = std::min(dispatch_blocks, combine_blocks);
  if (tuning.blocks == 0) {
    tuning.blocks = per_unit * gpu.num_compute_units;
    if (config_.max_blocks > 0) tuning.blocks = std::min(tuning.blocks, config_.max_blocks);
  }
  shape_.blocks = tuning.blocks;
  OCTET_RETURN_IF_ERROR(CheckResident("direct", shape_, per_unit, gpu.num_compute_units));
  if (tuning.blocks < 2) {
    return absl::InvalidArgumentError(absl::StrCat(
        "blocks is ", tuning.blocks, "; it must be at least 2: one that sends, one that receives"));
  }
  if (tuning.send_blocks == 0) tuning.send_blocks = tuning.blocks / 2;
  if (tuning.send_blocks >= tuning.blocks) {
    return absl::InvalidArgumentError(absl::StrCat("send_blocks is ", tuning.send_blocks,
                                                   "; it must be less than blocks, which is ",
                                                   tuning.blocks));
  }
  return absl::OkStatus();
}

absl::Status Direct::InitRank(Rank& rank) {
  RankState& mine = ranks_[static_cast<size_t>(rank.rank())];
  const auto rows = static_cast<size_t>(layout_.max_rows());
  const auto num_local = static_cast<size_t>(layout_.num_local_experts);
  const size_t row_bytes = static_cast<size_t>(layout_.row_vecs) * kVecBytes;
  OCTET_ASSIGN_OR_RETURN(
      mine.state, DeviceMemory::Allocate(sizeof(State) + static_cast<size_t>(layout_.num_experts) *
                                                             sizeof(int32_t)));
  OCTET_ASSIGN_OR_RETURN(mine.recv_x, DeviceMemory::Allocate(rows * row_bytes));
  OCTET_ASSIGN_OR_RETURN(mine.sources, DeviceMemory::Allocate(rows * sizeof(RowSource)));
  // Combine looks at a first origin before it knows whether there is such a row.
  OCTET_RETURN_IF_GPU_ERROR(
      hipMemsetAsync(mine.sources.as<void>(), 0xff, mine.sources.bytes(), rank.stream()));
  OCTET_ASSIGN_OR_RETURN(mine.expert_counts, DeviceMemory::Allocate(num_local * sizeof(int32_t)));
  OCTET_ASSIGN_OR_RETURN(mine.expert_offsets,
                         DeviceMemory::Allocate((num_local + 1) * sizeof(int32_t)));
  return ResetControl(rank, 1);
}

// Flags as if call `epoch` - 1 had just been completed by everybody, and call `epoch` comes next.
absl::Status Direct::ResetControl(Rank& rank, uint64_t epoch) {
  RankState& mine = ranks_[static_cast<size_t>(rank.rank())];
  char* base = peers_[static_cast<size_t>(rank.rank())].base[rank.rank()];
  OCTET_RETURN_IF_GPU_ERROR(hipMemsetAsync(base, 0, layout_.control_bytes, rank.stream()));
  mine.reset_credits.assign(static_cast<size_t>(layout_.num_ranks), Flag{epoch - 1});
  for (const size_t credits : {layout_.credits, layout_.combine_credits}) {
    OCTET_RETURN_IF_GPU_ERROR(hipMemcpyAsync(base + credits, mine.reset_credits.data(),
                                             sizeof(Flag) * mine.reset_credits.size(),
                                             hipMemcpyHostToDevice, rank.stream()));
  }
  State state = {};
  for (device::CallEpoch* phase : {&state.dispatch_send, &state.dispatch_receive,
                                   &state.combine_send, &state.combine_receive}) {
    phase->epoch = epoch;
  }
  mine.reset_state.assign(mine.state.bytes(), 0);
  std::memcpy(mine.reset_state.data(), &state, sizeof(state));
  return OCTET_GPU(hipMemcpyAsync(mine.state.as<void>(), mine.reset_state.data(),
                                  mine.reset_state.size(), hipMemcpyHostToDevice, rank.stream()));
}

absl::Status Direct::Recover(Rank& rank) {
  const auto r = static_cast<size_t>(rank.rank());
  if (ranks_[r].state.bytes() == 0) return absl::OkStatus();  // failed before it was made
  ranks_[r].stage = Stage::kNone;
  // Beyond any epoch of before, the same on all ranks.
  return ResetControl(rank, (++recoveries_[r] << kCallBits) + 1);
}

absl::Status Direct::Describe(int rank, const device::FailureRecord& record) const {
  if (record.kind == device::FailureKind::kInput) return RefusedInput(rank, record, config_.topk);
  const SiteText text = TextOf(static_cast<Site>(record.site));
  device::FailureRecord plain = record;
  const bool count = static_cast<Site>(record.site) == Site::kDispatchCount;
  plain.expected = CallOf(ExpectedEpoch(record));
  plain.seen = CallOf(count ? device::EpochOf(record.seen) : record.seen);
  return DeadlineStatus(rank, text.phase, text.flag, plain, DeviceTicks(record.waited_ticks));
}

absl::Status Direct::CopyFlags(Rank& rank) {
  RankState& mine = ranks_[static_cast<size_t>(rank.rank())];
  const char* base = peers_[static_cast<size_t>(rank.rank())].base[rank.rank()];
  mine.flags.resize(layout_.control_bytes / sizeof(Flag));
  return OCTET_GPU(hipMemcpyAsync(mine.flags.data(), base, layout_.control_bytes,
                                  hipMemcpyDeviceToHost, rank.stream()));
}

std::vector<FlagTable> Direct::FlagTables(absl::Span<const device::FailureRecord> waits) {
  std::map<Site, FlagTable> tables;
  for (int rank = 0; rank < node_.num_ranks(); ++rank) {
    const device::FailureRecord& wait = waits[static_cast<size_t>(rank)];
    if (wait.kind == device::FailureKind::kNone) continue;
    const auto site = static_cast<Site>(wait.site);
    const FlagWords words = WordsOf(site);
    FlagTable& table = tables[site];
    table.title = std::string(words.title);
    FlagTable::Row row;
    row.rank = rank;
    if (words.by_epoch) row.expected = absl::StrCat(CallOf(ExpectedEpoch(wait)));
    for (int peer = 0; peer < node_.num_ranks(); ++peer) {
      row.peers.push_back(FlagCell(rank, peer, wait));
    }
    table.rows.push_back(std::move(row));
  }
  for (RankState& rank : ranks_) rank.flags = {};
  std::vector<FlagTable> result;
  for (auto& [site, table] : tables) result.push_back(std::move(table));
  return result;
}

FlagTable::Cell Direct::FlagCell(int rank, int peer, const device::FailureRecord& wait) {
  const auto base_of = [this](int of) {
    return reinterpret_cast<char*>(ranks_[static_cast<size_t>(of)].flags.data());
  };
  char* mine = base_of(rank);
  const uint64_t epoch = ExpectedEpoch(wait);
  const auto by_epoch = [epoch](uint64_t seen) {
    return FlagTable::Cell{absl::StrCat(CallOf(seen)), seen < epoch};
  };
  const auto by_rows = [](int arrived, int announced) {
    return FlagTable::Cell{absl::StrCat(arrived, "/", announced), arrived < announced};
  };
  const auto has_come = [&](const auto& flag_of_part) {
    for (int part = 0; part < layout_.row_parts; ++part) {
      if (flag_of_part(part) < epoch) return false;
    }
    return true;
  };

  switch (static_cast<Site>(wait.site)) {
    case Site::kDispatchCredit:
      return by_epoch(*Layout::FlagOf(mine, layout_.credits, peer));
    case Site::kCombineCredit:
      return by_epoch(*Layout::FlagOf(mine, layout_.combine_credits, peer));
    case Site::kDispatchSource:
      return by_epoch(*Layout::FlagOf(mine, layout_.source_flags, peer));
    case Site::kCombineSource:
      return by_epoch(*Layout::FlagOf(mine, layout_.combine_source_flags, peer));
    case Site::kDispatchCount: {
      uint64_t seen = UINT64_MAX;
      for (int expert = 0; expert < layout_.num_local_experts; ++expert) {
        seen = std::min(seen, device::EpochOf(*layout_.Count(mine, epoch, peer, expert)));
      }
      return by_epoch(seen);
    }
    case Site::kDispatchToken: {
      int announced = 0;
      for (int expert = 0; expert < layout_.num_local_experts; ++expert) {
        const uint64_t count = *layout_.Count(mine, epoch, peer, expert);
        // A sender with more calls in its stream goes on after a failure.
        if (device::EpochOf(count) > epoch) return {"gone on", false};
        if (device::EpochOf(count) == epoch) announced += static_cast<int>(device::CountOf(count));
      }
      announced = std::min(announced, layout_.slots_per_source);
      int arrived = 0;
      for (int slot = 0; slot < announced; ++slot) {
        arrived +=
            has_come([&](int part) { return layout_.PacketOf(mine, peer, slot, part)->flag; }) ? 1
                                                                                               : 0;
      }
      return by_rows(arrived, announced);
    }
    case Site::kCombineToken: {
      // What the peer has received of this rank's last dispatch is what it has to send back.
      char* theirs = base_of(peer);
      uint64_t dispatch = 1;
      for (int slot = 0; slot < layout_.slots_per_source; ++slot) {
        dispatch = std::max(dispatch, layout_.PacketOf(theirs, rank, slot, 0)->flag);
      }
      int announced = 0;
      int arrived = 0;
      for (int slot = 0; slot < layout_.slots_per_source; ++slot) {
        const Packet& packet = *layout_.PacketOf(theirs, rank, slot, 0);
        if (packet.flag != dispatch) continue;
        ++announced;
        const int flat = packet.source.token * layout_.topk + packet.source.k;
        arrived +=
            has_come([&](int part) { return *layout_.CombineFlag(mine, flat, part); }) ? 1 : 0;
      }
      return by_rows(arrived, announced);
    }
    case Site::kExpertOutOfRange:
    case Site::kExpertTwice:
      break;
  }
  return {};
}

absl::Status Direct::CheckDispatch(Rank& rank, const DispatchArgs& args) const {
  const Stage stage = ranks_[static_cast<size_t>(rank.rank())].stage;
  if (stage == Stage::kSent || stage == Stage::kCombineSent) {
    return absl::FailedPreconditionError(
        absl::StrCat("the last ", stage == Stage::kSent ? "dispatch" : "combine",
                     " of this rank has been sent but not received"));
  }
  if (args.num_tokens < 0 || args.num_tokens > config_.max_tokens_per_rank) {
    return absl::InvalidArgumentError(absl::StrCat("num_tokens is ", args.num_tokens,
                                                   "; it must be from 0 to max_tokens_per_rank, ",
                                                   config_.max_tokens_per_rank));
  }
  if (args.num_tokens > 0 &&
      (args.x == nullptr || args.topk_idx == nullptr || args.topk_weights == nullptr)) {
    return absl::InvalidArgumentError("x, topk_idx and topk_weights must not be null");
  }
  if (reinterpret_cast<uintptr_t>(args.x) % kVecBytes != 0) {
    return absl::InvalidArgumentError("x must be 16-byte aligned");
  }
  if (args.x_scales != nullptr || args.scatter_idx != nullptr || args.cached != nullptr) {
    return absl::InvalidArgumentError(
        "direct has no x_scales, scatter_idx or cached layouts; high_throughput has");
  }
  return absl::OkStatus();
}

absl::Status Direct::CheckHandle(Rank& rank, const DispatchHandle& handle, Stage stage) const {
  const RankState& mine = ranks_[static_cast<size_t>(rank.rank())];
  if (handle.call != mine.calls || handle.call == 0) {
    return absl::FailedPreconditionError(absl::StrCat("the handle is of dispatch ", handle.call,
                                                      " of this rank, whose last is ", mine.calls));
  }
  if (mine.stage == stage) return absl::OkStatus();
  switch (mine.stage) {
    case Stage::kNone:
      return absl::FailedPreconditionError("the node has failed since this dispatch; it is void");
    case Stage::kSent:
      return absl::FailedPreconditionError("this dispatch has been sent but not received");
    case Stage::kReceived:
      return absl::FailedPreconditionError(
          "this dispatch has been received; its combine has not "
          "been sent");
    case Stage::kCombineSent:
      return absl::FailedPreconditionError(
          "the combine of this dispatch has been sent but not "
          "received");
  }
  return absl::InternalError("unknown stage");
}

CommonParams Direct::Common(Rank& rank, Phases phases) const {
  const auto r = static_cast<size_t>(rank.rank());
  CommonParams common = {};
  common.peers = peers_[r];
  common.failure = rank.failure_port(client_);
  if (options_.trace != nullptr) common.trace = options_.trace->buffer(rank.rank());
  common.layout = layout_;
  common.state = ranks_[r].state.as<State>();
  common.send_blocks = phases == Phases::kBoth   ? config_.tuning.send_blocks
                       : phases == Phases::kSend ? shape_.blocks
                                                 : 0;
  common.source_flags = config_.flags == Flags::kSource;
  return common;
}

absl::Status Direct::EnqueueDispatch(Rank& rank, const DispatchArgs& args, Phases phases) {
  const RankState& mine = ranks_[static_cast<size_t>(rank.rank())];
  DispatchParams params = {};
  params.common = Common(rank, phases);
  params.atomic_slots = config_.slots == Slots::kAtomic;
  params.x = args.x;
  params.topk_idx = args.topk_idx;
  params.num_tokens = args.num_tokens;
  params.recv_x = mine.recv_x.as<void>();
  params.sources = mine.sources.as<RowSource>();
  params.expert_counts = mine.expert_counts.as<int32_t>();
  params.expert_offsets = mine.expert_offsets.as<int32_t>();
  const auto launch = [&] {
    return OCTET_GPU(LaunchDispatch(params, options_.trace != nullptr, shape_, rank.stream()));
  };
  // What only receives waits for nobody who is yet to come.
  return phases == Phases::kReceive ? launch() : rank.CoordinatedLaunch(launch);
}

absl::Status Direct::EnqueueCombine(Rank& rank, const DispatchHandle& handle,
                                    const CombineArgs& args, Phases phases) {
  if (args.expert_out == nullptr || (args.y == nullptr && handle.num_tokens > 0)) {
    return absl::InvalidArgumentError("expert_out and y must not be null");
  }
  if (args.bias != nullptr) {
    return absl::InvalidArgumentError("direct adds no bias; high_throughput does");
  }
  for (const void* rows : {args.expert_out, static_cast<const void*>(args.y)}) {
    if (reinterpret_cast<uintptr_t>(rows) % kVecBytes != 0) {
      return absl::InvalidArgumentError("expert_out and y must be 16-byte aligned");
    }
  }
  const RankState& mine = ranks_[static_cast<size_t>(rank.rank())];
  CombineParams params = {};
  params.common = Common(rank, phases);
  params.expert_out = args.expert_out;
  params.expert_scale = args.expert_scale;
  params.sources = mine.sources.as<RowSource>();
  params.expert_offsets = mine.expert_offsets.as<int32_t>();
  params.topk_idx = handle.topk_idx;
  params.topk_weights = handle.topk_weights;
  params.num_tokens = handle.num_tokens;
  params.y = args.y;
  const auto launch = [&] {
    return OCTET_GPU(LaunchCombine(params, config_.dtype == DType::kFloat16,
                                   options_.trace != nullptr, shape_, rank.stream()));
  };
  return phases == Phases::kReceive ? launch() : rank.CoordinatedLaunch(launch);
}

Received Direct::ReceivedOn(Rank& rank, const DispatchHandle& handle) const {
  const RankState& mine = ranks_[static_cast<size_t>(rank.rank())];
  Received received;
  received.x = mine.recv_x.as<void>();
  received.expert_counts = mine.expert_counts.as<int32_t>();
  received.expert_offsets = mine.expert_offsets.as<int32_t>();
  received.sources = mine.sources.as<RowSource>();
  received.row_bytes = static_cast<size_t>(layout_.row_vecs) * kVecBytes;
  received.max_rows = layout_.max_rows();
  received.handle = handle;
  return received;
}

absl::StatusOr<DispatchHandle> Direct::DispatchSend(Rank& rank, const DispatchArgs& args) {
  RankState& mine = ranks_[static_cast<size_t>(rank.rank())];
  OCTET_RETURN_IF_ERROR(CheckDispatch(rank, args));
  OCTET_RETURN_IF_ERROR(EnqueueDispatch(rank, args, Phases::kSend));
  mine.stage = Stage::kSent;
  return DispatchHandle{++mine.calls, args.num_tokens, args.topk_idx, args.topk_weights};
}

absl::StatusOr<Received> Direct::DispatchReceive(Rank& rank, const DispatchHandle& handle) {
  OCTET_RETURN_IF_ERROR(CheckHandle(rank, handle, Stage::kSent));
  OCTET_RETURN_IF_ERROR(EnqueueDispatch(rank, {}, Phases::kReceive));
  ranks_[static_cast<size_t>(rank.rank())].stage = Stage::kReceived;
  return ReceivedOn(rank, handle);
}

absl::StatusOr<Received> Direct::Dispatch(Rank& rank, const DispatchArgs& args) {
  RankState& mine = ranks_[static_cast<size_t>(rank.rank())];
  OCTET_RETURN_IF_ERROR(CheckDispatch(rank, args));
  OCTET_RETURN_IF_ERROR(EnqueueDispatch(rank, args, Phases::kBoth));
  mine.stage = Stage::kReceived;
  return ReceivedOn(
      rank, DispatchHandle{++mine.calls, args.num_tokens, args.topk_idx, args.topk_weights});
}

absl::Status Direct::CombineSend(Rank& rank, const DispatchHandle& handle,
                                 const CombineArgs& args) {
  OCTET_RETURN_IF_ERROR(CheckHandle(rank, handle, Stage::kReceived));
  OCTET_RETURN_IF_ERROR(EnqueueCombine(rank, handle, args, Phases::kSend));
  ranks_[static_cast<size_t>(rank.rank())].stage = Stage::kCombineSent;
  return absl::OkStatus();
}

absl::Status Direct::CombineReceive(Rank& rank, const DispatchHandle& handle,
                                    const CombineArgs& args) {
  OCTET_RETURN_IF_ERROR(CheckHandle(rank, handle, Stage::kCombineSent));
  OCTET_RETURN_IF_ERROR(EnqueueCombine(rank, handle, args, Phases::kReceive));
  ranks_[static_cast<size_t>(rank.rank())].stage = Stage::kReceived;
  return absl::OkStatus();
}

absl::Status Direct::Combine(Rank& rank, const DispatchHandle& handle, const CombineArgs& args) {
  OCTET_RETURN_IF_ERROR(CheckHandle(rank, handle, Stage::kReceived));
  return EnqueueCombine(rank, handle, args, Phases::kBoth);
}

absl::Status Direct::Poison(Rank& rank, int num_rows) {
  const RankState& mine = ranks_[static_cast<size_t>(rank.rank())];
  if (num_rows < 0 || num_rows > layout_.max_rows()) {
    return absl::InvalidArgumentError(
        absl::StrCat("num_rows is ", num_rows, "; it must be from 0 to ", layout_.max_rows()));
  }
  const auto rows = static_cast<size_t>(num_rows);
  const std::array<std::pair<void*, size_t>, 4> fills = {{
      {mine.recv_x.as<void>(), rows * static_cast<size_t>(layout_.row_vecs) * kVecBytes},
      {mine.sources.as<void>(), rows * sizeof(RowSource)},
      {mine.expert_counts.as<void>(), mine.expert_counts.bytes()},
      {mine.expert_offsets.as<void>(), mine.expert_offsets.bytes()},
  }};
  for (const auto& [memory, bytes] : fills) {
    OCTET_RETURN_IF_GPU_ERROR(hipMemsetAsync(memory, 0xff, bytes, rank.stream()));
  }
  return absl::OkStatus();
}

Traffic Direct::CountTraffic(int rank, absl::Span<const int32_t> topk_idx, int64_t part_bytes,
                             int64_t peer_bytes) const {
  const int64_t row_bytes =
      static_cast<int64_t>(layout_.row_vecs) * static_cast<int64_t>(kVecBytes);
  Traffic traffic;
  int64_t remote = 0;
  for (const int32_t id : topk_idx) {
    if (id < 0) continue;
    ++traffic.rows;
    remote += id / layout_.num_local_experts != rank ? 1 : 0;
  }
  traffic.logical_bytes = traffic.rows * row_bytes;
  traffic.wire_bytes =
      remote * (row_bytes + layout_.row_parts * part_bytes) + (layout_.num_ranks - 1) * peer_bytes;
  return traffic;
}

Traffic Direct::DispatchTraffic(int rank, absl::Span<const int32_t> topk_idx) const {
  // Of a packet the index, the origin and, unless sources have one for all, the flag are stored;
  // to each peer go its counts, two credits and perhaps the source's flag.
  const bool token_flags = config_.flags == Flags::kToken;
  const size_t part_bytes = sizeof(uint32_t) + sizeof(RowSource) + (token_flags ? kWordBytes : 0);
  const size_t peer_words =
      static_cast<size_t>(layout_.num_local_experts) + 2 + (token_flags ? 0 : 1);
  return CountTraffic(rank, topk_idx, static_cast<int64_t>(part_bytes),
                      static_cast<int64_t>(peer_words * kWordBytes));
}

Traffic Direct::CombineTraffic(int rank, absl::Span<const int32_t> topk_idx) const {
  const bool token_flags = config_.flags == Flags::kToken;
  return CountTraffic(rank, topk_idx, static_cast<int64_t>(token_flags ? kWordBytes : 0),
                      static_cast<int64_t>((token_flags ? 2 : 3) * kWordBytes));
}

absl::Span<const TraceTag> Direct::trace_tags() const {
  constexpr absl::string_view kDispatchSend = "dispatch send";
  constexpr absl::string_view kDispatchReceive = "dispatch receive";
  constexpr absl::string_view kCombineSend = "combine send";
  constexpr absl::string_view kCombineReceive = "combine receive";
  // In the order of Tag.
  static constexpr std::array<TraceTag, 10> kTags = {{
      {.name = "route", .phase = kDispatchSend},
      {.name = "wait credit", .phase = kDispatchSend, .detail = kTracePeer, .waits = true},
      {.name = "send", .phase = kDispatchSend, .detail = kTracePeer},
      {.name = "wait counts", .phase = kDispatchReceive, .detail = kTracePeer, .waits = true},
      {.name = "wait row", .phase = kDispatchReceive, .detail = kTracePeer, .waits = true},
      {.name = "copy", .phase = kDispatchReceive, .detail = "row"},
      {.name = "wait combine credit", .phase = kCombineSend, .detail = kTracePeer, .waits = true},
      {.name = "combine send", .phase = kCombineSend, .detail = kTracePeer},
      {.name = "wait outputs", .phase = kCombineReceive, .detail = kTracePeer, .waits = true},
      {.name = "reduce", .phase = kCombineReceive, .detail = "token"},
  }};
  return kTags;
}

}  // namespace octet::direct
