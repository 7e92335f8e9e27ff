// How a Mixture-of-Experts layer chooses the experts of a token from its logits.
#ifndef OCTET_ROUTER_H_
#define OCTET_ROUTER_H_

#include "absl/types/span.h"
#include "octet/enum_names.h"

namespace octet {

// How scores are computed from a token's logits, in float32.
enum class RouterScores {
  kSoftmax,      // over all experts
  kSigmoid,      // of each logit
  kSparsemixer,  // logits choose; each choice has a softmax of its own, over the logits near it
};
absl::Span<const EnumEntry<RouterScores>> EnumTable(RouterScores);  // names: octet/enum_names.h

// The score of a group of experts.
enum class GroupScore {
  kMaximum,       // that of its best expert
  kSumOfTwoBest,  // the sum of its two best experts' scores
};
absl::Span<const EnumEntry<GroupScore>> EnumTable(GroupScore);

// A token's experts are the K with the largest score + bias among those of its best groups, in
// descending order. Its weights are the scores of these experts, without the bias, divided by
// (their sum + normalize_epsilon) with `normalize`, and then multiplied by `scaling`. Equal values
// go to the lower expert or group. NaN is less than every number.
//
// With kSparsemixer the scores for the choice are the logits, and there are neither groups nor
// MoeLayerWeights::router_bias. The weight of a choice with logit m, before `normalize` and
// `scaling`, is 1 / Σ exp(logit - m), over the experts that were not chosen before it but for those
// with (m - logit) / max(|logit|, m) > 2 · jitter.
struct RouterConfig {
  RouterScores scores = RouterScores::kSoftmax;
  // The E experts are `groups` groups of E / groups consecutive ones, of which a token may choose
  // from the best `top_groups`, by score + bias. Must divide E; top_groups · (E / groups) >= K;
  // kSumOfTwoBest needs groups of at least two experts.
  int groups = 1;
  int top_groups = 1;
  GroupScore group_score = GroupScore::kMaximum;
  bool normalize = false;
  float normalize_epsilon = 0.0F;
  float scaling = 1.0F;
  float jitter = 0.0F;  // of kSparsemixer; for others 0

  bool operator==(const RouterConfig&) const = default;
};

}  // namespace octet

#endif  // OCTET_ROUTER_H_
