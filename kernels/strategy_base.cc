#include "kernels/strategy_base.h"

#include <hip/hip_runtime.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <string>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "kernels/check_pointers.h"
#include "kernels/pointwise_expert.h"
#include "kernels/site_text.h"
#include "launch_limits.h"
#include "runtime/device/epoch.h"
#include "runtime/failure.h"
#include "runtime/gpu_status.h"
#include "runtime/launch.h"
#include "runtime/status_macros.h"

namespace octet {
namespace {

// An epoch has 44 bits (runtime/device/epoch.h): the number of the fresh start, which wraps around,
// and the number of the call since then.
constexpr int kStartBits = 16;
constexpr int kCallBits = 28;

// Returns the epoch as messages show it: the number of the call since the last fresh start.
uint64_t CallOf(uint64_t epoch) { return epoch & ((uint64_t{1} << kCallBits) - 1); }

absl::Status CheckCombine(const Rank& rank, const DispatchHandle& handle, const CombineArgs& args) {
  if (args.expert_out == nullptr || (args.y == nullptr && handle.num_tokens > 0)) {
    return absl::InvalidArgumentError("expert_out and y must not be null");
  }
  return CheckPointers(rank, {{"expert_out", args.expert_out},
                              {"y", args.y},
                              {"expert_scale", args.expert_scale, alignof(float)},
                              {"bias", args.bias}});
}

}  // namespace

HeapSize HeapSizeOf(const CallLayout& layout) {
  return {.uncached = layout.bytes, .cached = layout.cached_bytes};
}

StrategyBase::StrategyBase(Node& node, const EpPlan& plan, const ExpertParallelOptions& options,
                           int batches)
    : shared_node_(node.Share()),
      node_(*shared_node_),
      config_(plan.config),
      options_(options),
      contract_(plan.contract),
      memory_(node),
      ranks_(Index(node.num_ranks())) {
  for (RankState& rank : ranks_) {
    rank.sequence = CallSequence(contract_ == Contract::kOfAll ? 1 : batches);
  }
  client_ = NodeClient::Register(node, this);
}

StrategyBase::~StrategyBase() { NodeClient::Unregister(node_, client_); }

absl::Status StrategyBase::Init() {
  OCTET_ASSIGN_OR_RETURN(needs_, Prepare());
  const HeapSize size = HeapSizeOf(needs_.layout);
  SymmetricHeap* whole = options_.heap;
  if (whole == nullptr) {
    OCTET_ASSIGN_OR_RETURN(own_heap_, SymmetricHeap::Create(node_, size));
    whole = own_heap_.get();
  }
  OCTET_ASSIGN_OR_RETURN(peers_, TakePart(*whole, size.uncached, HeapMemory::kUncached));
  if (size.cached > 0) {
    OCTET_ASSIGN_OR_RETURN(cached_peers_, TakePart(*whole, size.cached, HeapMemory::kCached));
  }
  return node_.Run([this](Rank& rank) -> absl::Status {
    OCTET_ASSIGN_OR_RETURN(ranks_[Index(rank.rank())].state,
                           memory_.Device<char>(needs_.state_bytes));
    OCTET_RETURN_IF_ERROR(InitRank(rank));
    OCTET_RETURN_IF_ERROR(LoadPointwiseExpert(config_));
    return ResetControl(rank, 1);
  });
}

absl::StatusOr<std::vector<device::PeerBases>> StrategyBase::TakePart(SymmetricHeap& whole,
                                                                      size_t bytes,
                                                                      HeapMemory kind) const {
  OCTET_ASSIGN_OR_RETURN(const size_t offset,
                         whole.AllocateBytes(bytes, SymmetricHeap::kAlignment, kind));
  std::vector<device::PeerBases> part;
  for (int r = 0; r < node_.num_ranks(); ++r) {
    device::PeerBases peers = whole.peers(r, kind);
    for (int peer = 0; peer < peers.num_ranks; ++peer) peers.base[peer] += offset;
    part.push_back(peers);
  }
  return part;
}

absl::Status StrategyBase::ChooseBlock(int most_threads,
                                       absl::FunctionRef<size_t(int waves)> shared_bytes) {
  Tuning& tuning = config_.tuning;
  const int wave_size = node_.topology().gpus[0].wave_size;
  const int most_waves = most_threads / wave_size;
  if (tuning.waves_per_block == 0) {
    // The caller may have set how many waves send.
    const int least = std::max(tuning.send_waves, tuning.combine_send_waves);
    tuning.waves_per_block = std::min(most_waves, std::max(platform::kMostDefaultWaves, least));
  }
  if (tuning.waves_per_block > most_waves) {
    return absl::InvalidArgumentError(absl::StrCat("waves_per_block is ", tuning.waves_per_block,
                                                   "; with waves of ", wave_size,
                                                   " lanes it can be ", most_waves, " at most"));
  }
  shape_.threads = tuning.waves_per_block * wave_size;
  shape_.shared_bytes = shared_bytes(tuning.waves_per_block);
  return absl::OkStatus();
}

absl::Status StrategyBase::ChooseBlocks(int per_unit, int resident_per_unit) {
  Tuning& tuning = config_.tuning;
  const int units = node_.topology().gpus[0].num_compute_units;
  if (tuning.blocks == 0) {
    const int least = tuning.send_blocks + 1;
    tuning.blocks = std::min(per_unit * units, std::max(platform::kMostDefaultBlocks, least));
    if (config_.max_blocks > 0) tuning.blocks = std::min(tuning.blocks, config_.max_blocks);
  }
  shape_.blocks = tuning.blocks;
  return CheckResident(StrategyName(config_.strategy), shape_, resident_per_unit, units);
}

absl::Status StrategyBase::ChooseSendBlocks() {
  Tuning& tuning = config_.tuning;
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

int StrategyBase::SendBlocks(Phases phases) const {
  return phases == Phases::kBoth   ? config_.tuning.send_blocks
         : phases == Phases::kSend ? shape_.blocks
                                   : 0;
}

absl::Status StrategyBase::FillBytes(Rank& rank, void* memory, size_t bytes, int byte) {
  if (bytes == 0) return absl::OkStatus();
  return OCTET_GPU(hipMemsetAsync(memory, byte, bytes, rank.stream()));
}

CallParams StrategyBase::ParamsOf(Rank& rank) const {
  CallParams params = {};
  params.peers = peers_[Index(rank.rank())];
  params.failure = NodeClient::PortOf(rank, client_);
  if (traced()) params.trace = options_.trace->buffer(rank.rank());
  return params;
}

void StrategyBase::SetTensors(const DispatchArgs& args, DispatchTensors& tensors) {
  tensors = {.x = args.x,
             .topk_idx = args.topk_idx,
             .topk_weights = args.topk_weights,
             .num_tokens = args.num_tokens};
}

void StrategyBase::SetTensors(const DispatchHandle& handle, const CombineArgs& args,
                              CombineTensors& tensors) {
  tensors = {.expert_out = args.expert_out,
             .expert_scale = args.expert_scale,
             .topk_idx = handle.topk_idx,
             .topk_weights = handle.topk_weights,
             .bias = args.bias,
             .num_tokens = handle.num_tokens,
             .y = args.y};
}

absl::Status StrategyBase::Launch(Rank& rank, Phases phases, absl::string_view call,
                                  absl::FunctionRef<absl::Status()> launch) const {
  const bool alone =
      phases == Phases::kReceive || config_.low_latency.failure_policy == FailurePolicy::kMask;
  return alone ? rank.LaunchWaiting(launch) : rank.CoordinatedLaunch(launch, call);
}

// ---- Calls.

absl::Status StrategyBase::CheckDispatch(const Rank& rank, const DispatchArgs& args) const {
  if (args.num_tokens < 0 || args.num_tokens > config_.max_tokens_per_rank) {
    return absl::InvalidArgumentError(absl::StrCat("num_tokens is ", args.num_tokens,
                                                   "; it must be from 0 to max_tokens_per_rank, ",
                                                   config_.max_tokens_per_rank));
  }
  if (args.num_tokens > 0 &&
      (args.x == nullptr || (args.topk_idx == nullptr && args.high_throughput.cached == nullptr))) {
    return absl::InvalidArgumentError("x and topk_idx must not be null");
  }
  OCTET_RETURN_IF_ERROR(CheckPointers(rank, {{"x", args.x},
                                             {"topk_idx", args.topk_idx},
                                             {"topk_weights", args.topk_weights},
                                             {"x_scales", args.high_throughput.x_scales},
                                             {"scatter_idx", args.high_throughput.scatter_idx}}));
  return CheckContract(args);
}

absl::Status StrategyBase::CheckContract(const DispatchArgs& args) const {
  if (contract_ == Contract::kOfStrategy ||
      (args.high_throughput.scatter_idx == nullptr && args.high_throughput.cached == nullptr)) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      absl::StrCat(args.high_throughput.cached != nullptr ? "cached" : "scatter_idx",
                   " is not for Strategy::kAuto, which may choose a strategy that has none; name "
                   "Strategy::kHighThroughput"));
}

absl::Status StrategyBase::CheckOwner(const Rank& rank, const DispatchHandle& handle) const {
  if (handle.owner == nullptr) {
    return absl::FailedPreconditionError("the handle is of no dispatch");
  }
  if (handle.owner != this || handle.owner_id != client_) {
    return absl::InvalidArgumentError(
        "the handle is of a dispatch of another ExpertParallel; only the one that has sent a "
        "dispatch can receive, combine or repeat it");
  }
  if (handle.rank == rank.rank()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("the handle is of a dispatch of rank ",
                                                 handle.rank, ", and this is rank ", rank.rank(),
                                                 "; each rank has handles of its own"));
}

absl::Status StrategyBase::CheckHandle(const Rank& rank, const DispatchHandle& handle) const {
  return ranks_[Index(rank.rank())].sequence.CheckRecent(handle.call);
}

absl::Status StrategyBase::CheckRank(const Rank& rank) const {
  if (rank.IsOf(node_)) return absl::OkStatus();
  return absl::FailedPreconditionError(
      "the rank belongs to another node than the one that this ExpertParallel was created on");
}

absl::StatusOr<DispatchHandle> StrategyBase::BeginDispatch(Rank& rank, const DispatchArgs& args,
                                                           Phases phases) {
  OCTET_RETURN_IF_ERROR(CheckRank(rank));
  CallSequence& sequence = ranks_[Index(rank.rank())].sequence;
  DispatchHandle handle = {.call = sequence.calls() + 1,
                           .num_tokens = args.num_tokens,
                           .topk_idx = args.topk_idx,
                           .topk_weights = args.topk_weights,
                           .owner = this,
                           .owner_id = client_,
                           .rank = rank.rank()};
  OCTET_RETURN_IF_ERROR(sequence.CheckDispatch(phases));
  OCTET_RETURN_IF_ERROR(CheckDispatch(rank, args));
  OCTET_RETURN_IF_ERROR(EnqueueDispatch(rank, args, phases, handle));
  sequence.RecordDispatch(phases);
  return handle;
}

absl::StatusOr<DispatchHandle> StrategyBase::DispatchSend(Rank& rank, const DispatchArgs& args) {
  return BeginDispatch(rank, args, Phases::kSend);
}

absl::StatusOr<Received> StrategyBase::DispatchReceive(Rank& rank, const DispatchHandle& handle) {
  OCTET_RETURN_IF_ERROR(CheckRank(rank));
  CallSequence& sequence = ranks_[Index(rank.rank())].sequence;
  OCTET_RETURN_IF_ERROR(CheckOwner(rank, handle));
  OCTET_RETURN_IF_ERROR(CheckHandle(rank, handle));
  OCTET_RETURN_IF_ERROR(sequence.CheckDispatchReceive(handle.call));
  DispatchHandle sent = handle;
  OCTET_RETURN_IF_ERROR(EnqueueDispatch(rank, {}, Phases::kReceive, sent));
  sequence.RecordDispatchReceive();
  return ReceivedOn(rank, handle);
}

absl::StatusOr<Received> StrategyBase::Dispatch(Rank& rank, const DispatchArgs& args) {
  OCTET_ASSIGN_OR_RETURN(const DispatchHandle handle, BeginDispatch(rank, args, Phases::kBoth));
  return ReceivedOn(rank, handle);
}

absl::Status StrategyBase::BeginCombine(Rank& rank, const DispatchHandle& handle,
                                        const CombineArgs& args, Phases phases) {
  OCTET_RETURN_IF_ERROR(CheckRank(rank));
  CallSequence& sequence = ranks_[Index(rank.rank())].sequence;
  OCTET_RETURN_IF_ERROR(CheckOwner(rank, handle));
  OCTET_RETURN_IF_ERROR(CheckHandle(rank, handle));
  OCTET_RETURN_IF_ERROR(sequence.CheckCombine(handle.call, phases));
  OCTET_RETURN_IF_ERROR(CheckCombine(rank, handle, args));
  OCTET_RETURN_IF_ERROR(EnqueueCombine(rank, handle, args, phases));
  sequence.RecordCombine(handle.call, phases);
  return absl::OkStatus();
}

absl::Status StrategyBase::CombineSend(Rank& rank, const DispatchHandle& handle,
                                       const CombineArgs& args) {
  return BeginCombine(rank, handle, args, Phases::kSend);
}

absl::Status StrategyBase::CombineReceive(Rank& rank, const DispatchHandle& handle,
                                          const CombineArgs& args) {
  return BeginCombine(rank, handle, args, Phases::kReceive);
}

absl::Status StrategyBase::Combine(Rank& rank, const DispatchHandle& handle,
                                   const CombineArgs& args) {
  return BeginCombine(rank, handle, args, Phases::kBoth);
}

absl::Status StrategyBase::Poison(Rank& rank, int num_rows) {
  OCTET_RETURN_IF_ERROR(CheckRank(rank));
  if (num_rows < 0 || num_rows > needs_.layout.max_rows) {
    return absl::InvalidArgumentError(
        absl::StrCat("num_rows is ", num_rows, "; it must be from 0 to ", needs_.layout.max_rows));
  }
  for (const auto& [memory, bytes] : Delivered(rank, static_cast<size_t>(num_rows))) {
    OCTET_RETURN_IF_ERROR(FillBytes(rank, memory, bytes, 0xff));
  }
  return absl::OkStatus();
}

Traffic StrategyBase::DispatchTraffic(int rank, absl::Span<const int32_t> topk_idx) const {
  return TrafficOf(DispatchWire(), config_, node_.num_ranks(), rank, topk_idx);
}

Traffic StrategyBase::CombineTraffic(int rank, absl::Span<const int32_t> topk_idx) const {
  return TrafficOf(CombineWire(), config_, node_.num_ranks(), rank, topk_idx);
}

// ---- Failures.

absl::Status StrategyBase::ResetControl(Rank& rank, uint64_t epoch) {
  RankState& mine = ranks_[Index(rank.rank())];
  char* base = HeapOn(rank.rank());
  OCTET_RETURN_IF_GPU_ERROR(hipMemsetAsync(base, 0, needs_.layout.control_bytes, rank.stream()));
  const size_t ranks = Index(node_.num_ranks());
  mine.reset_credits.assign(2 * ranks, Flag{epoch - 1});
  if (needs_.layouts_in_credits) {
    std::fill_n(mine.reset_credits.begin(), ranks, Flag{device::PackEpochCount(epoch - 1, 0)});
  }
  const Flag* credits = mine.reset_credits.data();
  for (const size_t place : {needs_.layout.dispatch_credits, needs_.layout.combine_credits}) {
    OCTET_RETURN_IF_GPU_ERROR(hipMemcpyAsync(base + place, credits, sizeof(Flag) * ranks,
                                             hipMemcpyHostToDevice, rank.stream()));
    credits += ranks;
  }
  mine.reset_epochs.assign(static_cast<size_t>(needs_.call_epochs),
                           device::CallEpoch{.epoch = epoch, .blocks_started = 0});
  OCTET_RETURN_IF_GPU_ERROR(hipMemsetAsync(mine.state.data(), 0, mine.state.size(), rank.stream()));
  return OCTET_GPU(hipMemcpyAsync(mine.state.data(), mine.reset_epochs.data(),
                                  mine.reset_epochs.size() * sizeof(device::CallEpoch),
                                  hipMemcpyHostToDevice, rank.stream()));
}

absl::Status StrategyBase::VoidCalls(Rank& /*rank*/) { return absl::OkStatus(); }

absl::Status StrategyBase::BeginAfresh(Rank& rank) {
  RankState& mine = ranks_[Index(rank.rank())];
  OCTET_RETURN_IF_ERROR(rank.Barrier("a fresh start"));
  uint64_t fresh_starts = 0;
  for (const RankState& each : ranks_) fresh_starts = std::max(fresh_starts, each.fresh_starts);
  OCTET_RETURN_IF_ERROR(rank.Barrier("a fresh start"));
  mine.fresh_starts = (fresh_starts + 1) & ((uint64_t{1} << kStartBits) - 1);
  if (mine.state.empty()) return absl::OkStatus();  // the rank failed before its state was made
  mine.sequence.Void();
  OCTET_RETURN_IF_ERROR(VoidCalls(rank));
  return ResetControl(rank, (mine.fresh_starts << kCallBits) + 1);
}

absl::Status StrategyBase::Recover(Rank& rank) { return BeginAfresh(rank); }

absl::Status StrategyBase::Describe(int rank, const device::FailureRecord& record) const {
  if (record.kind == device::FailureKind::kInput) return RefusedInput(rank, record, config_.topk);
  const SiteText& site = TextOf(static_cast<Site>(record.site));
  device::FailureRecord plain = record;
  plain.expected = CallOf(EpochIn(site, record.expected));
  plain.seen = CallOf(EpochIn(site, record.seen));
  return DeadlineStatus(rank, site.phase, site.flag, plain, DeviceTicks(record.waited_ticks));
}

absl::Status StrategyBase::CheckComplete(const Rank& rank) const {
  return ranks_[Index(rank.rank())].sequence.CheckComplete();
}

absl::Status StrategyBase::CopyFlags(Rank& rank) {
  RankState& mine = ranks_[Index(rank.rank())];
  mine.copied_control.resize(needs_.layout.control_bytes / sizeof(Flag));
  return OCTET_GPU(hipMemcpyAsync(mine.copied_control.data(), HeapOn(rank.rank()),
                                  needs_.layout.control_bytes, hipMemcpyDeviceToHost,
                                  rank.stream()));
}

std::vector<FlagTable> StrategyBase::FlagTables(absl::Span<const device::FailureRecord> waits) {
  std::map<uint32_t, FlagTable> tables;
  for (int rank = 0; rank < node_.num_ranks(); ++rank) {
    const device::FailureRecord& wait = waits[Index(rank)];
    const auto where = static_cast<Site>(wait.site);
    const SiteText& site = TextOf(where);
    if (wait.kind == device::FailureKind::kNone || site.table.empty()) continue;
    const uint64_t epoch = EpochIn(site, wait.expected);
    FlagTable& table = tables[wait.site];
    table.title = std::string(site.table);
    FlagTable::Row row;
    row.rank = rank;
    if (!site.by_rows) row.expected = absl::StrCat(CallOf(epoch));
    for (int peer = 0; peer < node_.num_ranks(); ++peer) {
      row.peers.push_back(FlagCell(rank, peer, where, epoch));
    }
    table.rows.push_back(std::move(row));
  }
  for (RankState& rank : ranks_) rank.copied_control = {};
  std::vector<FlagTable> result;
  for (auto& [site, table] : tables) result.push_back(std::move(table));
  return result;
}

FlagTable::Cell StrategyBase::FlagCell(int rank, int peer, Site site, uint64_t epoch) {
  char* mine = CopiedControl(rank);
  std::vector<uint64_t> epochs;
  switch (site) {
    case Site::kDispatchCredit:
      epochs = {*FlagOf(mine, needs_.layout.dispatch_credits, peer)};
      break;
    case Site::kLayoutCredit:
      epochs = {device::EpochOf(*FlagOf(mine, needs_.layout.dispatch_credits, peer))};
      break;
    case Site::kCombineCredit:
      epochs = {*FlagOf(mine, needs_.layout.combine_credits, peer)};
      break;
    case Site::kDispatchCount:
      for (int column = 0; column < needs_.layout.num_counts; ++column) {
        epochs.push_back(device::EpochOf(*needs_.layout.Count(mine, epoch, peer, column)));
      }
      break;
    default:
      epochs = EpochsAt(rank, peer, site, epoch);
  }
  if (!TextOf(site).by_rows) {
    const uint64_t seen = *absl::c_min_element(epochs);
    return {absl::StrCat(CallOf(seen)), seen < epoch};
  }
  const auto arrived = absl::c_count_if(epochs, [epoch](uint64_t seen) { return seen >= epoch; });
  return {absl::StrCat(arrived, "/", epochs.size()), static_cast<size_t>(arrived) < epochs.size()};
}

}  // namespace octet
