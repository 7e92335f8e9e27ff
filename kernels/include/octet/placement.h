// Which expert lives where: a table of physical experts, for EpConfig::placement.
//
// Routing names *logical* experts, 0 .. E-1. Each of them has one or more *replicas*, physical
// experts in the slots of ranks, so that E need not be divisible by the number of ranks and several
// ranks share the load of a popular expert. The slot s of rank r has the physical id r · S + s.
//
//   absl::StatusOr<Placement> placement = PlanPlacement(loads, num_ranks, slots_per_rank);
//   EpConfig config{.num_experts = 60, ..., .placement = *placement};
//
// Notation in the comments: R ranks (over all nodes), E logical experts, S slots of a rank.
// Everything here is host memory; any thread may call.
#ifndef OCTET_PLACEMENT_H_
#define OCTET_PLACEMENT_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"

namespace octet {

inline constexpr int kMaxPlacementRanks = 1024;
inline constexpr int kMaxPhysicalExperts = 65536;

class Placement {
 public:
  static constexpr int32_t kFreeSlot = -1;

  // No table: expert e lives on rank e / (E / R).
  Placement() = default;

  // `slots`: [R][S], the logical expert in each slot, or kFreeSlot. Returns kInvalidArgument with
  // rank, slot and expert unless every expert has a slot and no rank has an expert twice.
  static absl::StatusOr<Placement> Create(int num_experts, int num_ranks,
                                          absl::Span<const int32_t> slots);
  // One replica of each expert, in order: rank r has the experts from r · E / R on, rounded down.
  // S is the most experts of a rank. If E is divisible by R, these are the ranks that experts have
  // without a placement.
  static absl::StatusOr<Placement> InOrder(int num_experts, int num_ranks);

  bool empty() const { return slots_.empty(); }
  int num_experts() const { return num_experts_; }
  int num_ranks() const { return num_ranks_; }
  int slots_per_rank() const { return empty() ? 0 : static_cast<int>(slots_.size()) / num_ranks_; }

  // [R][S], as in Create.
  absl::Span<const int32_t> slots() const { return slots_; }
  // Returns the physical ids of an expert's replicas, ascending.
  absl::Span<const int32_t> ReplicasOf(int expert) const {
    const auto e = static_cast<size_t>(expert);
    return absl::MakeConstSpan(replicas_).subspan(static_cast<size_t>(first_[e]),
                                                  static_cast<size_t>(first_[e + 1] - first_[e]));
  }
  // Returns the replica of `expert` on `rank`, or -1.
  int32_t ReplicaOn(int rank, int expert) const;
  // Returns the physical id of the replica that takes token `token` (0 .. T-1) of a dispatch by
  // `source_rank`: the one on that rank if there is one, else replica ⌊n · u⌋ of all n, where u is
  // the fraction of (0xc13fa9a9 · token + 0x91e10da5 · source_rank) / 2^32. Any run of tokens, and
  // any that are equally far apart, give all replicas nearly equal shares.
  int32_t PhysicalOf(int expert, int source_rank, int token) const;
  // Returns the rows that each rank receives, [R], of `loads` ([E], rows of each expert) that all
  // ranks send in equal parts.
  std::vector<double> LoadsOfRanks(absl::Span<const double> loads) const;

  bool operator==(const Placement&) const = default;

 private:
  int num_experts_ = 0;
  int num_ranks_ = 0;
  std::vector<int32_t> slots_;
  std::vector<int32_t> replicas_;  // physical ids by (expert, id)
  std::vector<int32_t> first_;     // [E + 1] where those of each expert begin
};

// Returns a placement that balances `loads`, [E], rows of each expert: the most loaded experts get
// the replicas, each with an equal part of its expert's load, and these are packed so that the most
// loaded rank has little. The same arguments give the same placement on every machine. Experts of
// no load get no second replica, so slots may stay free. Returns kInvalidArgument for loads that
// are negative or not finite, and if there are fewer slots than experts.
absl::StatusOr<Placement> PlanPlacement(absl::Span<const double> loads, int num_ranks,
                                        int slots_per_rank);

// Returns the placements through which experts get from `current` to the ranks that they have in
// `wanted`, the last one: each for a MoeLayer::Prepare and Apply in turn, which put experts only
// into slots that are free already. Their slots are those of `current`; none if every rank has its
// experts already. An expert that nothing has room for may stop over on another rank, and a replica
// may be given up and come back; no expert is ever without one. The same arguments give the same
// placements. Returns kInvalidArgument with the values if the two are of different experts or ranks
// or a rank has fewer slots than experts to have, and kFailedPrecondition if no slot is free
// anywhere, nor could one be.
absl::StatusOr<std::vector<Placement>> PlanMoves(const Placement& current, const Placement& wanted);

}  // namespace octet

#endif  // OCTET_PLACEMENT_H_
