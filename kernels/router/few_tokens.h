// The router of a few tokens in one launch: logits, and the choice of experts by them.
#ifndef OCTET_KERNELS_ROUTER_FEW_TOKENS_H_
#define OCTET_KERNELS_ROUTER_FEW_TOKENS_H_

#include <hip/hip_runtime.h>

#include <cstdint>

#include "kernels/router/route.h"

namespace octet {

// The most tokens of a launch. For more, a product and Route share the work better.
inline constexpr int kFewRoutedTokens = 16;

struct FewTokensParams {
  const void* x;            // [route.num_tokens][hidden]
  const void* router;       // [logit_rows][hidden], of the same type
  int hidden;               // a multiple of 8
  int logit_rows;           // at least route.num_experts
  const float* logit_bias;  // [logit_rows] that is added to logits, or nullptr
  RouteParams route;        // its logits are written first
  float* logits;            // the same memory as route.logits
  uint32_t* blocks_done;    // 0 before each launch and after it; launches at a time have their own
  bool fp16;                // the type; otherwise bfloat16
};

// Loads the kernel on the current device.
hipError_t LoadRouteFewTokens(int num_experts, bool fp16);
hipError_t LaunchRouteFewTokens(const FewTokensParams& params, hipStream_t stream);

}  // namespace octet

#endif  // OCTET_KERNELS_ROUTER_FEW_TOKENS_H_
