#include "kernels/router/route_params.h"

#include "octet/router.h"

namespace octet {

int LogitRows(const MoeLayerConfig& config) {
  return config.num_experts + (config.shared_gate ? 1 : 0);
}

int LogitStride(const MoeLayerConfig& config) {
  constexpr int kUnit = 8;  // what a product can have
  return (LogitRows(config) + kUnit - 1) / kUnit * kUnit;
}

RouteParams RouteParamsOf(const MoeLayerConfig& config) {
  RouteParams params = {};
  params.stride = LogitStride(config);
  params.num_experts = config.num_experts;
  params.topk = config.topk;
  params.sigmoid = config.router.scores == RouterScores::kSigmoid;
  params.sparsemixer = config.router.scores == RouterScores::kSparsemixer;
  params.near_limit = 2.0F * config.router.jitter;
  params.groups = config.router.groups;
  params.top_groups = config.router.top_groups;
  params.sum_of_two_best = config.router.group_score == GroupScore::kSumOfTwoBest;
  params.normalize = config.router.normalize;
  params.normalize_epsilon = config.router.normalize_epsilon;
  params.scaling = config.router.scaling;
  return params;
}

}  // namespace octet
