#include "octet/placement.h"

#include <cstddef>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "kernels/ep/config_checks.h"
#include "kernels/ep/device/replica.h"
#include "octet/ep_config.h"
#include "runtime/base/size.h"
#include "runtime/base/status_macros.h"

namespace octet {

absl::StatusOr<Placement> Placement::Create(int num_experts, int num_ranks,
                                            absl::Span<const int32_t> slots) {
  OCTET_RETURN_IF_ERROR(CheckRange("num_ranks", num_ranks, 1, kMaxPlacementRanks));
  OCTET_RETURN_IF_ERROR(CheckRange("num_experts", num_experts, 1, kMaxExperts));
  if (slots.empty() || slots.size() > kMaxPhysicalExperts || slots.size() % Size(num_ranks) != 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "a placement has ", slots.size(), " slots on ", num_ranks,
        " ranks; it must have as many on each, and from 1 to ", kMaxPhysicalExperts, " of all"));
  }
  Placement placement;
  placement.num_experts_ = num_experts;
  placement.num_ranks_ = num_ranks;
  placement.slots_.assign(slots.begin(), slots.end());
  const size_t per_rank = slots.size() / Size(num_ranks);
  std::vector<std::vector<int32_t>> replicas(Size(num_experts));
  for (size_t id = 0; id < slots.size(); ++id) {
    const int32_t expert = slots[id];
    if (expert == kFreeSlot) continue;
    if (expert < 0 || expert >= num_experts) {
      return absl::InvalidArgumentError(
          absl::StrCat("rank ", id / per_rank, ", slot ", id % per_rank, ": the expert is ", expert,
                       "; it must be from 0 to ", num_experts - 1, ", or -1 for a free slot"));
    }
    std::vector<int32_t>& of_expert = replicas[Size(expert)];
    if (!of_expert.empty() && Size(of_expert.back()) / per_rank == id / per_rank) {
      return absl::InvalidArgumentError(absl::StrCat(
          "rank ", id / per_rank, " has expert ", expert, " in the slots ",
          Size(of_expert.back()) % per_rank, " and ", id % per_rank,
          "; a rank has at most one replica of an expert, since it would use no other"));
    }
    of_expert.push_back(static_cast<int32_t>(id));
  }
  placement.first_.push_back(0);
  for (size_t expert = 0; expert < replicas.size(); ++expert) {
    if (replicas[expert].empty()) {
      return absl::InvalidArgumentError(
          absl::StrCat("expert ", expert, " has no slot; every expert needs one"));
    }
    placement.replicas_.insert(placement.replicas_.end(), replicas[expert].begin(),
                               replicas[expert].end());
    placement.first_.push_back(static_cast<int32_t>(placement.replicas_.size()));
  }
  return placement;
}

absl::StatusOr<Placement> Placement::InOrder(int num_experts, int num_ranks) {
  OCTET_RETURN_IF_ERROR(CheckRange("num_ranks", num_ranks, 1, kMaxPlacementRanks));
  OCTET_RETURN_IF_ERROR(CheckRange("num_experts", num_experts, 1, kMaxExperts));
  const int per_rank = (num_experts + num_ranks - 1) / num_ranks;
  std::vector<int32_t> slots(Size(num_ranks) * Size(per_rank), kFreeSlot);
  for (int rank = 0; rank < num_ranks; ++rank) {
    const int first = rank * num_experts / num_ranks;
    const int end = (rank + 1) * num_experts / num_ranks;
    for (int e = first; e < end; ++e) slots[Size(rank * per_rank + e - first)] = e;
  }
  return Create(num_experts, num_ranks, slots);
}

int32_t Placement::ReplicaOn(int rank, int expert) const {
  const int per_rank = slots_per_rank();
  const absl::Span<const int32_t> replicas = ReplicasOf(expert);
  const auto found = absl::c_lower_bound(replicas, rank * per_rank);
  return found != replicas.end() && *found < (rank + 1) * per_rank ? *found : -1;
}

int32_t Placement::PhysicalOf(int expert, int source_rank, int token) const {
  const int32_t own = ReplicaOn(source_rank, expert);
  if (own >= 0) return own;
  const absl::Span<const int32_t> replicas = ReplicasOf(expert);
  return replicas[Size(ReplicaOf(source_rank, token, static_cast<int>(replicas.size())))];
}

std::vector<double> Placement::LoadsOfRanks(absl::Span<const double> loads) const {
  std::vector<double> of_ranks(Size(num_ranks_));
  for (int expert = 0; expert < num_experts_; ++expert) {
    const absl::Span<const int32_t> replicas = ReplicasOf(expert);
    // A rank with a replica takes its own tokens, and of those of ranks without one as many as the
    // other replicas: together an equal part.
    const double part = loads[Size(expert)] / static_cast<double>(replicas.size());
    for (const int32_t id : replicas) of_ranks[Size(id / slots_per_rank())] += part;
  }
  return of_ranks;
}

}  // namespace octet
