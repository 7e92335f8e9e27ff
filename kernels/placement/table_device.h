// The device side of PlacementTable.
#ifndef OCTET_KERNELS_PLACEMENT_TABLE_DEVICE_H_
#define OCTET_KERNELS_PLACEMENT_TABLE_DEVICE_H_

#include <cstdint>

#include "kernels/ep/device/replica.h"
#include "kernels/placement/kernels.h"

namespace octet::placement {

// A token of a dispatch: number `number` of those of rank `rank`.
struct SourceToken {
  int rank;
  int number;
};

// Returns what `table` has for an expert and a source rank.
__device__ __forceinline__ ReplicaRange RangeOf(const PlacementTable& table, int source_rank,
                                                int32_t expert) {
  return table.ranges[(source_rank - table.first_source) * table.num_experts + expert];
}

// Returns the physical id of the replica of `expert` that takes the token.
__device__ __forceinline__ int32_t PhysicalOf(const PlacementTable& table, int32_t expert,
                                              const SourceToken& token) {
  const ReplicaRange range = RangeOf(table, token.rank, expert);
  return table.replicas[range.first + ReplicaOf(token.rank, token.number, range.count)];
}

}  // namespace octet::placement

#endif  // OCTET_KERNELS_PLACEMENT_TABLE_DEVICE_H_
