// The seam through which faults get into the kernels of placements, as seam.h is that of the
// strategies: their files, and expert_moves.cc, are compiled with `-include
// tests/faults/placement_seam.h`, the real headers come first, then names are replaced. With
// PlacementFault::kNone these are what they replace.
#ifndef OCTET_TESTS_FAULTS_PLACEMENT_SEAM_H_
#define OCTET_TESTS_FAULTS_PLACEMENT_SEAM_H_

#include <hip/hip_runtime.h>

#include <cstdint>

#include "absl/status/status.h"
#include "kernels/ep/device/replica.h"
#include "kernels/placement/expert_moves.h"
#include "kernels/placement/kernels.h"
#include "kernels/placement/moves_device.h"
#include "kernels/placement/table_device.h"
#include "tests/faults/placement_fault.h"

namespace octet::placement {

__device__ inline int32_t SeamPhysicalOf(const PlacementTable& table, int32_t expert,
                                         const SourceToken& token) {
  using faults::PlacementFault;
  const ReplicaRange range = RangeOf(table, token.rank, expert);
  switch (faults::planted_placement) {
    case PlacementFault::kNone:
    case PlacementFault::kCopyLate:
    case PlacementFault::kSwitchAlone:
      break;
    case PlacementFault::kTwoReplicasTakeAToken: {
      const ReplicaRange first = RangeOf(table, token.rank, 0);
      if (expert != 1 || first.count == 1) break;
      const int taken = ReplicaOf(token.rank, token.number, first.count);
      return table.replicas[first.first + (taken + 1) % first.count];
    }
    case PlacementFault::kOneReplicaTakesAll:
      return PhysicalOf(table, expert, {token.rank, 0});
    case PlacementFault::kShareOfAnotherRank:
      return table.replicas[range.first + ReplicaOf(token.rank + 1, token.number, range.count)];
    case PlacementFault::kBehindTheLast:
      return table.replicas[range.first + range.count];
  }
  return PhysicalOf(table, expert, token);
}

__device__ inline void SeamCopySlot(const CopyExpertsParams& p, const SlotArray& array,
                                    const ExpertCopy& copy) {
  constexpr uint64_t kLate = device::kClockHz / 1000;
  const bool late = faults::planted_placement == faults::PlacementFault::kCopyLate;
  const uint64_t start = device::Clock();
  while (late && device::Clock() - start < kLate) device::Pause();
  CopySlot(p, array, copy);
}

__device__ inline bool SeamMeet(const SwitchParams& p) {
  return faults::planted_placement == faults::PlacementFault::kSwitchAlone || Meet(p);
}

}  // namespace octet::placement

#define PhysicalOf SeamPhysicalOf
#define Meet SeamMeet
#define CopySlot SeamCopySlot
#define AwaitCopies(rank, mine)                                                     \
  (::octet::faults::planted_placement == ::octet::faults::PlacementFault::kCopyLate \
       ? absl::OkStatus()                                                           \
       : AwaitCopies(rank, mine))

#endif  // OCTET_TESTS_FAULTS_PLACEMENT_SEAM_H_
