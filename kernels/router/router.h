// The router's decisions on the host.
#ifndef OCTET_KERNELS_ROUTER_ROUTER_H_
#define OCTET_KERNELS_ROUTER_ROUTER_H_

#include <cstdint>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "octet/router.h"

namespace octet {

// Returns kInvalidArgument with the member, its value and what it must be, or OK.
absl::Status Validate(const RouterConfig& config, int num_experts, int topk);

// A token's logits and the experts' bias, [E] each; the bias may be empty.
struct RouterInput {
  const RouterConfig& config;
  absl::Span<const float> logits;
  absl::Span<const float> bias = {};
};

// Chooses as the kernels do (route.h, few_tokens.h), to the bit: [K] experts and weights.
void ReferenceRoute(const RouterInput& input, absl::Span<int32_t> topk_idx,
                    absl::Span<float> topk_weights);

}  // namespace octet

#endif  // OCTET_KERNELS_ROUTER_ROUTER_H_
