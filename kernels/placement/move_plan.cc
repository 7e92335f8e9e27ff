#include "kernels/placement/move_plan.h"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <set>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "runtime/base/size.h"

namespace octet {
namespace {

absl::Span<const int32_t> SlotsOf(const Placement& placement, int rank) {
  const size_t slots = Size(placement.slots_per_rank());
  return placement.slots().subspan(Size(rank) * slots, slots);
}

absl::Status CheckAlike(const Placement& current, const Placement& wanted) {
  if (wanted.num_experts() == current.num_experts() && wanted.num_ranks() == current.num_ranks()) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat("placement is of ", wanted.num_experts(),
                                                 " experts on ", wanted.num_ranks(),
                                                 " ranks; the layer has ", current.num_experts(),
                                                 " experts and ", current.num_ranks(), " ranks"));
}

// Appends a rank's slots to `slots`.
absl::Status FitRank(const Placement& current, const Placement& wanted, int rank,
                     std::vector<int32_t>& slots) {
  std::vector<int32_t> come;
  for (int expert = 0; expert < wanted.num_experts(); ++expert) {
    if (wanted.ReplicaOn(rank, expert) >= 0 && current.ReplicaOn(rank, expert) < 0) {
      come.push_back(expert);
    }
  }
  const absl::Span<const int32_t> before = SlotsOf(current, rank);
  const auto free = static_cast<size_t>(absl::c_count(before, Placement::kFreeSlot));
  if (come.size() > free) {
    return absl::InvalidArgumentError(absl::StrCat(
        "rank ", rank, " would get ", come.size(), " experts that it has not, the first of them ",
        come.front(), ", and ", free, " of its ", before.size(),
        " slots are free: PlanMoves has the placements between them"));
  }
  auto next = come.begin();
  for (const int32_t expert : before) {
    if (expert != Placement::kFreeSlot) {
      const bool stays = wanted.ReplicaOn(rank, expert) >= 0;
      slots.push_back(stays ? expert : Placement::kFreeSlot);
    } else {
      slots.push_back(next == come.end() ? Placement::kFreeSlot : *next++);
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<Placement> FitInto(const Placement& current, const Placement& wanted) {
  if (absl::Status status = CheckAlike(current, wanted); !status.ok()) return status;
  std::vector<int32_t> slots;
  for (int rank = 0; rank < current.num_ranks(); ++rank) {
    if (absl::Status status = FitRank(current, wanted, rank, slots); !status.ok()) return status;
  }
  return Placement::Create(current.num_experts(), current.num_ranks(), slots);
}

namespace {

// Which ranks have which experts, while a sequence of moves is planned. A step's arrivals need
// slots that are free before it, and what leaves in it makes room for the next one.
class Moves {
 public:
  Moves(const Placement& current, const Placement& wanted)
      : wanted_(wanted), num_ranks_(current.num_ranks()), slots_(current.slots_per_rank()) {
    for (int rank = 0; rank < num_ranks_; ++rank) {
      for (const int32_t expert : SlotsOf(current, rank)) {
        if (expert != Placement::kFreeSlot) has_.insert({rank, expert});
      }
    }
    replicas_.resize(Size(current.num_experts()));
    for (const auto& [rank, expert] : has_) ++replicas_[Size(expert)];
  }

  bool Done() const { return given_up_.empty() && AllAtHome(); }

  // Makes one step. Returns false if there is none.
  bool Step() {
    if (AllAtHome()) given_up_.clear();
    before_ = has_;
    room_.assign(Size(num_ranks_), slots_);
    for (const auto& [rank, expert] : before_) --room_[Size(rank)];
    const bool came = Arrive();
    if (Leave() || came) return true;
    return StopOver() ? Leave() : GiveUp();
  }

  // Returns a placement of the ranks' experts, in any slots.
  absl::StatusOr<Placement> ToPlacement() const {
    std::vector<int32_t> slots(Size(num_ranks_) * Size(slots_), Placement::kFreeSlot);
    std::vector<size_t> next(Size(num_ranks_), 0);
    for (const auto& [rank, expert] : has_) {
      slots[Size(rank) * Size(slots_) + next[Size(rank)]++] = expert;
    }
    return Placement::Create(wanted_.num_experts(), num_ranks_, slots);
  }

 private:
  using RankExpert = std::pair<int, int32_t>;

  // A replica that has been given up is not wanted until everything else is at home.
  bool Wanted(const RankExpert& of) const {
    return wanted_.ReplicaOn(of.first, of.second) >= 0 && !given_up_.contains(of);
  }
  // Returns an expert that is to come to a rank.
  std::optional<int32_t> Missing(int rank) const {
    for (const int32_t expert : SlotsOf(wanted_, rank)) {
      if (expert == Placement::kFreeSlot || given_up_.contains({rank, expert})) continue;
      if (!has_.contains({rank, expert})) return expert;
    }
    return std::nullopt;
  }
  bool AllAtHome() const {
    for (int rank = 0; rank < num_ranks_; ++rank) {
      if (Missing(rank).has_value()) return false;
    }
    return absl::c_all_of(has_, [&](const RankExpert& of) { return Wanted(of); });
  }
  void Add(int rank, int32_t expert) {
    has_.insert({rank, expert});
    ++replicas_[Size(expert)];
    --room_[Size(rank)];
  }
  void Remove(const RankExpert& of) {
    has_.erase(of);
    --replicas_[Size(of.second)];
  }

  // Experts come to where they are wanted, as many as have room.
  bool Arrive() {
    bool any = false;
    for (int rank = 0; rank < num_ranks_; ++rank) {
      for (auto expert = Missing(rank); expert.has_value() && room_[Size(rank)] > 0;
           expert = Missing(rank)) {
        Add(rank, *expert);
        any = true;
      }
    }
    return any;
  }
  // Experts that have been there before this step leave where they are not wanted, unless they are
  // nowhere else.
  bool Leave() {
    bool any = false;
    for (const RankExpert& of : before_) {
      if (Wanted(of) || replicas_[Size(of.second)] == 1) continue;
      Remove(of);
      any = true;
    }
    return any;
  }
  // On each rank that lacks room for what is to come, one expert that must leave, and is nowhere
  // else, goes to a rank that has room and wants nothing.
  bool StopOver() {
    bool any = false;
    int from = -1;
    for (const RankExpert& of : before_) {
      if (of.first == from || Wanted(of) || !Missing(of.first).has_value()) continue;
      const auto to = absl::c_find_if(room_, [](int room) { return room > 0; });
      if (to == room_.end()) break;
      from = of.first;
      Add(static_cast<int>(to - room_.begin()), of.second);
      any = true;
    }
    return any;
  }
  // One replica leaves a rank where it is wanted, to make room.
  bool GiveUp() {
    for (const RankExpert& of : before_) {
      if (replicas_[Size(of.second)] == 1) continue;
      given_up_.insert(of);
      Remove(of);
      return true;
    }
    return false;
  }

  const Placement& wanted_;
  const int num_ranks_;
  const int slots_;
  std::set<RankExpert> has_, before_, given_up_;
  std::vector<int> replicas_;  // of each expert
  std::vector<int> room_;      // free slots of each rank
};

}  // namespace

absl::StatusOr<std::vector<Placement>> PlanMoves(const Placement& current,
                                                 const Placement& wanted) {
  if (absl::Status status = CheckAlike(current, wanted); !status.ok()) return status;
  for (int rank = 0; rank < wanted.num_ranks(); ++rank) {
    const absl::Span<const int32_t> slots = SlotsOf(wanted, rank);
    const auto free = absl::c_count(slots, Placement::kFreeSlot);
    const int wants = static_cast<int>(slots.size()) - static_cast<int>(free);
    if (wants <= current.slots_per_rank()) continue;
    return absl::InvalidArgumentError(absl::StrCat("rank ", rank, " would get ", wants,
                                                   " experts, and has ", current.slots_per_rank(),
                                                   " slots"));
  }
  Moves moves(current, wanted);
  std::vector<Placement> steps;
  // Each step but a few brings an expert to its rank; the limit is for what cannot be foreseen.
  const size_t limit = 4 * current.slots().size() + 8;
  while (!moves.Done()) {
    if (steps.size() == limit || !moves.Step()) {
      return absl::FailedPreconditionError(
          absl::StrCat("no slot of the ", current.slots().size(),
                       " is free and no expert has a second replica: ",
                       "experts cannot change their ranks; make the layer with more slots"));
    }
    absl::StatusOr<Placement> next = moves.ToPlacement();
    if (next.ok()) next = FitInto(steps.empty() ? current : steps.back(), *next);
    if (!next.ok()) return next.status();
    steps.push_back(*std::move(next));
  }
  return steps;
}

std::vector<std::vector<placement::ExpertCopy>> PlanCopies(const Placement& current,
                                                           const Placement& next) {
  std::vector<std::vector<placement::ExpertCopy>> copies(Size(current.num_ranks()));
  const int slots = current.slots_per_rank();
  for (size_t to = 0; to < next.slots().size(); ++to) {
    const int32_t expert = next.slots()[to];
    if (expert == Placement::kFreeSlot || current.slots()[to] == expert) continue;
    const absl::Span<const int32_t> replicas = current.ReplicasOf(expert);
    const int32_t from = *absl::c_min_element(replicas, [&](int32_t a, int32_t b) {
      return copies[Size(a / slots)].size() < copies[Size(b / slots)].size();
    });
    const auto slot = static_cast<int32_t>(to);
    copies[Size(from / slots)].push_back(
        {.from_slot = from % slots, .to_rank = slot / slots, .to_slot = slot % slots});
  }
  return copies;
}

}  // namespace octet
