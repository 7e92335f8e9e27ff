// Maps experts to ranks. Shared by host and device; routing_device.h checks a routing and finds the
// destinations of its tokens.
#ifndef OCTET_KERNELS_EP_DEVICE_ROUTING_H_
#define OCTET_KERNELS_EP_DEVICE_ROUTING_H_

#include <hip/hip_runtime.h>

#include <cstdint>

namespace octet {

// Experts are numbered over all ranks; each rank has L consecutive ones.
struct ExpertMap {
  int num_experts;        // E, of all ranks
  int num_local_experts;  // L = E / R
  uint32_t inverse;  // 2^31 / L, rounded up or 1 more: replaces the division by a multiplication

  // Returns whether `id` is an expert. Every other id is dropped (-1) or wrong.
  __host__ __device__ bool IsExpert(int32_t id) const { return id >= 0 && id < num_experts; }
  // Returns expert / L, for any number with expert · L < 2^31.
  __host__ __device__ int RankOf(int expert) const {
    return static_cast<int>((static_cast<uint64_t>(static_cast<uint32_t>(expert)) * inverse) >> 31);
  }
  __host__ __device__ int FirstExpert(int rank) const { return rank * num_local_experts; }
  // Returns the position of `expert` among the experts of `rank`, where it lives.
  __host__ __device__ int LocalExpert(int expert, int rank) const {
    return expert - FirstExpert(rank);
  }
};

inline ExpertMap MakeExpertMap(int num_experts, int num_ranks) {
  const int num_local_experts = num_experts / num_ranks;
  return ExpertMap{num_experts, num_local_experts,
                   (uint32_t{1} << 31) / static_cast<uint32_t>(num_local_experts) + 1};
}

}  // namespace octet

#endif  // OCTET_KERNELS_EP_DEVICE_ROUTING_H_
