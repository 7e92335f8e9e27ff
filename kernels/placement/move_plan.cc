#include "kernels/placement/move_plan.h"

#include <cstddef>
#include <cstdint>

#include "absl/algorithm/container.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/types/span.h"

namespace octet {
namespace {

size_t Size(int value) { return static_cast<size_t>(value); }

absl::Span<const int32_t> SlotsOf(const Placement& placement, int rank) {
  const size_t slots = Size(placement.slots_per_rank());
  return placement.slots().subspan(Size(rank) * slots, slots);
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
        " slots are free: experts that leave free their slots for a later Prepare"));
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
  if (wanted.num_experts() != current.num_experts() || wanted.num_ranks() != current.num_ranks()) {
    return absl::InvalidArgumentError(absl::StrCat("placement is of ", wanted.num_experts(),
                                                   " experts on ", wanted.num_ranks(),
                                                   " ranks; the layer has ", current.num_experts(),
                                                   " experts and ", current.num_ranks(), " ranks"));
  }
  std::vector<int32_t> slots;
  for (int rank = 0; rank < current.num_ranks(); ++rank) {
    if (absl::Status status = FitRank(current, wanted, rank, slots); !status.ok()) return status;
  }
  return Placement::Create(current.num_experts(), current.num_ranks(), slots);
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
