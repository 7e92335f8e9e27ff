#include "tools/measure/layer/layer_move.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/clock.h"
#include "octet/placement.h"
#include "runtime/base/status_macros.h"

namespace octet {
namespace {

struct RankTimes {
  absl::Duration before;
  absl::Duration beside;
  absl::Duration mean_before;
  absl::Duration mean_beside;
  absl::Duration move;
};

struct CallTimes {
  absl::Duration fastest = absl::InfiniteDuration();
  absl::Duration slowest;
  absl::Duration mean;
};

// Times some calls of the rank, each of which it waits for.
absl::StatusOr<CallTimes> TimeCalls(Rank& rank, LayerCalls& calls) {
  constexpr int kCalls = 4;
  CallTimes times;
  for (int i = 0; i < kCalls; ++i) {
    OCTET_RETURN_IF_ERROR(rank.Synchronize());
    OCTET_RETURN_IF_ERROR(rank.Barrier());
    const absl::Time start = absl::Now();
    OCTET_RETURN_IF_ERROR(calls.Call(rank));
    OCTET_RETURN_IF_ERROR(rank.Synchronize());
    const absl::Duration time = absl::Now() - start;
    times.fastest = std::min(times.fastest, time);
    times.slowest = std::max(times.slowest, time);
    times.mean += time / kCalls;
  }
  return times;
}

// Adds the copies of a step.
void AddCopies(const Placement& from, const Placement& to, MoveTimes& times) {
  std::vector<int> copies(static_cast<size_t>(to.num_ranks()));
  for (size_t i = 0; i < to.slots().size(); ++i) {
    const int32_t expert = to.slots()[i];
    if (expert == Placement::kFreeSlot || expert == from.slots()[i]) continue;
    ++copies[i / static_cast<size_t>(to.slots_per_rank())];
  }
  times.copies += absl::c_accumulate(copies, 0);
  times.most_copies += *absl::c_max_element(copies);
}

absl::Duration Slowest(const std::vector<RankTimes>& ranks, absl::Duration RankTimes::* time) {
  absl::Duration slowest;
  for (const RankTimes& rank : ranks) slowest = std::max(slowest, rank.*time);
  return slowest;
}

}  // namespace

absl::StatusOr<LayerMove> MoveExperts(Node& node, MoeLayer& layer, LayerCalls& calls,
                                      const LayerOutput& before, const MoveTarget& target) {
  LayerMove move;
  std::vector<RankTimes> times(static_cast<size_t>(node.num_ranks()));
  OCTET_RETURN_IF_ERROR(node.Run([&](Rank& rank) -> absl::Status {
    RankTimes& mine = times[static_cast<size_t>(rank.rank())];
    OCTET_ASSIGN_OR_RETURN(const CallTimes before_move, TimeCalls(rank, calls));
    mine.before = before_move.fastest;
    mine.mean_before = before_move.mean;
    OCTET_ASSIGN_OR_RETURN(const std::vector<Placement> steps,
                           PlanMoves(layer.PlacementOf(rank), target.placement));
    if (rank.rank() == 0) move.times.steps = static_cast<int>(steps.size());
    OCTET_RETURN_IF_ERROR(rank.Barrier());
    const absl::Time start = absl::Now();
    for (const Placement& step : steps) {
      const Placement at = layer.PlacementOf(rank);
      if (rank.rank() == 0) AddCopies(at, step, move.times);
      OCTET_RETURN_IF_ERROR(layer.Prepare(rank, step, target.max_blocks));
      OCTET_ASSIGN_OR_RETURN(const CallTimes beside_move, TimeCalls(rank, calls));
      mine.beside = std::max(mine.beside, beside_move.slowest);
      mine.mean_beside = std::max(mine.mean_beside, beside_move.mean);
      OCTET_RETURN_IF_ERROR(layer.Apply(rank));
      OCTET_RETURN_IF_ERROR(rank.Synchronize());
    }
    mine.move = absl::Now() - start;
    if (rank.rank() == 0) move.placement = layer.PlacementOf(rank);
    return absl::OkStatus();
  }));
  OCTET_ASSIGN_OR_RETURN(const LayerOutput beside, calls.Read());
  if (beside.y != before.y) {
    return absl::DataLossError("a call beside experts that move has given different results");
  }
  OCTET_RETURN_IF_ERROR(node.Run([&](Rank& rank) { return calls.Call(rank); }));
  OCTET_ASSIGN_OR_RETURN(move.output, calls.Read());
  move.times.call_before = Slowest(times, &RankTimes::before);
  move.times.call_beside = Slowest(times, &RankTimes::beside);
  move.times.mean_before = Slowest(times, &RankTimes::mean_before);
  move.times.mean_beside = Slowest(times, &RankTimes::mean_beside);
  move.times.move = Slowest(times, &RankTimes::move);
  return move;
}

}  // namespace octet
