// How experts get from one placement to another.
#ifndef OCTET_KERNELS_PLACEMENT_MOVE_PLAN_H_
#define OCTET_KERNELS_PLACEMENT_MOVE_PLAN_H_

#include <vector>

#include "absl/status/statusor.h"
#include "kernels/placement/kernels.h"
#include "octet/placement.h"

namespace octet {

// Returns a placement with the slots of `current` in which each rank has the experts that it has in
// `wanted`: those that stay keep their slots, and the others, ascending, take the first slots that
// are free in `current`. Returns kInvalidArgument with the values if the two are of different
// experts or ranks, or if a rank has too few free slots.
absl::StatusOr<Placement> FitInto(const Placement& current, const Placement& wanted);

// Returns the copies that fill the slots of `next`, which FitInto has returned, by the rank that
// makes them. Each expert comes from a rank that has it in `current`, of these the one with the
// fewest copies so far.
std::vector<std::vector<placement::ExpertCopy>> PlanCopies(const Placement& current,
                                                           const Placement& next);

}  // namespace octet

#endif  // OCTET_KERNELS_PLACEMENT_MOVE_PLAN_H_
