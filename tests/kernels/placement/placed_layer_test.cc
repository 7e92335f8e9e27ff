// Layers with placements on both paths: against the reference, and their promises about bits.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "octet/moe_layer.h"
#include "octet/placement.h"
#include "tests/kernels/layer/moe_layer_fixture.h"
#include "tests/kernels/placement/random_placement.h"
#include "tools/step/layer_calls.h"

namespace octet {
namespace {

using ::testing::HasSubstr;

// So many emulated GPUs may wait long for busy cores.
constexpr absl::Duration kManyRanksTimeout = absl::Minutes(1);

class PlacedLayerTest : public MoeLayerTest, public testing::WithParamInterface<LayerPath> {
 protected:
  static MoeLayerConfig PlacedConfig(int num_experts, int max_tokens) {
    MoeLayerConfig config = Config();
    config.num_experts = num_experts;
    config.max_tokens_per_rank = max_tokens;
    config.path = GetParam();
    config.max_blocks = 4;
    return config;
  }
  // Routes tokens by popularity: expert 0 is chosen most.
  void MakeZipfLayer(int num_ranks, MoeLayerConfig config) {
    config.router.scores = RouterScores::kSigmoid;
    MakeLayer(num_ranks, config, kManyRanksTimeout);
    if (IsSkipped() || HasFatalFailure()) return;
    bias_.resize(static_cast<size_t>(config.num_experts));
    for (size_t e = 0; e < bias_.size(); ++e) {
      bias_[e] = static_cast<float>(std::pow(static_cast<double>(e) + 1, -1.2));
    }
    zipf_ = weights_->weights();
    zipf_.router_bias = {.type = TensorType::kFloat32,
                         .rows = 1,
                         .columns = config.num_experts,
                         .data = reinterpret_cast<const std::byte*>(bias_.data())};
    ASSERT_OK(layer_->Load(zipf_));
  }
  static std::vector<double> ZipfLoads(int num_experts) {
    std::vector<double> loads;
    for (int e = 0; e < num_experts; ++e) loads.push_back(std::pow(e + 1, -1.2));
    return loads;
  }
  // The layer of MakeZipfLayer computes these tokens correctly.
  void CheckZipf(const std::vector<int>& counts) {
    const absl::StatusOr<LayerOutput> output =
        Call(*node_, *layer_, Tokens(counts, layer_->config(), kSeed));
    ASSERT_OK(output.status());
    const LayerCheck check = VerifyLayer(layer_->config(), zipf_, *output);
    EXPECT_TRUE(check.ok()) << check.first_wrong;
  }
  // Returns y of the tokens in a layer with the placement.
  std::vector<uint16_t> OutputWith(const Placement& placement, MoeLayerConfig config,
                                   const LayerTokens& tokens) {
    config.placement = placement;
    MakeLayer(static_cast<int>(tokens.rows.size()), config);
    if (IsSkipped() || HasFatalFailure()) return {};
    const absl::StatusOr<LayerOutput> output = Call(*node_, *layer_, tokens);
    EXPECT_OK(output.status());
    if (!output.ok()) return {};
    ExpectCorrect(*output);
    layer_.reset();
    return output->y;
  }

  std::mt19937_64 rng_{20261127};
  std::vector<float> bias_;
  MoeLayerWeights zipf_;
};

TEST_P(PlacedLayerTest, SixtyExpertsOnEightRanks) {
  MoeLayerConfig config = PlacedConfig(60, 8);
  config.topk = 4;
  config.shared_intermediate = 48;
  config.placement = *PlanPlacement(ZipfLoads(60), 8, 9);
  ASSERT_GT(config.placement.ReplicasOf(0).size(), 1U);
  MakeZipfLayer(8, config);
  if (IsSkipped() || HasFatalFailure()) return;
  CheckZipf({8, 5, 0, 8, 7, 1, 8, 3});
}

TEST_P(PlacedLayerTest, SixteenRanks) {
  MoeLayerConfig config = PlacedConfig(25, 4);
  config.placement = RandomPlacement(rng_, 25, 16, 3, 0.8);
  MakeZipfLayer(16, config);
  if (IsSkipped() || HasFatalFailure()) return;
  CheckZipf({4, 4, 3, 4, 0, 4, 4, 1, 4, 4, 2, 4, 4, 4, 0, 4});
}

TEST_P(PlacedLayerTest, AnyTable) {
  for (const bool fp8 : {false, true}) {
    for (const int max_tokens : {3, 16}) {
      MoeLayerConfig config = PlacedConfig(7, max_tokens);
      config.weights = fp8 ? GemmFormat::kFp8 : GemmFormat::kSame;
      config.placement = RandomPlacement(rng_, 7, 3, 5, 0.7);
      SCOPED_TRACE(absl::StrCat("M ", max_tokens, fp8 ? ", FP8" : ""));
      RunAndCheck({max_tokens, 1, max_tokens - 1}, config);
      if (IsSkipped() || HasFailure()) return;
    }
  }
}

TEST_P(PlacedLayerTest, EveryExpertEverywhereOrOnOneRank) {
  MoeLayerConfig config = PlacedConfig(5, 6);
  config.placement = *Placement::Create(5, 2, {0, 1, 2, 3, 4, 0, 1, 2, 3, 4});
  RunAndCheck({6, 3}, config);
  config.placement = *Placement::Create(5, 2, {0, 1, 2, 3, 4, -1, -1, -1, -1, -1});
  RunAndCheck({6, 3}, config);
  config.placement = *Placement::Create(5, 1, {4, -1, 3, 2, 1, 0});
  RunAndCheck({6}, config);
}

// Slots in the order of experts are those that a layer has without a placement.
TEST_P(PlacedLayerTest, InOrderGivesTheBitsOfNoPlacement) {
  const MoeLayerConfig config = PlacedConfig(12, 9);
  const LayerTokens tokens = Tokens({9, 4, 7}, config, kSeed);
  const std::vector<uint16_t> without = OutputWith({}, config, tokens);
  if (IsSkipped()) return;
  EXPECT_EQ(OutputWith(*Placement::InOrder(12, 3), config, tokens), without);
}

// Tokens change between replays, and with them the replicas that they go to.
TEST_P(PlacedLayerTest, GraphsFollowTheRouting) {
  MoeLayerConfig config = PlacedConfig(10, 8);
  config.placement = RandomPlacement(rng_, 10, 3, 6, 1.0);
  MakeLayer(3, config);
  if (IsSkipped() || HasFatalFailure()) return;
  for (const uint64_t seed : {1, 2}) {
    const LayerTokens tokens = Tokens({8, 2, 5}, config, seed);
    const absl::StatusOr<LayerOutput> called = Call(*node_, *layer_, tokens);
    ASSERT_OK(called.status());
    LayerCalls calls(*node_, *layer_, tokens);
    ASSERT_OK(calls.Init());
    ASSERT_OK(node_->Run([&](Rank& rank) { return calls.Capture(rank); }));
    for (int replay = 0; replay < 2; ++replay) {
      ASSERT_OK(node_->Run([&](Rank& rank) { return calls.Launch(rank); }));
      const absl::StatusOr<LayerOutput> replayed = calls.Read();
      ASSERT_OK(replayed.status());
      EXPECT_EQ(replayed->y, called->y);
    }
    ExpectCorrect(*called);
  }
}

TEST_P(PlacedLayerTest, LayersThatShareMemoryHavePlacementsOfTheirOwn) {
  MoeLayerConfig config = PlacedConfig(7, 6);
  config.placement = RandomPlacement(rng_, 7, 3, 4, 1.0);
  const LayerTokens tokens = Tokens({6, 2, 5}, config, kSeed);
  MoeLayerConfig other = config;
  other.placement = RandomPlacement(rng_, 7, 3, 4, 1.0);
  ASSERT_NE(other.placement, config.placement);
  const std::vector<uint16_t> want = OutputWith(other.placement, config, tokens);
  MakeLayer(3, config);
  if (IsSkipped() || HasFatalFailure()) return;
  const auto second = MoeLayer::Create(*node_, other, {.share = layer_.get()});
  ASSERT_OK(second.status());
  ASSERT_OK((*second)->Load(weights_->weights()));
  EXPECT_EQ((*second)->config().placement, other.placement);
  const absl::StatusOr<LayerOutput> output = Call(*node_, **second, tokens);
  ASSERT_OK(output.status());
  EXPECT_EQ(output->y, want);
  other.placement = RandomPlacement(rng_, 7, 3, 5, 1.0);
  EXPECT_THAT(MoeLayer::Create(*node_, other, {.share = layer_.get()}).status(),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("as many slots")));
}

TEST_P(PlacedLayerTest, PlacementsThatDoNotFitAreRefused) {
  MoeLayerConfig config = PlacedConfig(7, 6);
  config.placement = *Placement::InOrder(7, 3);
  EXPECT_OK(Validate(config, 3));
  EXPECT_THAT(
      Validate(config, 2),
      StatusIs(absl::StatusCode::kInvalidArgument,
               HasSubstr("placement is of 7 experts on 3 ranks; there are 7 experts and 2")));
  config.placement = Placement();
  EXPECT_THAT(Validate(config, 3), StatusIs(absl::StatusCode::kInvalidArgument,
                                            HasSubstr("must be divisible by the 3 ranks")));
  config = PlacedConfig(500, 6);
  config.placement = *PlanPlacement(std::vector<double>(500, 1.0), 2, 257);
  EXPECT_THAT(Validate(config, 2),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("257 slots on each rank")));
}

INSTANTIATE_TEST_SUITE_P(, PlacedLayerTest,
                         testing::Values(LayerPath::kLaunches, LayerPath::kDecode),
                         [](const auto& info) { return std::string(EnumName(info.param)); });

class PlacedDecodeTest : public MoeLayerTest {};

// A token's y does not depend on its place if each expert has one replica.
TEST_F(PlacedDecodeTest, WithoutReplicasATokenMayBeAnywhere) {
  MoeLayerConfig config = Config();
  config.path = LayerPath::kDecode;
  config.num_experts = 7;
  std::mt19937_64 rng(5);
  config.placement = RandomPlacement(rng, 7, 3, 4, 0.0);
  MakeLayer(3, config);
  if (IsSkipped() || HasFatalFailure()) return;
  LayerTokens tokens = Tokens({4, 4, 4}, config, kSeed);
  const absl::StatusOr<LayerOutput> before = Call(*node_, *layer_, tokens);
  ASSERT_OK(before.status());
  std::rotate(tokens.rows.begin(), tokens.rows.begin() + 1, tokens.rows.end());
  const absl::StatusOr<LayerOutput> after = Call(*node_, *layer_, tokens);
  ASSERT_OK(after.status());
  std::vector<uint16_t> expected = before->y;
  std::rotate(expected.begin(), expected.begin() + ptrdiff_t{4} * config.hidden, expected.end());
  EXPECT_EQ(after->y, expected);
}

// With replicas it does not depend on the other tokens, and not on the number of blocks.
TEST_F(PlacedDecodeTest, OtherTokensDoNotMatter) {
  MoeLayerConfig config = Config();
  config.path = LayerPath::kDecode;
  config.num_experts = 7;
  std::mt19937_64 rng(6);
  config.placement = RandomPlacement(rng, 7, 3, 5, 1.0);
  MakeLayer(3, config);
  if (IsSkipped() || HasFatalFailure()) return;
  const LayerTokens tokens = Tokens({9, 9, 9}, config, kSeed);
  const absl::StatusOr<LayerOutput> all = Call(*node_, *layer_, tokens);
  ASSERT_OK(all.status());
  ExpectCorrect(*all);
  config.max_blocks = 2;
  MakeLayer(3, config);
  if (HasFatalFailure()) return;
  LayerTokens some = tokens;
  const auto hidden = static_cast<size_t>(config.hidden);
  some.rows[0].clear();
  some.rows[1].resize(3 * hidden);
  some.rows[2].resize(hidden);
  const absl::StatusOr<LayerOutput> few = Call(*node_, *layer_, some);
  ASSERT_OK(few.status());
  const auto from = all->y.begin();
  const auto at = [&](size_t token) { return from + static_cast<ptrdiff_t>(token * hidden); };
  std::vector<uint16_t> expected(at(9), at(12));
  expected.insert(expected.end(), at(18), at(19));
  EXPECT_EQ(few->y, expected);
}

}  // namespace
}  // namespace octet
