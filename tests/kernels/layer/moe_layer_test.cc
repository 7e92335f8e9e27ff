// A whole layer against its reference, over families, types, shapes and ways to run it.
#include "octet/moe_layer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <hip/hip_runtime.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "kernels/ep/nodes_of_ranks.h"
#include "kernels/layer/layer_config.h"
#include "octet/dtype.h"
#include "octet/node.h"
#include "runtime/base/status_macros.h"
#include "runtime/gpu/gpu_status.h"
#include "runtime/memory/device_memory.h"
#include "tests/kernels/layer/moe_layer_fixture.h"
#include "tests/support/node/node_fixture.h"
#include "tools/check/verify_layer.h"
#include "tools/step/layer_calls.h"
#include "tools/workload/layer_tokens.h"
#include "tools/workload/random_weights.h"

namespace octet {
namespace {

using ::testing::HasSubstr;

// However a layer is computed.
class MoeLayerPathTest : public MoeLayerTest, public testing::WithParamInterface<LayerPath> {
 protected:
  static MoeLayerConfig PathConfig() {
    MoeLayerConfig config = Config();
    config.path = GetParam();
    return config;
  }
};

INSTANTIATE_TEST_SUITE_P(, MoeLayerPathTest,
                         testing::Values(LayerPath::kLaunches, LayerPath::kDecode),
                         [](const auto& info) { return std::string(EnumName(info.param)); });

TEST_P(MoeLayerPathTest, Plain) { RunAndCheck({9, 5}, PathConfig()); }

TEST_P(MoeLayerPathTest, OneRank) { RunAndCheck({9}, PathConfig()); }

TEST_P(MoeLayerPathTest, Fp16) {
  MoeLayerConfig config = PathConfig();
  config.dtype = DType::kFloat16;
  config.shared_intermediate = 40;
  RunAndCheck({9, 5}, config);
}

TEST_P(MoeLayerPathTest, SharedExpertsWithGate) {
  MoeLayerConfig config = PathConfig();
  config.shared_intermediate = 56;
  config.shared_gate = true;
  config.router.normalize = false;
  RunAndCheck({4, 9}, config);
}

TEST_P(MoeLayerPathTest, GroupsBiasAndScaling) {
  MoeLayerConfig config = PathConfig();
  config.router = DeepseekRouter();
  config.shared_intermediate = 48;
  RunAndCheck({9, 5}, config);
}

TEST_P(MoeLayerPathTest, Fp8Weights) {
  MoeLayerConfig config = PathConfig();
  config.weights = GemmFormat::kFp8;
  config.hidden = 144;
  config.intermediate = 160;
  config.shared_intermediate = 48;
  RunAndCheck({9, 5}, config);
}

TEST_P(MoeLayerPathTest, RanksWithoutTokens) {
  MoeLayerConfig config = PathConfig();
  config.shared_intermediate = 48;
  RunAndCheck({0, 9, 0}, config);
  RunAndCheck({0, 0, 0}, config);
}

TEST_F(MoeLayerTest, RandomShapes) {
  std::mt19937 random(kSeed);
  const auto below = [&](int n) { return static_cast<int>(random() % static_cast<uint32_t>(n)); };
  for (int i = 0; i < 12; ++i) {
    MoeLayerConfig config;
    const int ranks = 1 + below(4);
    config.num_experts = ranks * 2 * (1 + below(4));
    config.topk = 1 + below(std::min(config.num_experts, 6));
    const bool fp8 = below(3) == 0;
    config.weights = fp8 ? GemmFormat::kFp8 : GemmFormat::kSame;
    config.dtype = !fp8 && below(2) == 0 ? DType::kFloat16 : DType::kBFloat16;
    config.hidden = 16 * (1 + below(18));
    config.intermediate = 16 * (1 + below(14));
    if (below(2) == 0) config.shared_intermediate = 8 * (1 + below(10));
    config.shared_gate = config.shared_intermediate > 0 && below(2) == 0;
    if (below(2) == 0) config.shared_experts = SharedExperts::kBeside;
    config.link_blocks = 2 * below(2);
    config.router.scores = below(2) == 0 ? RouterScores::kSigmoid : RouterScores::kSoftmax;
    config.router.normalize = below(2) == 0;
    config.router.scaling = 1.0F + static_cast<float>(below(3));
    config.max_tokens_per_rank = 1 + below(40);  // with the router of few tokens, and of more
    std::vector<int> counts;
    for (int rank = 0; rank < ranks; ++rank) {
      counts.push_back(below(config.max_tokens_per_rank + 1));
    }
    RunAndCheck(counts, config);
    if (HasFailure()) return;
  }
}

// Whatever carries the rows, and however kernels are put together and beside each other, the order
// of sums is that of high_throughput and low_latency.
TEST_F(MoeLayerTest, EveryWayGivesTheSameBits) {
  MoeLayerConfig config = Config();
  config.shared_intermediate = 48;
  const std::vector<int> counts = {9, 0, 7};
  std::vector<uint16_t> expected;
  struct Setup {
    Strategy strategy;
    Fusion fusion;
    SharedExperts shared = SharedExperts::kAuto;
    int link_blocks = 0;
  };
  for (const Setup& way :
       {Setup{Strategy::kHighThroughput, Fusion::kNone},
        Setup{Strategy::kLowLatency, Fusion::kNone}, Setup{Strategy::kAuto, Fusion::kAuto},
        Setup{Strategy::kHighThroughput, Fusion::kTiles}, Setup{Strategy::kAuto, Fusion::kTiles},
        Setup{Strategy::kAuto, Fusion::kSerial},
        Setup{Strategy::kHighThroughput, Fusion::kNone, SharedExperts::kBeside, 1},
        Setup{Strategy::kHighThroughput, Fusion::kTiles, SharedExperts::kBeside},
        Setup{Strategy::kHighThroughput, Fusion::kSerial, SharedExperts::kBeside},
        Setup{Strategy::kLowLatency, Fusion::kNone, SharedExperts::kAfter},
        Setup{Strategy::kLowLatency, Fusion::kNone, SharedExperts::kBeside, 2}}) {
    config.strategy = way.strategy;
    config.fusion = way.fusion;
    config.shared_experts = way.shared;
    config.link_blocks = way.link_blocks;
    SCOPED_TRACE(TextOf(config));
    MakeLayer(3, config);
    if (IsSkipped() || HasFatalFailure()) return;
    const absl::StatusOr<LayerOutput> output = Call(*node_, *layer_, Tokens(counts, config, kSeed));
    ASSERT_OK(output.status());
    ExpectCorrect(*output);
    if (expected.empty()) expected = output->y;
    EXPECT_EQ(output->y, expected);
    layer_.reset();
  }
}

// The strategies' FP8 formats differ in who quantizes x, not in what comes of it.
TEST_F(MoeLayerTest, Fp8WeightsWithEveryStrategy) {
  MoeLayerConfig config = Config();
  config.weights = GemmFormat::kFp8;
  config.hidden = 272;
  config.intermediate = 160;
  const std::vector<int> counts = {9, 0, 7};
  std::vector<uint16_t> expected;
  for (const Strategy strategy :
       {Strategy::kHighThroughput, Strategy::kLowLatency, Strategy::kAuto}) {
    config.strategy = strategy;
    SCOPED_TRACE(TextOf(config));
    MakeLayer(3, config);
    if (IsSkipped() || HasFatalFailure()) return;
    if (strategy == Strategy::kAuto) {
      MoeLayerConfig plain = config;
      plain.weights = GemmFormat::kSame;
      const absl::StatusOr<std::unique_ptr<MoeLayer>> other = MoeLayer::Create(*node_, plain);
      ASSERT_OK(other.status());
      EXPECT_EQ(layer_->config().strategy, (*other)->config().strategy);
    }
    const absl::StatusOr<LayerOutput> output = Call(*node_, *layer_, Tokens(counts, config, kSeed));
    ASSERT_OK(output.status());
    ExpectCorrect(*output);
    if (expected.empty()) expected = output->y;
    EXPECT_EQ(output->y, expected);
    layer_.reset();
  }
}

TEST_F(MoeLayerTest, Direct) {
  MoeLayerConfig config = Config();
  config.strategy = Strategy::kDirect;
  RunAndCheck({9, 5}, config);
}

class MoeLayerGraphTest : public MoeLayerTest, public testing::WithParamInterface<SharedExperts> {};

TEST_P(MoeLayerGraphTest, Replays) {
  MoeLayerConfig config = Config();
  config.shared_intermediate = 48;
  config.shared_gate = true;
  config.shared_experts = GetParam();
  MakeLayer(2, config);
  if (IsSkipped() || HasFatalFailure()) return;
  const LayerTokens tokens = Tokens({9, 4}, config, kSeed);
  LayerCalls calls(*node_, *layer_, tokens);
  ASSERT_OK(calls.Init());
  ASSERT_OK(node_->Run([&](Rank& rank) { return calls.Capture(rank); }));
  ASSERT_OK(node_->Run([&](Rank& rank) -> absl::Status {
    for (int i = 0; i < 3; ++i) {
      if (const absl::Status status = calls.Launch(rank); !status.ok()) return status;
    }
    return absl::OkStatus();
  }));
  const absl::StatusOr<LayerOutput> replayed = calls.Read();
  ASSERT_OK(replayed.status());
  ExpectCorrect(*replayed);
  const absl::StatusOr<LayerOutput> called = Call(*node_, *layer_, tokens);
  ASSERT_OK(called.status());
  EXPECT_EQ(replayed->y, called->y);
}

INSTANTIATE_TEST_SUITE_P(, MoeLayerGraphTest,
                         testing::Values(SharedExperts::kAfter, SharedExperts::kBeside),
                         [](const auto& info) { return std::string(EnumName(info.param)); });

TEST_F(MoeLayerTest, AutoRunsSharedExpertsBesideSmallCalls) {
  MakeNode(2);
  if (IsSkipped()) return;
  const int half = std::max(node_->topology().gpus[0].num_compute_units / 2, 1);
  struct Case {
    int tokens;
    Strategy strategy;
    Fusion fusion;
    SharedExperts expected;
    int link_blocks;
  };
  for (const Case& each :
       {Case{1024, Strategy::kLowLatency, Fusion::kAuto, SharedExperts::kBeside, 0},
        Case{1024, Strategy::kHighThroughput, Fusion::kAuto, SharedExperts::kBeside, half},
        Case{1025, Strategy::kHighThroughput, Fusion::kAuto, SharedExperts::kAfter, 0},
        Case{9, Strategy::kHighThroughput, Fusion::kTiles, SharedExperts::kAfter, 0}}) {
    MoeLayerConfig config = Config();
    config.shared_intermediate = 48;
    config.max_tokens_per_rank = each.tokens;
    config.strategy = each.strategy;
    config.fusion = each.fusion;
    SCOPED_TRACE(TextOf(config));
    const absl::StatusOr<std::unique_ptr<MoeLayer>> layer = MoeLayer::Create(*node_, config);
    ASSERT_OK(layer.status());
    EXPECT_EQ((*layer)->config().shared_experts, each.expected);
    EXPECT_EQ((*layer)->config().link_blocks, each.link_blocks);
  }
}

// A call that fails between the fork and the join of its streams leaves nothing behind.
TEST_F(MoeLayerTest, TheNextCallAfterAFailureIsCorrect) {
  MoeLayerConfig config = Config();
  config.shared_intermediate = 48;
  config.shared_experts = SharedExperts::kBeside;
  MakeLayer(2, config);
  if (IsSkipped() || HasFatalFailure()) return;
  const LayerTokens tokens = Tokens({9, 4}, config, kSeed);
  LayerCalls calls(*node_, *layer_, tokens);
  ASSERT_OK(calls.Init());
  const absl::Status failed = node_->Run([&](Rank& rank) -> absl::Status {
    if (rank.rank() == 1) return absl::AbortedError("left out");
    return calls.Call(rank);
  });
  EXPECT_THAT(failed, StatusIs(absl::StatusCode::kAborted, HasSubstr("left out")));
  ASSERT_OK(calls.CallOnce());
  const absl::StatusOr<LayerOutput> output = calls.Read();
  ASSERT_OK(output.status());
  ExpectCorrect(*output);
}

TEST_F(MoeLayerTest, LayersThatShareMemory) {
  MoeLayerConfig config = Config();
  config.shared_intermediate = 48;
  config.shared_experts = SharedExperts::kBeside;
  MakeLayer(2, config);
  if (IsSkipped() || HasFatalFailure()) return;
  absl::StatusOr<std::unique_ptr<MoeLayer>> second =
      MoeLayer::Create(*node_, config, {.share = layer_.get()});
  ASSERT_OK(second.status());
  const RandomWeights other(config, false, kSeed + 1);
  ASSERT_OK((*second)->Load(other.weights()));
  const LayerTokens tokens = Tokens({9, 4}, config, kSeed);
  const absl::StatusOr<LayerOutput> of_first = Call(*node_, *layer_, tokens);
  const absl::StatusOr<LayerOutput> of_second = Call(*node_, **second, tokens);
  ASSERT_OK(of_first.status());
  ASSERT_OK(of_second.status());
  ExpectCorrect(*of_first);
  const LayerCheck check = VerifyLayer(config, other.weights(), *of_second);
  EXPECT_TRUE(check.ok()) << check.first_wrong;
  EXPECT_NE(of_first->y, of_second->y);
  // The memory outlives the layer that made it.
  layer_.reset();
  const absl::StatusOr<LayerOutput> again = Call(*node_, **second, tokens);
  ASSERT_OK(again.status());
  EXPECT_EQ(again->y, of_second->y);
}

// What the check is for: each of these is found.
TEST_F(MoeLayerTest, TheCheckFindsWrongResults) {
  MoeLayerConfig config = Config();
  config.shared_intermediate = 48;
  MakeLayer(2, config);
  if (IsSkipped() || HasFatalFailure()) return;
  const absl::StatusOr<LayerOutput> output = Call(*node_, *layer_, Tokens({9, 4}, config, kSeed));
  ASSERT_OK(output.status());
  const auto wrong = [&](const LayerOutput& changed, const MoeLayerWeights& weights) {
    return !VerifyLayer(config, weights, changed).ok();
  };
  LayerOutput changed = *output;
  changed.y[5] ^= 0x40;  // of the fraction
  EXPECT_TRUE(wrong(changed, weights_->weights()));
  changed = *output;
  changed.logits[7] += 0.01F;
  EXPECT_TRUE(wrong(changed, weights_->weights()));
  changed = *output;
  std::swap(changed.topk_idx[0], changed.topk_idx[1]);
  EXPECT_TRUE(wrong(changed, weights_->weights()));
  changed = *output;
  changed.topk_weights[4] *= 1.0F + 0x1p-20F;
  EXPECT_TRUE(wrong(changed, weights_->weights()));
  MoeLayerWeights weights = weights_->weights();
  std::swap(weights.experts[3].gate, weights.experts[3].up);
  EXPECT_TRUE(wrong(*output, weights));
  weights = weights_->weights();
  std::swap(weights.experts[0], weights.experts[1]);
  EXPECT_TRUE(wrong(*output, weights));
  weights = weights_->weights();
  std::swap(weights.shared.gate, weights.shared.up);
  EXPECT_TRUE(wrong(*output, weights));
}

// What is too large for the dtype is infinite, or NaN where that is multiplied further: no error of
// the layer. Other tokens are checked as ever.
TEST_F(MoeLayerTest, OverflowIsNoWrongResult) {
  MoeLayerConfig config = Config();
  config.dtype = DType::kFloat16;
  config.shared_intermediate = 48;
  MakeLayer(2, config);
  if (IsSkipped() || HasFatalFailure()) return;
  LayerTokens tokens = Tokens({9, 4}, config, kSeed);
  constexpr uint16_t kExponent = 0x7400;  // numbers of 16384 and more
  constexpr uint16_t kSignAndFraction = 0x83ff;
  for (size_t h = 0; h < static_cast<size_t>(config.hidden); ++h) {
    uint16_t& element = tokens.rows[0][h];
    element = static_cast<uint16_t>((element & kSignAndFraction) | kExponent);
  }
  const absl::StatusOr<LayerOutput> output = Call(*node_, *layer_, tokens);
  ASSERT_OK(output.status());
  const auto finite = [](uint16_t bits) {
    return std::isfinite(FloatFromBits(DType::kFloat16, bits));
  };
  const auto first = output->y.begin() + config.hidden;
  EXPECT_FALSE(std::all_of(output->y.begin(), first, finite));
  EXPECT_TRUE(std::all_of(first, output->y.end(), finite));
  ExpectCorrect(*output);
  LayerOutput changed = *output;
  changed.y[static_cast<size_t>(config.hidden)] = 0x7c00;  // infinite, of the second token
  EXPECT_FALSE(VerifyLayer(config, weights_->weights(), changed).ok());
  changed = *output;
  changed.y[0] = 0;  // of the first, finite and wrong
  EXPECT_FALSE(VerifyLayer(config, weights_->weights(), changed).ok());
}

}  // namespace
}  // namespace octet
