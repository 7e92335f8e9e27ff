#include "kernels/high_throughput/high_throughput.h"

#include <hip/hip_runtime.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/memory/memory.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "runtime/backoff.h"
#include "runtime/device/epoch.h"
#include "runtime/failure.h"
#include "runtime/gpu_status.h"
#include "runtime/launch.h"

namespace octet::high_throughput {
namespace {

// Calls between two recoveries. Epochs have 44 bits (runtime/device/epoch.h).
constexpr int kCallBits = 28;

// A flag, a count or a credit on the wire.
constexpr int64_t kWordBytes = sizeof(uint64_t);

constexpr size_t AlignUp(size_t value, size_t alignment) {
  return (value + alignment - 1) / alignment * alignment;
}

// Places pieces one behind the other.
class Pieces {
 public:
  size_t Place(size_t bytes) {
    const size_t offset = end_;
    end_ = AlignUp(end_ + bytes, SymmetricHeap::kAlignment);
    return offset;
  }
  size_t end() const { return end_; }

 private:
  size_t end_ = 0;
};

// What a wait was for: the phase that waited, and the words for the flag.
struct SiteText {
  absl::string_view phase;
  absl::string_view flag;
};
SiteText TextOf(Site site) {
  switch (site) {
    case Site::kGridBarrier:
      return {"dispatch-send", "grid barrier of block"};
    case Site::kDispatchCount:
      return {"dispatch-receive", "count of expert or rank"};
    case Site::kDispatchCredit:
      return {"dispatch-send", "dispatch credit"};
    case Site::kDispatchPacket:
      return {"dispatch-receive", "packet flag of slot"};
    case Site::kCombineCredit:
      return {"combine-send", "combine credit"};
    case Site::kCombineRow:
      return {"combine-receive", "row flag of token"};
    case Site::kExpertOutOfRange:
    case Site::kExpertTwice:
      return {"dispatch-send", "expert id"};
    case Site::kScatterIndexOutOfRange:
      return {"dispatch-send", "scatter index"};
  }
  return {"high_throughput", "flag"};
}

// The title of a table of such flags, and whether its cells are epochs; else they are rows. No
// title: no table.
struct FlagWords {
  absl::string_view title;
  bool by_epoch;
};
FlagWords WordsOf(Site site) {
  switch (site) {
    case Site::kDispatchCount:
      return {"row counts: epoch seen from each rank", true};
    case Site::kDispatchCredit:
      return {"dispatch credits: epoch seen from each rank", true};
    case Site::kDispatchPacket:
      return {"dispatched tokens: arrived / announced by each rank", false};
    case Site::kCombineCredit:
      return {"combine credits: epoch seen from each rank", true};
    case Site::kCombineRow:
      return {"combined rows: arrived / to come back from each rank", false};
    case Site::kGridBarrier:
    case Site::kExpertOutOfRange:
    case Site::kExpertTwice:
    case Site::kScatterIndexOutOfRange:
      break;
  }
  return {"", true};
}

// An epoch as people read it: the number of the call since the last recovery.
uint64_t CallOf(uint64_t epoch) { return epoch & ((uint64_t{1} << kCallBits) - 1); }

// The epoch in a word of that kind.
uint64_t EpochIn(Site site, uint64_t word) {
  const bool with_count = site == Site::kDispatchCount || site == Site::kDispatchPacket;
  return with_count ? device::EpochOf(word) : word;
}

absl::Status RefusedInput(int rank, const device::FailureRecord& record, int topk) {
  const auto value = static_cast<int64_t>(record.seen);
  const auto flat = static_cast<int>(record.index);
  const auto site = static_cast<Site>(record.site);
  const std::string where = absl::StrCat(
      "rank ", rank, ": ", site == Site::kScatterIndexOutOfRange ? "scatter_idx" : "topk_idx",
      " of token ", flat / topk, ", k ", flat % topk, " is ", value);
  if (site == Site::kExpertTwice) {
    return absl::InvalidArgumentError(
        absl::StrCat(where, ", which the token has chosen before; a token's experts must differ"));
  }
  if (site == Site::kScatterIndexOutOfRange) {
    return absl::InvalidArgumentError(
        absl::StrCat(where, "; it must be from 0 to ", record.expected - 1,
                     ", since this rank sends that expert ", record.expected, " rows"));
  }
  return absl::InvalidArgumentError(
      absl::StrCat(where, "; it must be -1 (dropped) or from 0 to ", record.expected - 1));
}

bool Aligned(const void* pointer) { return reinterpret_cast<uintptr_t>(pointer) % kVecBytes == 0; }

int PeersOf(absl::Span<const int32_t> token, int num_local_experts, int rank, bool& own) {
  uint32_t ranks = 0;
  for (const int32_t id : token) {
    if (id >= 0) ranks |= 1U << (id / num_local_experts);
  }
  own = ((ranks >> rank) & 1) != 0;
  return __builtin_popcount(ranks);
}

}  // namespace

Layout MakeLayout(const EpConfig& config, int num_ranks) {
  Layout layout = {};
  layout.num_ranks = num_ranks;
  layout.num_experts = config.num_experts;
  layout.num_local_experts = config.num_local_experts(num_ranks);
  layout.topk = config.topk;
  layout.max_tokens = config.max_tokens_per_rank;
  layout.max_choices = std::min(config.topk, layout.num_local_experts);
  layout.row_vecs = static_cast<int>(config.dispatch_row_bytes() / kVecBytes);
  layout.scale_words = config.scale_words();
  layout.combine_vecs =
      static_cast<int>(static_cast<size_t>(config.hidden) * kElementBytes / kVecBytes);
  const bool per_rank = config.combine_order == CombineOrder::kPerRank;
  layout.combine_slots = per_rank ? std::min(config.topk, num_ranks) : config.topk;
  layout.packet_bytes = static_cast<int>(AlignUp(
      sizeof(Packet) + static_cast<size_t>(layout.max_choices) * sizeof(Choice), kLineBytes));
  layout.expert_alignment = config.expert_alignment;
  layout.token_major = config.rows_once();
  layout.pull = config.combine_method == CombineMethod::kPull;
  // Where rows of both ways have the same places, experts may work in place.
  layout.pull_by_token =
      per_rank && (layout.token_major || config.dispatch_format != DispatchFormat::kSame);

  const auto ranks = static_cast<size_t>(num_ranks);
  const auto tokens = static_cast<size_t>(config.max_tokens_per_rank);
  const auto capacity = static_cast<size_t>(layout.capacity());
  Pieces heap;
  layout.counts =
      heap.Place(2 * ranks * static_cast<size_t>(layout.num_counts()) * sizeof(uint64_t));
  layout.dispatch_credits = heap.Place(ranks * sizeof(Flag));
  layout.combine_credits = heap.Place(ranks * sizeof(Flag));
  layout.packets = heap.Place(ranks * tokens * static_cast<size_t>(layout.packet_bytes));
  layout.combine_flags =
      heap.Place(tokens * static_cast<size_t>(layout.flags_per_token()) * sizeof(uint64_t));
  layout.control_bytes = heap.end();
  const size_t combine_row_bytes = static_cast<size_t>(layout.combine_vecs) * kVecBytes;
  const size_t received_bytes = capacity * static_cast<size_t>(layout.row_vecs) * kVecBytes;
  const size_t pulled_rows = !layout.pull           ? 0
                             : layout.pull_by_token ? ranks * tokens
                                                    : static_cast<size_t>(layout.max_rows());
  layout.rows = heap.Place(std::max(received_bytes, pulled_rows * combine_row_bytes));
  layout.scales = heap.Place(capacity * static_cast<size_t>(layout.scale_words) * sizeof(uint32_t));
  layout.combine_rows = heap.Place(
      layout.pull ? 0 : tokens * static_cast<size_t>(layout.combine_slots) * combine_row_bytes);
  layout.bytes = heap.end();
  return layout;
}

absl::StatusOr<std::unique_ptr<ExpertParallel>> HighThroughput::Create(
    Node& node, const EpConfig& config, const ExpertParallelOptions& options) {
  auto created = absl::WrapUnique(new HighThroughput(node, config, options));
  OCTET_RETURN_IF_ERROR(created->Init());
  return created;
}

HighThroughput::HighThroughput(Node& node, const EpConfig& config,
                               const ExpertParallelOptions& options)
    : node_(node),
      config_(config),
      options_(options),
      ranks_(static_cast<size_t>(node.num_ranks())),
      recoveries_(static_cast<size_t>(node.num_ranks())) {
  client_ = node.AddClient(this);
}

HighThroughput::~HighThroughput() { node_.RemoveClient(client_); }

absl::Status HighThroughput::Init() {
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

// A block on each compute unit, as large as can be, unless the caller has said otherwise.
absl::Status HighThroughput::ChooseShape() {
  Tuning& tuning = config_.tuning;
  const GpuInfo& gpu = node_.topology().gpus[0];
  const int most_waves = kMaxThreads / gpu.wave_size;
  if (tuning.waves_per_block == 0) tuning.waves_per_block = most_waves;
  if (tuning.waves_per_block > most_waves) {
    return absl::InvalidArgumentError(absl::StrCat("waves_per_block is ", tuning.waves_per_block,
                                                   "; with waves of ", gpu.wave_size,
                                                   " lanes it can be ", most_waves, " at most"));
  }
  const int waves = tuning.waves_per_block;
  // Measured on H200s: a combine's sums read what its sends write, and more of it.
  if (tuning.send_waves == 0) tuning.send_waves = (waves + 1) / 2;
  if (tuning.combine_send_waves == 0) tuning.combine_send_waves = (waves * 3 + 7) / 8;
  for (const int send_waves : {tuning.send_waves, tuning.combine_send_waves}) {
    if (send_waves > waves) {
      return absl::InvalidArgumentError(
          absl::StrCat("send_waves and combine_send_waves are ", tuning.send_waves, " and ",
                       tuning.combine_send_waves, "; a block has ", waves, " waves"));
    }
  }
  shape_.threads = waves * gpu.wave_size;
  shape_.shared_bytes = DispatchSharedBytes(layout_);

  const bool traced = options_.trace != nullptr;
  int dispatch_blocks = 0;
  int combine_blocks = 0;
  OCTET_RETURN_IF_GPU_ERROR(DispatchBlocksPerUnit(traced, shape_, &dispatch_blocks));
  OCTET_RETURN_IF_GPU_ERROR(CombineBlocksPerUnit(Variant(), shape_, &combine_blocks));
  if (tuning.blocks == 0) {
    tuning.blocks = gpu.num_compute_units;
    if (config_.max_blocks > 0) tuning.blocks = std::min(tuning.blocks, config_.max_blocks);
  }
  shape_.blocks = tuning.blocks;
  return CheckResident("high_throughput", shape_, std::min(dispatch_blocks, combine_blocks),
                       gpu.num_compute_units);
}

CombineVariant HighThroughput::Variant() const {
  const bool per_rank = config_.combine_order == CombineOrder::kPerRank;
  return {.fp16 = config_.dtype == DType::kFloat16,
          .traced = options_.trace != nullptr,
          .rows = config_.output == Output::kDeduplicated ? CombineRows::kReduced
                  : per_rank                              ? CombineRows::kSums
                                                          : CombineRows::kChoices};
}

absl::Status HighThroughput::AllocateKept(Rank& rank, RankState& mine) const {
  const auto ranks = static_cast<size_t>(layout_.num_ranks);
  const auto tokens = static_cast<size_t>(layout_.max_tokens);
  const auto num_local = static_cast<size_t>(layout_.num_local_experts);
  Pieces pieces;
  const size_t packets = pieces.Place(ranks * tokens * static_cast<size_t>(layout_.packet_bytes));
  const size_t packet_counts = pieces.Place(ranks * sizeof(int32_t));
  const size_t source_offsets = pieces.Place((ranks + 1) * sizeof(int32_t));
  const size_t first_slots = pieces.Place(ranks * sizeof(int32_t));
  const size_t expert_counts = pieces.Place(num_local * sizeof(int32_t));
  const size_t expert_offsets = pieces.Place((num_local + 1) * sizeof(int32_t));
  const size_t routes = pieces.Place(tokens * static_cast<size_t>(layout_.topk) * sizeof(Route));
  for (int i = 0; i < config_.kept_layouts; ++i) {
    OCTET_ASSIGN_OR_RETURN(DeviceMemory memory, DeviceMemory::Allocate(pieces.end()));
    // No packets.
    OCTET_RETURN_IF_GPU_ERROR(hipMemsetAsync(memory.as<void>(), 0, memory.bytes(), rank.stream()));
    char* base = memory.as<char>();
    mine.kept.push_back(Kept{
        .routes = reinterpret_cast<Route*>(base + routes),
        .packets = base + packets,
        .packet_counts = reinterpret_cast<int32_t*>(base + packet_counts),
        .source_offsets = reinterpret_cast<int32_t*>(base + source_offsets),
        .first_slots = reinterpret_cast<int32_t*>(base + first_slots),
        .expert_counts = reinterpret_cast<int32_t*>(base + expert_counts),
        .expert_offsets = reinterpret_cast<int32_t*>(base + expert_offsets),
    });
    mine.kept_memory.push_back(std::move(memory));
  }
  return absl::OkStatus();
}

absl::Status HighThroughput::InitRank(Rank& rank) {
  RankState& mine = ranks_[static_cast<size_t>(rank.rank())];
  const auto rows = static_cast<size_t>(layout_.max_rows());
  const size_t tokens =
      static_cast<size_t>(layout_.num_ranks) * static_cast<size_t>(layout_.max_tokens);
  const auto topk = static_cast<size_t>(layout_.topk);
  const bool deduplicated = config_.output == Output::kDeduplicated;
  OCTET_ASSIGN_OR_RETURN(mine.state, DeviceMemory::Allocate(sizeof(State)));
  OCTET_RETURN_IF_ERROR(AllocateKept(rank, mine));
  OCTET_ASSIGN_OR_RETURN(
      mine.before, DeviceMemory::Allocate(static_cast<size_t>(layout_.num_counts()) *
                                          static_cast<size_t>(shape_.blocks) * sizeof(int32_t)));
  OCTET_ASSIGN_OR_RETURN(
      mine.sources, DeviceMemory::Allocate((deduplicated ? tokens : rows) * sizeof(RowSource)));
  if (deduplicated) {
    OCTET_ASSIGN_OR_RETURN(mine.recv_topk_idx,
                           DeviceMemory::Allocate(tokens * topk * sizeof(int32_t)));
    OCTET_ASSIGN_OR_RETURN(mine.recv_topk_weights,
                           DeviceMemory::Allocate(tokens * topk * sizeof(float)));
  } else if (config_.duplicates == Duplicates::kIndex) {
    OCTET_ASSIGN_OR_RETURN(mine.row_index, DeviceMemory::Allocate(rows * sizeof(int32_t)));
  }
  if (config_.host_totals) {
    OCTET_ASSIGN_OR_RETURN(
        mine.totals,
        PinnedMemory::Allocate(sizeof(HostTotals) +
                               static_cast<size_t>(layout_.num_local_experts) * sizeof(int32_t)));
    mine.totals.as<HostTotals>()->epoch = 0;
  }
  return ResetControl(rank, 1);
}

// Flags as if call `epoch` - 1 had just been completed by everybody, and call `epoch` comes next.
absl::Status HighThroughput::ResetControl(Rank& rank, uint64_t epoch) {
  RankState& mine = ranks_[static_cast<size_t>(rank.rank())];
  char* base = peers_[static_cast<size_t>(rank.rank())].base[rank.rank()];
  OCTET_RETURN_IF_GPU_ERROR(hipMemsetAsync(base, 0, layout_.control_bytes, rank.stream()));
  mine.reset_credits.assign(static_cast<size_t>(layout_.num_ranks), Flag{epoch - 1});
  for (const size_t credits : {layout_.dispatch_credits, layout_.combine_credits}) {
    OCTET_RETURN_IF_GPU_ERROR(hipMemcpyAsync(base + credits, mine.reset_credits.data(),
                                             sizeof(Flag) * mine.reset_credits.size(),
                                             hipMemcpyHostToDevice, rank.stream()));
  }
  mine.reset_state = {};
  mine.reset_state.dispatch.epoch = epoch;
  mine.reset_state.combine.epoch = epoch;
  return OCTET_GPU(hipMemcpyAsync(mine.state.as<void>(), &mine.reset_state,
                                  sizeof(mine.reset_state), hipMemcpyHostToDevice, rank.stream()));
}

absl::Status HighThroughput::Recover(Rank& rank) {
  const auto r = static_cast<size_t>(rank.rank());
  RankState& mine = ranks_[r];
  if (mine.state.bytes() == 0) return absl::OkStatus();  // failed before it was made
  mine.stage = Stage::kIdle;
  mine.void_layouts = mine.layouts;
  // Beyond any epoch of before, the same on all ranks.
  return ResetControl(rank, (++recoveries_[r] << kCallBits) + 1);
}

absl::Status HighThroughput::Describe(int rank, const device::FailureRecord& record) const {
  if (record.kind == device::FailureKind::kInput) return RefusedInput(rank, record, config_.topk);
  const auto site = static_cast<Site>(record.site);
  const SiteText text = TextOf(site);
  device::FailureRecord plain = record;
  plain.expected = CallOf(EpochIn(site, record.expected));
  plain.seen = CallOf(EpochIn(site, record.seen));
  return DeadlineStatus(rank, text.phase, text.flag, plain, DeviceTicks(record.waited_ticks));
}

absl::Status HighThroughput::CopyFlags(Rank& rank) {
  RankState& mine = ranks_[static_cast<size_t>(rank.rank())];
  const char* base = peers_[static_cast<size_t>(rank.rank())].base[rank.rank()];
  mine.flags.resize(layout_.control_bytes / sizeof(Flag));
  return OCTET_GPU(hipMemcpyAsync(mine.flags.data(), base, layout_.control_bytes,
                                  hipMemcpyDeviceToHost, rank.stream()));
}

std::vector<FlagTable> HighThroughput::FlagTables(absl::Span<const device::FailureRecord> waits) {
  std::map<Site, FlagTable> tables;
  for (int rank = 0; rank < node_.num_ranks(); ++rank) {
    const device::FailureRecord& wait = waits[static_cast<size_t>(rank)];
    const auto site = static_cast<Site>(wait.site);
    const FlagWords words = WordsOf(site);
    if (wait.kind == device::FailureKind::kNone || words.title.empty()) continue;
    FlagTable& table = tables[site];
    table.title = std::string(words.title);
    FlagTable::Row row;
    row.rank = rank;
    if (words.by_epoch) row.expected = absl::StrCat(CallOf(EpochIn(site, wait.expected)));
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

FlagTable::Cell HighThroughput::FlagCell(int rank, int peer, const device::FailureRecord& wait) {
  const auto base_of = [this](int of) {
    return reinterpret_cast<char*>(ranks_[static_cast<size_t>(of)].flags.data());
  };
  const auto site = static_cast<Site>(wait.site);
  char* mine = base_of(rank);
  const uint64_t epoch = EpochIn(site, wait.expected);
  const auto by_epoch = [epoch](uint64_t seen) {
    return FlagTable::Cell{absl::StrCat(CallOf(seen)), seen < epoch};
  };
  const auto by_rows = [](int arrived, int announced) {
    return FlagTable::Cell{absl::StrCat(arrived, "/", announced), arrived < announced};
  };

  switch (site) {
    case Site::kDispatchCredit:
      return by_epoch(*Layout::FlagOf(mine, layout_.dispatch_credits, peer));
    case Site::kCombineCredit:
      return by_epoch(*Layout::FlagOf(mine, layout_.combine_credits, peer));
    case Site::kDispatchCount: {
      uint64_t seen = UINT64_MAX;
      for (int column = 0; column < layout_.num_counts(); ++column) {
        seen = std::min(seen, device::EpochOf(*layout_.Count(mine, epoch, peer, column)));
      }
      return by_epoch(seen);
    }
    case Site::kDispatchPacket: {
      const uint64_t count = *layout_.Count(mine, epoch, peer, layout_.num_experts + rank);
      int arrived = 0;
      for (int slot = 0; slot < layout_.max_tokens; ++slot) {
        const Packet& packet = *layout_.PacketOf(mine + layout_.packets, peer, slot);
        arrived += device::EpochOf(packet.flag) == epoch ? 1 : 0;
      }
      // With a cached layout nothing is announced.
      const int announced =
          device::EpochOf(count) == epoch ? static_cast<int>(device::CountOf(count)) : arrived;
      return by_rows(arrived, announced);
    }
    case Site::kCombineRow: {
      // What the peer has received in this rank's last dispatch is what it has to send back.
      char* packets = base_of(peer) + layout_.packets;
      uint64_t dispatch = 1;
      for (int slot = 0; slot < layout_.max_tokens; ++slot) {
        dispatch = std::max(dispatch, device::EpochOf(layout_.PacketOf(packets, rank, slot)->flag));
      }
      const bool per_rank = config_.combine_order == CombineOrder::kPerRank;
      int announced = 0;
      int arrived = 0;
      for (int slot = 0; slot < layout_.max_tokens; ++slot) {
        const Packet& packet = *layout_.PacketOf(packets, rank, slot);
        if (device::EpochOf(packet.flag) != dispatch) continue;
        const int rows = per_rank ? 1 : static_cast<int>(device::CountOf(packet.flag));
        announced += rows;
        for (int i = 0; i < rows; ++i) {
          const uint32_t origin = packet.choices()[i].origin;
          const int combine_slot = per_rank ? packet.combine_slot : TopkOf(origin);
          const bool came = *layout_.CombineFlag(mine, TokenOf(origin), combine_slot) >= epoch;
          arrived += came ? 1 : 0;
        }
      }
      return by_rows(arrived, announced);
    }
    case Site::kGridBarrier:
    case Site::kExpertOutOfRange:
    case Site::kExpertTwice:
    case Site::kScatterIndexOutOfRange:
      break;
  }
  return {};
}

absl::Status HighThroughput::CheckDispatch(const RankState& mine, const DispatchArgs& args) const {
  if (mine.stage != Stage::kIdle) {
    return absl::FailedPreconditionError(
        absl::StrCat("the last ", mine.stage == Stage::kDispatchSent ? "dispatch" : "combine",
                     " of this rank has been sent but not received"));
  }
  if (args.cached != nullptr) {
    OCTET_RETURN_IF_ERROR(CheckLayout(mine, *args.cached));
    if (args.num_tokens != args.cached->num_tokens) {
      return absl::InvalidArgumentError(absl::StrCat("num_tokens is ", args.num_tokens,
                                                     "; the layout in `cached` is of ",
                                                     args.cached->num_tokens, " tokens"));
    }
  }
  if (args.num_tokens < 0 || args.num_tokens > config_.max_tokens_per_rank) {
    return absl::InvalidArgumentError(absl::StrCat("num_tokens is ", args.num_tokens,
                                                   "; it must be from 0 to max_tokens_per_rank, ",
                                                   config_.max_tokens_per_rank));
  }
  if (args.num_tokens > 0) {
    if (args.x == nullptr || (args.topk_idx == nullptr && args.cached == nullptr)) {
      return absl::InvalidArgumentError("x and topk_idx must not be null");
    }
    if (layout_.scale_words > 0 && args.x_scales == nullptr) {
      return absl::InvalidArgumentError("x_scales must not be null: rows of fp8 have scales");
    }
  }
  if (!Aligned(args.x) || !Aligned(args.x_scales)) {
    return absl::InvalidArgumentError("x and x_scales must be 16-byte aligned");
  }
  return absl::OkStatus();
}

absl::Status HighThroughput::CheckLayout(const RankState& mine,
                                         const DispatchHandle& handle) const {
  if (handle.layout == 0 || handle.layout > mine.layouts) {
    return absl::FailedPreconditionError("the handle is of no dispatch of this rank");
  }
  if (handle.layout <= mine.void_layouts) {
    return absl::FailedPreconditionError("the node has failed since this dispatch; it is void");
  }
  if (handle.layout + static_cast<uint64_t>(config_.kept_layouts) <= mine.layouts) {
    return absl::FailedPreconditionError(absl::StrCat("the handle is of layout ", handle.layout,
                                                      " of this rank, whose last is ", mine.layouts,
                                                      "; kept_layouts is ", config_.kept_layouts));
  }
  return absl::OkStatus();
}

absl::Status HighThroughput::CheckHandle(const RankState& mine, const DispatchHandle& handle,
                                         Stage stage) const {
  OCTET_RETURN_IF_ERROR(CheckLayout(mine, handle));
  if (mine.stage == stage) return absl::OkStatus();
  switch (mine.stage) {
    case Stage::kIdle:
      return absl::FailedPreconditionError("nothing has been sent that could be received");
    case Stage::kDispatchSent:
      return absl::FailedPreconditionError("this dispatch has been sent but not received");
    case Stage::kCombineSent:
      return absl::FailedPreconditionError("a combine has been sent but not received");
  }
  return absl::InternalError("unknown stage");
}

CommonParams HighThroughput::Common(Rank& rank, uint64_t layout, Phases phases,
                                    int send_waves) const {
  const auto r = static_cast<size_t>(rank.rank());
  const int waves = config_.tuning.waves_per_block;
  CommonParams common = {};
  common.peers = peers_[r];
  common.failure = rank.failure_port(client_);
  if (options_.trace != nullptr) common.trace = options_.trace->buffer(rank.rank());
  common.layout = layout_;
  common.state = ranks_[r].state.as<State>();
  common.kept =
      ranks_[r]
          .kept[static_cast<size_t>((layout - 1) % static_cast<uint64_t>(config_.kept_layouts))];
  switch (phases) {
    case Phases::kSend:
      common.send_waves = waves;
      common.first_receive_wave = waves;
      break;
    case Phases::kReceive:
      common.send_waves = 0;
      common.first_receive_wave = 0;
      break;
    case Phases::kBoth:
      common.send_waves = send_waves;
      common.first_receive_wave = send_waves < waves ? send_waves : 0;
      break;
  }
  return common;
}

absl::Status HighThroughput::EnqueueDispatch(Rank& rank, const DispatchHandle& handle,
                                             const DispatchArgs& args, Phases phases) {
  const RankState& mine = ranks_[static_cast<size_t>(rank.rank())];
  DispatchParams params = {};
  params.common = Common(rank, handle.layout, phases, config_.tuning.send_waves);
  params.fresh = args.cached == nullptr;
  params.x = args.x;
  params.x_scales = static_cast<const uint32_t*>(args.x_scales);
  params.topk_idx = args.topk_idx;
  params.topk_weights = args.topk_weights;
  params.scatter_idx = args.scatter_idx;
  params.num_tokens = args.num_tokens;
  params.before = mine.before.as<int32_t>();
  params.totals = mine.totals.as<HostTotals>();
  params.sources = mine.sources.as<RowSource>();
  params.row_index = mine.row_index.as<int32_t>();
  params.recv_topk_idx = mine.recv_topk_idx.as<int32_t>();
  params.recv_topk_weights = mine.recv_topk_weights.as<float>();
  const auto launch = [&] {
    return OCTET_GPU(LaunchDispatch(params, options_.trace != nullptr, shape_, rank.stream()));
  };
  // What only receives waits for nobody who is yet to come.
  return phases == Phases::kReceive ? launch() : rank.CoordinatedLaunch(launch);
}

absl::Status HighThroughput::EnqueueCombine(Rank& rank, const DispatchHandle& handle,
                                            const CombineArgs& args, Phases phases) {
  if (args.expert_out == nullptr || (args.y == nullptr && handle.num_tokens > 0)) {
    return absl::InvalidArgumentError("expert_out and y must not be null");
  }
  if (!Aligned(args.expert_out) || !Aligned(args.y) || !Aligned(args.bias)) {
    return absl::InvalidArgumentError("expert_out, y and bias must be 16-byte aligned");
  }
  const bool reduced = config_.output == Output::kDeduplicated;
  if (reduced && args.expert_scale != nullptr) {
    return absl::InvalidArgumentError(
        "expert_scale must be null: deduplicated rows are sums over experts");
  }
  CombineParams params = {};
  params.common = Common(rank, handle.layout, phases, config_.tuning.combine_send_waves);
  params.expert_out = args.expert_out;
  params.expert_scale = args.expert_scale;
  params.topk_weights = handle.topk_weights;
  params.bias = args.bias;
  params.num_tokens = handle.num_tokens;
  params.y = args.y;
  const auto launch = [&] {
    return OCTET_GPU(LaunchCombine(params, Variant(), shape_, rank.stream()));
  };
  return phases == Phases::kReceive ? launch() : rank.CoordinatedLaunch(launch);
}

absl::StatusOr<DispatchHandle> HighThroughput::BeginDispatch(Rank& rank, const DispatchArgs& args,
                                                             Phases phases) {
  RankState& mine = ranks_[static_cast<size_t>(rank.rank())];
  OCTET_RETURN_IF_ERROR(CheckDispatch(mine, args));
  const bool fresh = args.cached == nullptr;
  const DispatchHandle handle = {
      .call = mine.calls + 1,
      .num_tokens = args.num_tokens,
      .topk_idx = fresh ? args.topk_idx : args.cached->topk_idx,
      .topk_weights = args.topk_weights,
      .layout = fresh ? mine.layouts + 1 : args.cached->layout,
  };
  const uint64_t totals_before =
      config_.host_totals ? mine.totals.as<HostTotals>()->epoch : uint64_t{0};
  OCTET_RETURN_IF_ERROR(EnqueueDispatch(rank, handle, args, phases));
  mine.calls = handle.call;
  if (fresh) mine.layouts = handle.layout;
  if (config_.host_totals) OCTET_RETURN_IF_ERROR(AwaitTotals(rank, totals_before));
  return handle;
}

absl::Status HighThroughput::AwaitTotals(Rank& rank, uint64_t epoch_before) {
  auto* totals = ranks_[static_cast<size_t>(rank.rank())].totals.as<HostTotals>();
  Backoff backoff(true);
  while (std::atomic_ref(totals->epoch).load(std::memory_order_acquire) == epoch_before) {
    // A kernel that has ended without them has failed, and says why.
    const hipError_t error = hipStreamQuery(rank.stream());
    if (error == hipErrorNotReady) {
      backoff.Wait();
      continue;
    }
    OCTET_RETURN_IF_ERROR(rank.Synchronize());
    if (std::atomic_ref(totals->epoch).load(std::memory_order_acquire) != epoch_before) break;
    return absl::InternalError("a dispatch has ended without its totals");
  }
  return absl::OkStatus();
}

absl::StatusOr<Received> HighThroughput::ReceivedOn(Rank& rank, const DispatchHandle& handle) {
  const RankState& mine = ranks_[static_cast<size_t>(rank.rank())];
  const CommonParams common = Common(rank, handle.layout, Phases::kBoth, 0);
  char* base = common.peers.base[rank.rank()];
  Received received;
  received.x = layout_.Row(base, 0);
  received.expert_counts = common.kept.expert_counts;
  received.expert_offsets = common.kept.expert_offsets;
  received.sources = mine.sources.as<RowSource>();
  received.row_bytes = static_cast<size_t>(layout_.row_vecs) * kVecBytes;
  received.max_rows = layout_.max_rows();
  received.handle = handle;
  if (layout_.scale_words > 0) received.scales = layout_.Scales(base, 0);
  received.source_offsets = common.kept.source_offsets;
  received.row_index = mine.row_index.as<int32_t>();
  received.recv_topk_idx = mine.recv_topk_idx.as<int32_t>();
  received.recv_topk_weights = mine.recv_topk_weights.as<float>();
  if (config_.host_totals) {
    const auto* totals = mine.totals.as<HostTotals>();
    received.num_rows = totals->rows;
    received.num_tokens = totals->tokens;
    received.host_expert_counts =
        absl::MakeConstSpan(totals->expert_counts, static_cast<size_t>(layout_.num_local_experts));
  }
  return received;
}

absl::StatusOr<DispatchHandle> HighThroughput::DispatchSend(Rank& rank, const DispatchArgs& args) {
  OCTET_ASSIGN_OR_RETURN(const DispatchHandle handle, BeginDispatch(rank, args, Phases::kSend));
  ranks_[static_cast<size_t>(rank.rank())].stage = Stage::kDispatchSent;
  return handle;
}

absl::StatusOr<Received> HighThroughput::DispatchReceive(Rank& rank, const DispatchHandle& handle) {
  RankState& mine = ranks_[static_cast<size_t>(rank.rank())];
  OCTET_RETURN_IF_ERROR(CheckHandle(mine, handle, Stage::kDispatchSent));
  OCTET_RETURN_IF_ERROR(EnqueueDispatch(rank, handle, {}, Phases::kReceive));
  mine.stage = Stage::kIdle;
  return ReceivedOn(rank, handle);
}

absl::StatusOr<Received> HighThroughput::Dispatch(Rank& rank, const DispatchArgs& args) {
  OCTET_ASSIGN_OR_RETURN(const DispatchHandle handle, BeginDispatch(rank, args, Phases::kBoth));
  return ReceivedOn(rank, handle);
}

absl::Status HighThroughput::CombineSend(Rank& rank, const DispatchHandle& handle,
                                         const CombineArgs& args) {
  RankState& mine = ranks_[static_cast<size_t>(rank.rank())];
  OCTET_RETURN_IF_ERROR(CheckHandle(mine, handle, Stage::kIdle));
  OCTET_RETURN_IF_ERROR(EnqueueCombine(rank, handle, args, Phases::kSend));
  mine.stage = Stage::kCombineSent;
  return absl::OkStatus();
}

absl::Status HighThroughput::CombineReceive(Rank& rank, const DispatchHandle& handle,
                                            const CombineArgs& args) {
  RankState& mine = ranks_[static_cast<size_t>(rank.rank())];
  OCTET_RETURN_IF_ERROR(CheckHandle(mine, handle, Stage::kCombineSent));
  OCTET_RETURN_IF_ERROR(EnqueueCombine(rank, handle, args, Phases::kReceive));
  mine.stage = Stage::kIdle;
  return absl::OkStatus();
}

absl::Status HighThroughput::Combine(Rank& rank, const DispatchHandle& handle,
                                     const CombineArgs& args) {
  OCTET_RETURN_IF_ERROR(
      CheckHandle(ranks_[static_cast<size_t>(rank.rank())], handle, Stage::kIdle));
  return EnqueueCombine(rank, handle, args, Phases::kBoth);
}

absl::Status HighThroughput::Poison(Rank& rank, int num_rows) {
  const auto r = static_cast<size_t>(rank.rank());
  const RankState& mine = ranks_[r];
  if (num_rows < 0 || num_rows > layout_.max_rows()) {
    return absl::InvalidArgumentError(
        absl::StrCat("num_rows is ", num_rows, "; it must be from 0 to ", layout_.max_rows()));
  }
  char* base = peers_[r].base[rank.rank()];
  // Where rows come once, fewer of them hold `num_rows` choices.
  // Where they are pulled from, peers may not be done with those of the last combine.
  const auto rows =
      layout_.pull ? size_t{0} : static_cast<size_t>(std::min(num_rows, layout_.capacity()));
  const std::array<std::pair<void*, size_t>, 6> fills = {{
      {layout_.Row(base, 0), rows * static_cast<size_t>(layout_.row_vecs) * kVecBytes},
      {layout_.Scales(base, 0), rows * static_cast<size_t>(layout_.scale_words) * sizeof(uint32_t)},
      {mine.sources.as<void>(), mine.sources.bytes()},
      {mine.row_index.as<void>(), mine.row_index.bytes()},
      {mine.recv_topk_idx.as<void>(), mine.recv_topk_idx.bytes()},
      {mine.recv_topk_weights.as<void>(), mine.recv_topk_weights.bytes()},
  }};
  for (const auto& [memory, bytes] : fills) {
    if (bytes > 0) {
      OCTET_RETURN_IF_GPU_ERROR(hipMemsetAsync(memory, 0xff, bytes, rank.stream()));
    }
  }
  return absl::OkStatus();
}

Traffic HighThroughput::DispatchTraffic(int rank, absl::Span<const int32_t> topk_idx) const {
  const int64_t row_bytes = int64_t{layout_.row_vecs} * static_cast<int64_t>(kVecBytes) +
                            int64_t{layout_.scale_words} * static_cast<int64_t>(sizeof(uint32_t));
  const auto topk = static_cast<size_t>(layout_.topk);
  Traffic traffic;
  int64_t remote_tokens = 0;
  int64_t remote_choices = 0;
  for (size_t first = 0; first < topk_idx.size(); first += topk) {
    const auto token = topk_idx.subspan(first, topk);
    bool own = false;
    const int ranks = PeersOf(token, layout_.num_local_experts, rank, own);
    traffic.rows += ranks;
    remote_tokens += ranks - (own ? 1 : 0);
    for (const int32_t id : token) {
      remote_choices += id >= 0 && id / layout_.num_local_experts != rank ? 1 : 0;
    }
  }
  traffic.logical_bytes = traffic.rows * row_bytes;
  // Of a packet the flag, the combine's slot and the choices are stored; to each peer go all counts
  // and two credits.
  constexpr auto kSlotBytes = static_cast<int64_t>(sizeof(Packet::combine_slot));
  traffic.wire_bytes = remote_tokens * (row_bytes + kWordBytes + kSlotBytes) +
                       remote_choices * static_cast<int64_t>(sizeof(Choice)) +
                       (layout_.num_ranks - 1) * (layout_.num_counts() + 2) * kWordBytes;
  return traffic;
}

Traffic HighThroughput::CombineTraffic(int rank, absl::Span<const int32_t> topk_idx) const {
  const int64_t row_bytes = int64_t{layout_.combine_vecs} * static_cast<int64_t>(kVecBytes);
  const auto topk = static_cast<size_t>(layout_.topk);
  const bool per_rank = config_.combine_order == CombineOrder::kPerRank;
  Traffic traffic;
  int64_t remote = 0;
  for (size_t first = 0; first < topk_idx.size(); first += topk) {
    const auto token = topk_idx.subspan(first, topk);
    bool own = false;
    const int ranks = PeersOf(token, layout_.num_local_experts, rank, own);
    if (per_rank) {
      traffic.rows += ranks;
      remote += ranks - (own ? 1 : 0);
      continue;
    }
    for (const int32_t id : token) {
      if (id < 0) continue;
      ++traffic.rows;
      remote += id / layout_.num_local_experts != rank ? 1 : 0;
    }
  }
  traffic.logical_bytes = traffic.rows * row_bytes;
  traffic.wire_bytes = remote * (row_bytes + kWordBytes) + (layout_.num_ranks - 1) * 2 * kWordBytes;
  return traffic;
}

absl::Span<const TraceTag> HighThroughput::trace_tags() const {
  constexpr absl::string_view kLayout = "layout";
  constexpr absl::string_view kDispatchSend = "dispatch send";
  constexpr absl::string_view kDispatchReceive = "dispatch receive";
  constexpr absl::string_view kCombineSend = "combine send";
  constexpr absl::string_view kCombineReceive = "combine receive";
  // In the order of Tag.
  static constexpr std::array<TraceTag, 8> kTags = {{
      {.name = "count", .phase = kLayout},
      {.name = "exchange", .phase = kLayout},
      {.name = "send", .phase = kDispatchSend, .detail = "token"},
      {.name = "wait packet", .phase = kDispatchReceive, .detail = kTracePeer, .waits = true},
      {.name = "fill", .phase = kDispatchReceive, .detail = "choices"},
      {.name = "combine send", .phase = kCombineSend, .detail = kTracePeer},
      {.name = "wait rows", .phase = kCombineReceive, .detail = "token", .waits = true},
      {.name = "reduce", .phase = kCombineReceive, .detail = "token"},
  }};
  return kTags;
}

}  // namespace octet::high_throughput
