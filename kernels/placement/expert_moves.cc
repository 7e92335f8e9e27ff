#include "kernels/placement/expert_moves.h"

#include <hip/hip_runtime.h>

#include <algorithm>
#include <atomic>
#include <limits>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/memory/memory.h"
#include "absl/strings/str_cat.h"
#include "kernels/placement/move_plan.h"
#include "octet/topology.h"
#include "runtime/base/size.h"
#include "runtime/base/status_macros.h"
#include "runtime/failure/failure.h"
#include "runtime/gpu/gpu_status.h"
#include "runtime/node/capture.h"

namespace octet {
namespace {

using placement::ExpertCopy;
using placement::ReplicaRange;
using placement::SwitchState;

const GpuInfo& GpuOf(const Rank& rank) { return rank.node().topology().gpus[Size(rank.rank())]; }

absl::Status CheckNotCapturing(const Rank& rank, absl::string_view call) {
  if (!IsCapturing(rank.stream())) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat(call,
                   " cannot be captured into a graph: call it between launches, which go by "
                   "the placement in force"));
}

}  // namespace

ExpertMoves::ExpertMoves(Node& node, PlacementTables& tables, const Weights& weights,
                         std::string name)
    : node_(node.Share()),
      tables_(tables),
      weights_(weights),
      memory_(node),
      states_(Size(node.num_ranks())),
      client_(Register(node, this, std::move(name))) {}

ExpertMoves::~ExpertMoves() {
  Unregister(*node_, client_);
  const bool ready = node_->ReadyToFree();
  for (RankState& mine : states_) {
    if (mine.side.stream() == nullptr) continue;
    // The copies end by themselves; what they read and write is freed after that.
    if (!ready || hipStreamSynchronize(mine.side.stream()) != hipSuccess) mine.side.Abandon();
  }
}

absl::StatusOr<std::unique_ptr<ExpertMoves>> ExpertMoves::Create(Node& node, const Placement& first,
                                                                 PlacementTables& tables,
                                                                 const Weights& weights,
                                                                 std::string name) {
  auto moves = absl::WrapUnique(new ExpertMoves(node, tables, weights, std::move(name)));
  {
    MutexLock lock(&moves->mutex_);
    moves->placements_[0] = first;
  }
  OCTET_ASSIGN_OR_RETURN(moves->heap_, SymmetricHeap::Create(node, sizeof(SwitchState)));
  OCTET_RETURN_IF_ERROR(node.Run([&](Rank& rank) { return moves->InitRank(rank, first); }));
  moves->ready_ = true;
  return moves;
}

absl::Status ExpertMoves::InitRank(Rank& rank, const Placement& first) {
  RankState& mine = StateOf(rank);
  OCTET_ASSIGN_OR_RETURN(mine.side, SideStream::Create());
  const size_t ranges = tables_.ContentsFor(rank, first).ranges.size();
  const size_t slots = first.slots().size();
  for (Staged& staged : mine.staged) {
    OCTET_ASSIGN_OR_RETURN(staged.ranges, memory_.Pinned<ReplicaRange>(ranges));
    OCTET_ASSIGN_OR_RETURN(staged.replicas, memory_.Pinned<int32_t>(slots));
    OCTET_ASSIGN_OR_RETURN(staged.locals, memory_.Pinned<int32_t>(Size(first.num_experts())));
    OCTET_ASSIGN_OR_RETURN(staged.copies, memory_.Pinned<ExpertCopy>(slots));
  }
  OCTET_ASSIGN_OR_RETURN(mine.done, memory_.Pinned<uint64_t>(1));
  mine.done[0] = 0;
  return OCTET_GPU(placement::LoadMoves());
}

Placement ExpertMoves::PlacementNumber(uint64_t number) const {
  MutexLock lock(&mutex_);
  return placements_.at(number);
}

Placement ExpertMoves::PlacementOf(const Rank& rank) const {
  return PlacementNumber(StateOf(rank).number);
}

absl::Status ExpertMoves::Agree(const Rank& rank, uint64_t number, const Placement& placement) {
  MutexLock lock(&mutex_);
  // Older ones are in force nowhere: this rank's switch of two numbers before is done, which all
  // ranks had come to.
  placements_.erase(placements_.begin(), placements_.lower_bound(number < 2 ? 0 : number - 2));
  const auto [agreed, first] = placements_.emplace(number, placement);
  if (first || agreed->second == placement) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("rank ", rank.rank(),
                   " calls MoeLayer::Prepare with another placement than a "
                   "rank before it; all ranks must have an equal one"));
}

absl::Status ExpertMoves::Stage(const PlacementTables::Contents& contents,
                                absl::Span<const ExpertCopy> copies, Staged& staged) {
  absl::c_copy(contents.ranges, staged.ranges.begin());
  absl::c_copy(contents.replicas, staged.replicas.begin());
  absl::c_copy(contents.locals, staged.locals.begin());
  absl::c_copy(copies, staged.copies.begin());
  staged.num_replicas = contents.replicas.size();
  return absl::OkStatus();
}

absl::Status ExpertMoves::Prepare(Rank& rank, const Placement& wanted, int max_blocks) {
  RankState& mine = StateOf(rank);
  OCTET_RETURN_IF_ERROR(CheckNotCapturing(rank, "MoeLayer::Prepare"));
  if (mine.prepared) {
    return absl::FailedPreconditionError(
        "MoeLayer::Prepare has been called and Apply has not: it comes first");
  }
  if (max_blocks < 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("max_blocks is ", max_blocks, "; it must not be negative"));
  }
  const Placement current = PlacementOf(rank);
  OCTET_ASSIGN_OR_RETURN(const Placement next, FitInto(current, wanted));
  const uint64_t number = mine.number + 1;
  // The switch before the last one has read what is going to be overwritten.
  const auto read = [&] {
    return std::atomic_ref<uint64_t>(mine.done[0]).load(std::memory_order_acquire) + 2 >= number;
  };
  OCTET_RETURN_IF_ERROR(rank.WaitUntil(read, "the MoeLayer::Apply before the last one"));
  OCTET_RETURN_IF_ERROR(Agree(rank, number, next));
  const std::vector<ExpertCopy> copies = PlanCopies(current, next)[Size(rank.rank())];
  Staged& staged = mine.staged[number % mine.staged.size()];
  OCTET_RETURN_IF_ERROR(Stage(tables_.ContentsFor(rank, next), copies, staged));
  OCTET_RETURN_IF_ERROR(EnqueueCopies(rank, mine, staged.copies.first(copies.size()), max_blocks));
  mine.prepared = true;
  return absl::OkStatus();
}

absl::Status ExpertMoves::EnqueueCopies(const Rank& rank, RankState& mine,
                                        absl::Span<const ExpertCopy> copies, int max_blocks) {
  constexpr int kThreads = 512;
  if (copies.empty()) return absl::OkStatus();
  // Slots that are free since the last switch may be written after it.
  OCTET_RETURN_IF_ERROR(mine.side.MarkFork(rank));
  OCTET_RETURN_IF_ERROR(mine.side.Fork());
  const device::PeerBases peers = weights_.heap->peers(rank.rank(), HeapMemory::kCached);
  if (max_blocks == 0) return EnqueueByEngine(mine.side.stream(), peers, copies);
  placement::CopyExpertsParams params = {.failure = PortOf(rank, client_),
                                         .weights = peers,
                                         .arrays = {},
                                         .copies = copies.data(),
                                         .num_copies = static_cast<int>(copies.size())};
  absl::c_copy(weights_.arrays, params.arrays);
  const int blocks = std::min(max_blocks, GpuOf(rank).num_compute_units);
  return OCTET_GPU(placement::LaunchCopyExperts(params, {.blocks = blocks, .threads = kThreads},
                                                mine.side.stream()));
}

absl::Status ExpertMoves::EnqueueByEngine(hipStream_t stream, const device::PeerBases& peers,
                                          absl::Span<const ExpertCopy> copies) const {
  for (const ExpertCopy& copy : copies) {
    for (const placement::SlotArray& array : weights_.arrays) {
      const char* const from = placement::SlotAt(peers, peers.rank, array, copy.from_slot);
      char* const to = placement::SlotAt(peers, copy.to_rank, array, copy.to_slot);
      OCTET_RETURN_IF_GPU_ERROR(
          hipMemcpyAsync(to, from, array.slot_bytes, hipMemcpyDeviceToDevice, stream));
    }
  }
  return absl::OkStatus();
}

absl::Status ExpertMoves::Apply(Rank& rank) {
  constexpr int kThreads = 256;
  RankState& mine = StateOf(rank);
  OCTET_RETURN_IF_ERROR(CheckNotCapturing(rank, "MoeLayer::Apply"));
  if (!mine.prepared) {
    return absl::FailedPreconditionError("MoeLayer::Apply needs a placement: call Prepare first");
  }
  const uint64_t number = mine.number + 1;
  const Staged& staged = mine.staged[number % mine.staged.size()];
  const placement::SwitchParams params = {
      .failure = PortOf(rank, client_),
      .states = heap_->peers(rank.rank()),
      .num_ranks = rank.num_ranks(),
      .number = number,
      .update = {.ranges = tables_.ranges(rank),
                 .replicas = tables_.replicas(rank),
                 .locals = tables_.locals(rank),
                 .new_ranges = staged.ranges.data(),
                 .new_replicas = staged.replicas.data(),
                 .new_locals = staged.locals.data(),
                 .num_ranges = static_cast<int>(staged.ranges.size()),
                 .num_replicas = static_cast<int>(staged.num_replicas),
                 .num_experts = static_cast<int>(staged.locals.size())},
      .done = mine.done.data()};
  OCTET_RETURN_IF_ERROR(rank.CoordinatedLaunch(
      [&]() -> absl::Status {
        OCTET_RETURN_IF_ERROR(AwaitCopies(rank, mine));
        return OCTET_GPU(
            placement::LaunchSwitch(params, {.blocks = 1, .threads = kThreads}, rank.stream()));
      },
      "MoeLayer::Apply"));
  mine.number = number;
  mine.prepared = false;
  return absl::OkStatus();
}

absl::Status ExpertMoves::Abandon(Rank& rank) {
  RankState& mine = StateOf(rank);
  OCTET_RETURN_IF_GPU_ERROR(hipStreamSynchronize(mine.side.stream()));
  OCTET_RETURN_IF_ERROR(rank.Barrier("MoeLayer::Load"));
  if (!mine.prepared) return absl::OkStatus();
  mine.prepared = false;
  MutexLock lock(&mutex_);
  placements_.erase(mine.number + 1);
  return absl::OkStatus();
}

absl::Status ExpertMoves::Describe(int rank, const device::FailureRecord& record) const {
  return DeadlineStatus(RecordedFailure(rank, record, "MoeLayer::Apply", "arrival"));
}

absl::Status ExpertMoves::ReadArrived(Rank& rank) {
  OCTET_RETURN_IF_ERROR(CopyFlags(rank));
  return rank.Synchronize();
}

absl::Status ExpertMoves::CopyFlags(Rank& rank) {
  RankState& mine = StateOf(rank);
  if (heap_ == nullptr) return absl::OkStatus();
  mine.arrived.resize(Size(rank.num_ranks()));
  return OCTET_GPU(hipMemcpyAsync(mine.arrived.data(), heap_->peers(rank.rank()).base[rank.rank()],
                                  mine.arrived.size() * sizeof(uint64_t), hipMemcpyDeviceToHost,
                                  rank.stream()));
}

std::vector<FlagTable> ExpertMoves::FlagTables(absl::Span<const device::FailureRecord> waits) {
  FlagTable table = {.title = "MoeLayer::Apply, arrivals: number seen from each rank", .rows = {}};
  for (size_t r = 0; r < states_.size(); ++r) {
    const device::FailureRecord& wait = waits[r];
    if (wait.kind == device::FailureKind::kNone || wait.peer < 0 || states_[r].arrived.empty()) {
      continue;
    }
    FlagTable::Row row = {
        .rank = static_cast<int>(r), .expected = absl::StrCat(wait.expected), .peers = {}};
    for (const uint64_t seen : states_[r].arrived) {
      row.peers.push_back({.seen = absl::StrCat(seen), .behind = seen < wait.expected});
    }
    table.rows.push_back(std::move(row));
  }
  if (table.rows.empty()) return {};
  return {std::move(table)};
}

// Puts in force the switch that all ranks have come to; its number becomes 0.
absl::Status ExpertMoves::Recover(Rank& rank) {
  RankState& mine = StateOf(rank);
  if (!ready_) return absl::OkStatus();
  OCTET_RETURN_IF_GPU_ERROR(hipStreamSynchronize(mine.side.stream()));
  OCTET_RETURN_IF_ERROR(ReadArrived(rank));
  OCTET_RETURN_IF_ERROR(rank.Barrier("recovery"));
  uint64_t number = std::numeric_limits<uint64_t>::max();
  for (size_t r = 0; r < states_.size(); ++r) number = std::min(number, states_[r].arrived[r]);
  const Placement in_force = PlacementNumber(number);
  OCTET_RETURN_IF_ERROR(rank.Barrier("recovery"));
  mine.number = 0;
  mine.prepared = false;
  mine.done[0] = 0;
  {
    MutexLock lock(&mutex_);
    placements_ = {{0, in_force}};
  }
  OCTET_RETURN_IF_GPU_ERROR(hipMemsetAsync(heap_->peers(rank.rank()).base[rank.rank()], 0,
                                           sizeof(SwitchState), rank.stream()));
  return tables_.Replace(rank, in_force);
}

}  // namespace octet
