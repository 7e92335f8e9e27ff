// MoeLayer::Load where the system refuses something.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <hip/hip_runtime.h>

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "emulation.h"
#include "octet/moe_layer.h"
#include "octet/node.h"
#include "tests/support/no_more_threads.h"
#include "tests/support/node/node_fixture.h"
#include "tools/check/verify_layer.h"
#include "tools/step/layer_calls.h"
#include "tools/workload/layer_tokens.h"
#include "tools/workload/random_weights.h"

namespace octet {
namespace {

using ::testing::HasSubstr;

constexpr uint64_t kLoadSeed = 7;
constexpr int kLoadTokens = 5;

class MoeLayerLoadTest : public NodeTest {
 protected:
  static MoeLayerConfig Config() {
    MoeLayerConfig config;
    config.num_experts = 12;
    config.topk = 3;
    config.hidden = 64;
    config.intermediate = 48;
    config.max_tokens_per_rank = kLoadTokens;
    return config;
  }

  void Make() {
    MakeNode(1);
    ASSERT_NE(node_, nullptr);
    absl::StatusOr<std::unique_ptr<MoeLayer>> layer = MoeLayer::Create(*node_, Config());
    ASSERT_OK(layer.status());
    layer_ = *std::move(layer);
  }

  void ExpectCorrect(const RandomWeights& weights) {
    const LayerTokens tokens =
        RandomTokens(kLoadTokens, Config().hidden, 1, Config().dtype, kLoadSeed);
    LayerCalls calls(*node_, *layer_, tokens);
    ASSERT_OK(calls.Init());
    ASSERT_OK(calls.CallOnce());
    const absl::StatusOr<LayerOutput> output = calls.Read();
    ASSERT_OK(output.status());
    const LayerCheck check = VerifyLayer(layer_->config(), weights.weights(), *output);
    EXPECT_TRUE(check.ok()) << check.first_wrong;
  }

  std::unique_ptr<MoeLayer> layer_;
};

TEST_F(MoeLayerLoadTest, NeedsNoThreadsBesideTheRanks) {
  Make();
  if (HasFatalFailure()) return;
  const RandomWeights weights(Config(), false, kLoadSeed);
  {
    const NoMoreThreads no_more_threads;
    ASSERT_OK(layer_->Load(weights.weights()));
  }
  ExpectCorrect(weights);
}

// Some of the weights are then those of the first Load, others those of the second.
TEST_F(MoeLayerLoadTest, LeavesNoWeightsAfterAFailure) {
  Make();
  if (HasFatalFailure()) return;
  const RandomWeights first(Config(), false, kLoadSeed);
  ASSERT_OK(layer_->Load(first.weights()));
  const RandomWeights second(Config(), false, kLoadSeed + 1);
  constexpr uint64_t kInTheMiddle = 3;
  emulation::InjectError({.call = kInTheMiddle, .name = "hipMemcpy", .error = hipErrorOutOfMemory});
  const absl::Status failed = layer_->Load(second.weights());
  EXPECT_EQ(emulation::EndInjection(), "hipMemcpy");
  EXPECT_THAT(failed, StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("hipMemcpy")));
  EXPECT_THAT(
      node_->Run([&](Rank& rank) { return layer_->Forward(rank, nullptr, 0, nullptr); }),
      StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("needs weights: call Load")));
  ASSERT_OK(layer_->Load(second.weights()));
  ExpectCorrect(second);
}

// A Load that is refused before it begins changes nothing.
TEST_F(MoeLayerLoadTest, KeepsTheWeightsIfItIsRefused) {
  Make();
  if (HasFatalFailure()) return;
  const RandomWeights weights(Config(), false, kLoadSeed);
  ASSERT_OK(layer_->Load(weights.weights()));
  MoeLayerWeights wrong = weights.weights();
  wrong.experts.pop_back();
  EXPECT_THAT(layer_->Load(wrong),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("experts has 11 elements")));
  ExpectCorrect(weights);
}

}  // namespace
}  // namespace octet
