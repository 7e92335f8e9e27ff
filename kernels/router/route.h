// The kernel that chooses each token's experts from its logits (octet/router.h).
#ifndef OCTET_KERNELS_ROUTER_ROUTE_H_
#define OCTET_KERNELS_ROUTER_ROUTE_H_

#include <hip/hip_runtime.h>

#include <cstdint>

#include "runtime/device/launch_shape.h"

namespace octet {

inline constexpr int kMostRoutedExperts = 2048;

struct RouteParams {
  const float* logits;  // [num_tokens][stride], the first num_experts of each row
  int stride;
  const float* bias;  // [num_experts], added to scores for the choice; or nullptr
  int num_tokens;
  int num_experts;  // up to kMostRoutedExperts
  int topk;         // up to 32
  // RouterConfig:
  bool sigmoid;
  bool sparsemixer;  // neither: softmax
  float near_limit;  // of sparsemixer: 2 · jitter
  int groups;
  int top_groups;
  bool sum_of_two_best;
  bool normalize;
  float normalize_epsilon;
  float scaling;
  int32_t* topk_idx;    // [num_tokens][topk]
  float* topk_weights;  // [num_tokens][topk]
};

// Loads the kernel for so many experts on the current device.
hipError_t LoadRoute(int num_experts);
// Enqueues it; up to 256 threads a block.
hipError_t LaunchRoute(const RouteParams& params, const LaunchShape& shape, hipStream_t stream);

}  // namespace octet

#endif  // OCTET_KERNELS_ROUTER_ROUTE_H_
