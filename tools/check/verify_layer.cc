#include "tools/check/verify_layer.h"

#include <algorithm>
#include <cmath>
#include <cstddef>

#include "absl/strings/str_format.h"
#include "kernels/layer/pack_weights.h"
#include "kernels/router/router.h"
#include "runtime/base/size.h"
#include "tools/support/parallel_for.h"

namespace octet {
namespace {

// Tokens whose reference takes seconds, spread over all.
std::vector<size_t> SampledTokens(const MoeLayerConfig& config, size_t tokens) {
  constexpr double kElements = 4e9;  // of weights that are multiplied
  constexpr size_t kFewest = 4;
  const double of_token = 3.0 * config.hidden *
                          (static_cast<double>(config.topk) * config.intermediate +
                           config.shared_intermediate + config.num_experts);
  const size_t most = std::max(static_cast<size_t>(kElements / of_token), kFewest);
  const size_t count = std::min(most, tokens);
  std::vector<size_t> sampled;
  for (size_t i = 0; i < count; ++i) sampled.push_back(i * tokens / count);
  return sampled;
}

// One token's part of the check.
class TokenCheck {
 public:
  TokenCheck(const MoeLayerConfig& config, const LayerOutput& output, size_t token)
      : config_(config), output_(output), token_(token) {}

  void Route(absl::Span<const float> bias);
  void Compare(const LayerReference& reference);
  const LayerCheck& result() const { return result_; }

 private:
  template <typename T>
  absl::Span<const T> Of(const std::vector<T>& values, int per_token) const {
    return absl::MakeConstSpan(values).subspan(token_ * Size(per_token), Size(per_token));
  }
  void Expect(const char* what, size_t index, const Bounded& expected, double got);

  const MoeLayerConfig& config_;
  const LayerOutput& output_;
  const size_t token_;
  LayerCheck result_;
};

void TokenCheck::Route(absl::Span<const float> bias) {
  const absl::Span<const float> logits =
      Of(output_.logits, LogitsOf(config_)).subspan(0, Size(config_.num_experts));
  std::vector<int32_t> experts(Size(config_.topk));
  std::vector<float> weights(Size(config_.topk));
  ReferenceRoute({.config = config_.router, .logits = logits, .bias = bias},
                 absl::MakeSpan(experts), absl::MakeSpan(weights));
  const absl::Span<const int32_t> got = Of(output_.topk_idx, config_.topk);
  const absl::Span<const float> got_weights = Of(output_.topk_weights, config_.topk);
  ++result_.routed;
  for (size_t k = 0; k < experts.size(); ++k) {
    const bool same_weight =
        got_weights[k] == weights[k] || (std::isnan(got_weights[k]) && std::isnan(weights[k]));
    if (got[k] == experts[k] && same_weight) continue;
    result_.wrong_routed = 1;
    result_.first_wrong = absl::StrFormat(
        "choice %d of token %d is expert %d with the weight %.9g; it must be expert %d with %.9g",
        k, token_, got[k], got_weights[k], experts[k], weights[k]);
    return;
  }
}

void TokenCheck::Expect(const char* what, size_t index, const Bounded& expected, double got) {
  ++result_.checked;
  const double off = std::abs(got - expected.value);
  if (std::isfinite(off) && expected.error > 0) {
    result_.worst = std::max(result_.worst, off / expected.error);
  }
  if (expected.Holds(got)) return;
  ++result_.wrong;
  if (!result_.first_wrong.empty()) return;
  result_.first_wrong = absl::StrFormat("%s %d of token %d is %.9g; it must be within %.3g of %.9g",
                                        what, index, token_, got, expected.error, expected.value);
}

void TokenCheck::Compare(const LayerReference& reference) {
  const absl::Span<const uint16_t> x = Of(output_.x, config_.hidden);
  const absl::Span<const float> logits = Of(output_.logits, LogitsOf(config_));
  const std::vector<Bounded> expected_logits = reference.Logits(x);
  for (size_t e = 0; e < logits.size(); ++e) Expect("logit", e, expected_logits[e], logits[e]);
  const std::vector<Bounded> expected =
      reference.Output({.x = x,
                        .experts = Of(output_.topk_idx, config_.topk),
                        .weights = Of(output_.topk_weights, config_.topk),
                        .shared_gate = config_.shared_gate ? logits.back() : 0.0F});
  const absl::Span<const uint16_t> y = Of(output_.y, config_.hidden);
  for (size_t h = 0; h < y.size(); ++h) {
    Expect("element", h, expected[h], FloatFromBits(config_.dtype, y[h]));
  }
}

void Add(const LayerCheck& one, LayerCheck& all) {
  all.routed += one.routed;
  all.wrong_routed += one.wrong_routed;
  all.checked += one.checked;
  all.wrong += one.wrong;
  all.worst = std::max(all.worst, one.worst);
  if (all.first_wrong.empty()) all.first_wrong = one.first_wrong;
}

}  // namespace

LayerCheck VerifyLayer(const MoeLayerConfig& config, const MoeLayerWeights& weights,
                       const LayerOutput& output, const LayerRoundings& roundings) {
  const size_t tokens = output.x.size() / Size(config.hidden);
  std::vector<float> bias(Size(config.num_experts), 0.0F);
  for (int e = 0; e < config.num_experts && !weights.router_bias.empty(); ++e) {
    bias[Size(e)] = ElementOf(weights.router_bias, 0, e);
  }
  std::vector<TokenCheck> checks;
  for (size_t token = 0; token < tokens; ++token) checks.emplace_back(config, output, token);
  ParallelFor(tokens, [&](size_t token) { checks[token].Route(bias); });
  LayerCheck result;
  for (const TokenCheck& check : checks) Add(check.result(), result);
  // What follows takes the experts that were chosen to be experts.
  if (result.wrong_routed > 0) return result;
  const LayerReference reference(config, weights, roundings);
  const std::vector<size_t> sampled = SampledTokens(config, tokens);
  std::vector<TokenCheck> compared;
  for (const size_t token : sampled) compared.emplace_back(config, output, token);
  ParallelFor(compared.size(), [&](size_t i) { compared[i].Compare(reference); });
  for (const TokenCheck& check : compared) Add(check.result(), result);
  return result;
}

}  // namespace octet
