// The router's reference with RouterScores::kSparsemixer, against float64 and by hand.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/router/router.h"
#include "tests/support/node/node_fixture.h"

namespace octet {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsNan;

constexpr double kInfinite = std::numeric_limits<double>::infinity();
constexpr float kNoNumber = std::numeric_limits<float>::quiet_NaN();

struct Shares {
  std::vector<int32_t> experts;
  std::vector<float> weights;
};

Shares SharesOf(const RouterConfig& config, int topk, const std::vector<float>& logits) {
  Shares shares;
  shares.experts.resize(static_cast<size_t>(topk));
  shares.weights.resize(static_cast<size_t>(topk));
  ReferenceRoute({.config = config, .logits = logits}, absl::MakeSpan(shares.experts),
                 absl::MakeSpan(shares.weights));
  return shares;
}

Shares SharesOf(float jitter, int topk, const std::vector<float>& logits) {
  return SharesOf({.scores = RouterScores::kSparsemixer, .jitter = jitter}, topk, logits);
}

// Compares with what `transformers` computes, in float64: of each choice a softmax over the logits
// but for those chosen before, which are minus infinity, and those far below the largest.
void ExpectSharesOf(float jitter, int topk, const std::vector<float>& logits) {
  const Shares got = SharesOf(jitter, topk, logits);
  std::vector<double> left(logits.begin(), logits.end());
  for (size_t k = 0; k < static_cast<size_t>(topk); ++k) {
    const auto largest = std::max_element(left.begin(), left.end());
    double sum = 0;
    for (size_t e = 0; e < left.size(); ++e) {
      const double factor = std::max(std::abs(double{logits[e]}), *largest);
      const bool is_far = (*largest - double{logits[e]}) / factor > 2 * double{jitter};
      sum += is_far ? 0 : std::exp(left[e] - *largest);
    }
    ASSERT_EQ(got.experts[k], largest - left.begin()) << "choice " << k;
    ASSERT_NEAR(got.weights[k] * sum, 1, 2e-6) << "choice " << k;
    *largest = -kInfinite;
  }
}

TEST(SparsemixerTest, IsNearFloat64) {
  constexpr int kTokens = 400;
  std::mt19937 random(21);
  std::normal_distribution<float> normal;
  for (int token = 0; token < kTokens; ++token) {
    SCOPED_TRACE(absl::StrCat("seed 21, token ", token));
    std::vector<float> logits(2 + random() % 40);
    const float middle = 3 * normal(random);  // all may have one sign
    for (float& logit : logits) logit = middle + normal(random);
    const float jitter = 0.03F * static_cast<float>(random() % 30);
    ExpectSharesOf(jitter, 1 + static_cast<int>(random() % logits.size()), logits);
    if (HasFatalFailure()) return;
  }
}

TEST(SparsemixerTest, EachChoiceHasASoftmaxOfItsOwn) {
  const Shares shares = SharesOf(0.01F, 2, {1.0F, -3.0F, 10.0F, 0.99F});
  EXPECT_THAT(shares.experts, ElementsAre(2, 0));
  EXPECT_EQ(shares.weights[0], 1.0F);
  EXPECT_NEAR(shares.weights[1], 1 / (1 + std::exp(-0.01)), 1e-6);
}

TEST(SparsemixerTest, EqualLogitsShare) {
  for (const float logit : {2.0F, 0.0F, -0.0F, -7.0F}) {
    const Shares shares = SharesOf(0.0F, 3, std::vector<float>(5, logit));
    EXPECT_THAT(shares.experts, ElementsAre(0, 1, 2)) << logit;
    EXPECT_THAT(shares.weights, ElementsAre(1.0F / 5, 1.0F / 4, 1.0F / 3)) << logit;
  }
  const Shares two = SharesOf(0.01F, 2, {1, 3, 3, 1});
  EXPECT_THAT(two.experts, ElementsAre(1, 2));
  EXPECT_THAT(two.weights, ElementsAre(0.5F, 1.0F));
}

// The distance is relative to the larger of |logit| and the chosen logit.
TEST(SparsemixerTest, DistancesOfNegativeLogits) {
  const Shares negative = SharesOf(0.2F, 2, {-4.0F, -1.5F, -1.0F});
  EXPECT_THAT(negative.experts, ElementsAre(2, 1));
  EXPECT_NEAR(negative.weights[0], 1 / (1 + std::exp(-0.5)), 1e-6);  // 0.5 / 1.5 <= 0.4
  EXPECT_EQ(negative.weights[1], 1.0F);                              // 2.5 / 4 > 0.4
  const Shares both = SharesOf(0.7F, 1, {2.0F, -8.0F, -1.0F});
  EXPECT_NEAR(both.weights[0], 1 / (1 + std::exp(-10.0)), 1e-6);  // 10 / 8 <= 1.4, 3 / 2 > 1.4
}

TEST(SparsemixerTest, TheLimitItselfIsNear) {
  const float nearest = 0.75F;
  EXPECT_NEAR(SharesOf(0.125F, 1, {1, nearest}).weights[0], 1 / (1 + std::exp(-0.25)), 1e-6);
  EXPECT_EQ(SharesOf(0.125F, 1, {1, std::nextafter(nearest, 0.0F)}).weights[0], 1.0F);
}

TEST(SparsemixerTest, NumbersThatAreNone) {
  const auto infinite = static_cast<float>(kInfinite);
  const Shares nan = SharesOf(0.01F, 3, {kNoNumber, 1, 2});
  EXPECT_THAT(nan.experts, ElementsAre(2, 1, 0));
  EXPECT_THAT(nan.weights, ElementsAre(IsNan(), IsNan(), IsNan()));
  const Shares above = SharesOf(0.01F, 3, {1, infinite, 2});
  EXPECT_THAT(above.experts, ElementsAre(1, 2, 0));
  EXPECT_THAT(above.weights, ElementsAre(IsNan(), 1.0F, 1.0F));
  const Shares below = SharesOf(0.01F, 2, {-infinite, 0.5F, -infinite});
  EXPECT_THAT(below.experts, ElementsAre(1, 0));
  EXPECT_THAT(below.weights, ElementsAre(1.0F, IsNan()));
}

TEST(SparsemixerTest, WeightsAreNormalisedAndScaledIfAsked) {
  const RouterConfig config = {
      .scores = RouterScores::kSparsemixer, .normalize = true, .scaling = 3, .jitter = 0.01F};
  EXPECT_THAT(SharesOf(config, 2, {3, 3, 0}).weights, ElementsAre(1.0F, 2.0F));
}

TEST(SparsemixerTest, NamesWhatIsWrong) {
  const auto refused = [](const RouterConfig& config) {
    return std::string(Validate(config, 12, 4).message());
  };
  constexpr RouterScores kMixed = RouterScores::kSparsemixer;
  EXPECT_OK(Validate({.scores = kMixed, .jitter = 0.01F}, 12, 4));
  EXPECT_OK(Validate({.scores = kMixed}, 12, 4));
  EXPECT_THAT(refused({.scores = kMixed, .groups = 3, .top_groups = 1}),
              HasSubstr("groups is 3; with scores sparsemixer it must be 1"));
  for (const float jitter : {-0.01F, kNoNumber, static_cast<float>(kInfinite)}) {
    EXPECT_THAT(
        refused({.scores = kMixed, .jitter = jitter}),
        HasSubstr(absl::StrCat("jitter is ", jitter, "; it must be at least 0, and finite")));
  }
  EXPECT_THAT(refused({.jitter = 0.01F}),
              HasSubstr("jitter is 0.01; with scores softmax it must be 0"));
}

}  // namespace
}  // namespace octet
