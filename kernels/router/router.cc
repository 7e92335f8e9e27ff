#include "kernels/router/router.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <limits>
#include <numeric>
#include <string>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "kernels/router/router_math.h"

namespace octet {
namespace {

absl::Status Refuse(absl::string_view member, const absl::AlphaNum& value, absl::string_view must) {
  return absl::InvalidArgumentError(
      absl::StrCat("RouterConfig::", member, " is ", value, "; ", must));
}

// Returns the places of the values in descending order: NaN last, of equal ones the lower place
// first.
std::vector<size_t> Descending(absl::Span<const float> values) {
  std::vector<size_t> places(values.size());
  std::iota(places.begin(), places.end(), size_t{0});
  std::sort(places.begin(), places.end(), [&](size_t a, size_t b) {
    const bool a_is_nan = std::isnan(values[a]);
    const bool b_is_nan = std::isnan(values[b]);
    if (a_is_nan != b_is_nan) return b_is_nan;
    if (a_is_nan || values[a] == values[b]) return a < b;
    return values[a] > values[b];
  });
  return places;
}

using PartialSums = std::array<float, kSoftmaxPartials>;

float AddUp(PartialSums sums) {
  for (size_t half = sums.size() / 2; half > 0; half /= 2) {
    for (size_t i = 0; i < half; ++i) sums[i] += sums[i + half];
  }
  return sums[0];
}

std::vector<float> Softmax(absl::Span<const float> logits) {
  float largest = -std::numeric_limits<float>::infinity();
  for (const float logit : logits) {
    if (logit > largest) largest = logit;
  }
  std::vector<float> scores;
  PartialSums sums = {};
  for (const float logit : logits) {
    float& sum = sums[scores.size() % sums.size()];
    scores.push_back(ExpOfNegative(logit - largest));
    sum += scores.back();
  }
  const float sum = AddUp(sums);
  for (float& score : scores) score /= sum;
  return scores;
}

std::vector<float> ScoresOf(RouterScores how, absl::Span<const float> logits) {
  if (how == RouterScores::kSoftmax) return Softmax(logits);
  std::vector<float> scores(logits.begin(), logits.end());
  if (how == RouterScores::kSigmoid) {
    std::transform(scores.begin(), scores.end(), scores.begin(), Sigmoid);
  }
  return scores;
}

// Returns the weights of the choices of kSparsemixer.
std::vector<float> SparsemixerWeights(absl::Span<const float> logits,
                                      absl::Span<const int32_t> choices, float jitter) {
  std::vector<bool> left(logits.size(), true);
  std::vector<float> weights;
  for (const int32_t choice : choices) {
    const float chosen = logits[static_cast<size_t>(choice)];
    PartialSums sums = {};
    for (size_t e = 0; e < logits.size(); ++e) {
      if (!left[e] || !IsNear(logits[e], chosen, 2.0F * jitter)) continue;
      sums[e % sums.size()] += ExpOfNegative(logits[e] - chosen);
    }
    weights.push_back(1.0F / AddUp(sums));
    left[static_cast<size_t>(choice)] = false;
  }
  return weights;
}

// Returns the score of a group with these values of its experts.
float ScoreOf(GroupScore how, absl::Span<const float> values) {
  const std::vector<size_t> places = Descending(values);
  const float best = values[places[0]];
  return how == GroupScore::kMaximum ? best : best + values[places[1]];
}

// Returns which experts belong to the best groups.
std::vector<bool> InBestGroups(const RouterConfig& config, absl::Span<const float> values) {
  const auto groups = static_cast<size_t>(config.groups);
  const size_t of_group = values.size() / groups;
  std::vector<float> scores;
  for (size_t group = 0; group < groups; ++group) {
    scores.push_back(ScoreOf(config.group_score, values.subspan(group * of_group, of_group)));
  }
  std::vector<size_t> best = Descending(scores);
  best.resize(static_cast<size_t>(config.top_groups));
  std::vector<bool> in(values.size(), false);
  for (const size_t group : best) {
    std::fill_n(in.begin() + static_cast<ptrdiff_t>(group * of_group), of_group, true);
  }
  return in;
}

absl::Status CheckSparsemixer(const RouterConfig& config) {
  if (config.scores != RouterScores::kSparsemixer) {
    if (config.jitter == 0.0F) return absl::OkStatus();
    return Refuse("jitter", config.jitter,
                  absl::StrCat("with scores ", EnumName(config.scores), " it must be 0"));
  }
  if (config.groups != 1) {
    return Refuse("groups", config.groups, "with scores sparsemixer it must be 1");
  }
  if (!(config.jitter >= 0) || !std::isfinite(config.jitter)) {
    return Refuse("jitter", config.jitter, "it must be at least 0, and finite");
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status Validate(const RouterConfig& config, int num_experts, int topk) {
  if (config.groups < 1 || config.groups > num_experts || num_experts % config.groups != 0) {
    return Refuse("groups", config.groups,
                  absl::StrCat("it must divide the ", num_experts, " experts"));
  }
  const int of_group = num_experts / config.groups;
  if (config.top_groups < 1 || config.top_groups > config.groups) {
    return Refuse("top_groups", config.top_groups,
                  absl::StrCat("it must be 1 to the ", config.groups, " groups"));
  }
  if (int64_t{config.top_groups} * of_group < topk) {
    return Refuse("top_groups", config.top_groups,
                  absl::StrCat("so many groups have ", config.top_groups * of_group,
                               " experts, of which ", topk, " cannot be chosen"));
  }
  if (config.group_score == GroupScore::kSumOfTwoBest && config.groups > 1 && of_group < 2) {
    return Refuse("group_score", EnumName(config.group_score),
                  "that needs at least two experts in a group");
  }
  if (!(config.normalize_epsilon >= 0)) {
    return Refuse("normalize_epsilon", config.normalize_epsilon, "it must be at least 0");
  }
  if (!std::isfinite(config.scaling)) {
    return Refuse("scaling", config.scaling, "it must be finite");
  }
  return CheckSparsemixer(config);
}

void ReferenceRoute(const RouterInput& input, absl::Span<int32_t> topk_idx,
                    absl::Span<float> topk_weights) {
  const RouterConfig& config = input.config;
  const std::vector<float> scores = ScoresOf(config.scores, input.logits);
  std::vector<float> values = scores;
  for (size_t e = 0; e < input.bias.size(); ++e) values[e] += input.bias[e];
  std::vector<bool> allowed(values.size(), true);
  if (config.top_groups < config.groups) allowed = InBestGroups(config, values);
  size_t k = 0;
  for (const size_t expert : Descending(values)) {
    if (k == topk_idx.size()) break;
    if (!allowed[expert]) continue;
    topk_idx[k] = static_cast<int32_t>(expert);
    topk_weights[k] = scores[expert];
    ++k;
  }
  if (config.scores == RouterScores::kSparsemixer) {
    absl::c_copy(SparsemixerWeights(input.logits, topk_idx, config.jitter), topk_weights.begin());
  }
  const float sum = std::accumulate(topk_weights.begin(), topk_weights.end(), 0.0F);
  for (float& weight : topk_weights) {
    if (config.normalize) weight /= sum + config.normalize_epsilon;
    weight *= config.scaling;
  }
}

absl::Span<const EnumEntry<RouterScores>> EnumTable(RouterScores /*unused*/) {
  static constexpr EnumEntry<RouterScores> kTable[] = {{RouterScores::kSoftmax, "softmax"},
                                                       {RouterScores::kSigmoid, "sigmoid"},
                                                       {RouterScores::kSparsemixer, "sparsemixer"}};
  return kTable;
}

absl::Span<const EnumEntry<GroupScore>> EnumTable(GroupScore /*unused*/) {
  static constexpr EnumEntry<GroupScore> kTable[] = {
      {GroupScore::kMaximum, "maximum"}, {GroupScore::kSumOfTwoBest, "sum_of_two_best"}};
  return kTable;
}

}  // namespace octet
