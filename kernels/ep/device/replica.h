// The choice among the replicas of an expert. Shared by host and device.
#ifndef OCTET_KERNELS_EP_DEVICE_REPLICA_H_
#define OCTET_KERNELS_EP_DEVICE_REPLICA_H_

#include <hip/hip_runtime.h>

#include <cstdint>

namespace octet {

// The fractions of 1/p and 1/p^2, where p is the plastic number, times 2^32: of all such pairs,
// their multiples are spread most evenly.
inline constexpr uint32_t kTokenStep = 0xc13fa9a9;
inline constexpr uint32_t kRankStep = 0x91e10da5;

// Returns which of `num_replicas` takes a token of a rank that has none of them.
__host__ __device__ inline int ReplicaOf(int source_rank, int token, int num_replicas) {
  const uint32_t point =
      static_cast<uint32_t>(token) * kTokenStep + static_cast<uint32_t>(source_rank) * kRankStep;
  return static_cast<int>((static_cast<uint64_t>(point) * static_cast<uint32_t>(num_replicas)) >>
                          32);
}

}  // namespace octet

#endif  // OCTET_KERNELS_EP_DEVICE_REPLICA_H_
