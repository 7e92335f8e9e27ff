// Layers with MXFP4 weights, with biases and with parameters of SwiGLU, as gpt-oss has them, with
// weights of the input, and with sparsemixer.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "octet/moe_layer.h"
#include "tests/kernels/layer/moe_layer_fixture.h"

namespace octet {
namespace {

using ::testing::HasSubstr;

MoeLayerConfig Mxfp4Config() {
  MoeLayerConfig config = Config();
  config.weights = GemmFormat::kMxfp4;
  config.hidden = 160;
  config.intermediate = 96;
  return config;
}

// The limits are ones that many numbers exceed.
MoeLayerConfig GptOssConfig() {
  MoeLayerConfig config = Mxfp4Config();
  config.logit_bias = true;
  config.expert_biases = true;
  config.swiglu = {.alpha = 1.702F, .limit = 0.75F, .up_offset = 1.0F};
  return config;
}

TEST_F(MoeLayerTest, Mxfp4Weights) {
  MoeLayerConfig config = Mxfp4Config();
  for (const Strategy strategy : {Strategy::kHighThroughput, Strategy::kLowLatency}) {
    config.strategy = strategy;
    RunAndCheck({9, 0, 5}, config);
  }
  config.strategy = Strategy::kAuto;
  config.shared_intermediate = 48;
  RunAndCheck({9}, config);
}

// Rows of x come quantized by dispatch, or before it; those between the products in the layer.
TEST_F(MoeLayerTest, Fp8RowsWithMxfp4Weights) {
  MoeLayerConfig config = GptOssConfig();
  config.fp8_rows = true;
  config.hidden = 288;  // groups of 128 columns, the last of 32
  config.shared_intermediate = 48;
  for (const Strategy strategy : {Strategy::kHighThroughput, Strategy::kLowLatency}) {
    config.strategy = strategy;
    RunAndCheck({9, 0, 5}, config);
  }
  config.strategy = Strategy::kAuto;
  config.path = LayerPath::kLaunches;
  config.max_tokens_per_rank = 20;
  RunAndCheck({20}, config);
  config.capacity_rows = 48;  // several passes
  config.num_experts = 4;
  RunAndCheck({20, 3}, config);
}

TEST_F(MoeLayerTest, DecodeTakesNoFp8Rows) {
  MoeLayerConfig config = GptOssConfig();
  config.max_tokens_per_rank = 9;
  config.path = LayerPath::kDecode;
  config.fp8_rows = true;
  RunAndCheck({9, 4}, config);
}

TEST_F(MoeLayerTest, BiasesAndParametersOfSwiGlu) {
  RunAndCheck({9, 0, 5}, GptOssConfig());
  MoeLayerConfig config = GptOssConfig();
  config.weights = GemmFormat::kSame;
  config.max_tokens_per_rank = 20;  // more than the router of few tokens takes
  RunAndCheck({20, 3}, config);
  config.dtype = DType::kFloat16;
  config.fusion = Fusion::kTiles;
  RunAndCheck({20, 3}, config);
}

TEST_F(MoeLayerTest, WeightsOfTheInput) {
  MoeLayerConfig config = Config();
  config.topk = 1;
  config.weighs_input = true;
  config.router = {.scores = RouterScores::kSigmoid};
  config.shared_intermediate = 48;
  for (const Strategy strategy : {Strategy::kHighThroughput, Strategy::kLowLatency}) {
    config.strategy = strategy;
    RunAndCheck({9, 0, 5}, config);
  }
  config.strategy = Strategy::kAuto;
  config.dtype = DType::kFloat16;
  config.max_tokens_per_rank = 20;
  RunAndCheck({20, 3}, config);
  config.dtype = DType::kBFloat16;
  config.weights = GemmFormat::kFp8;
  RunAndCheck({20, 3}, config);
  config.topk = 2;
  EXPECT_THAT(std::string(Validate(config, 2).message()),
              HasSubstr("topk is 2; with weighs_input it must be 1"));
  config.topk = 1;
  config.max_tokens_per_rank = 4;
  config.path = LayerPath::kDecode;
  EXPECT_THAT(std::string(Validate(config, 2).message()), HasSubstr("weights of x"));
}

TEST_F(MoeLayerTest, Sparsemixer) {
  MoeLayerConfig config = Config();
  config.topk = 2;
  config.router = {.scores = RouterScores::kSparsemixer, .jitter = 0.3F};
  for (const LayerPath path : {LayerPath::kLaunches, LayerPath::kDecode}) {
    config.path = path;
    RunAndCheck({9, 0, 5}, config);
  }
  config.path = LayerPath::kAuto;
  config.max_tokens_per_rank = 20;  // more than the router of few tokens takes
  RunAndCheck({20, 3}, config);
}

TEST_F(MoeLayerTest, SparsemixerTakesNoRouterBias) {
  MoeLayerConfig config = Config();
  config.router = {.scores = RouterScores::kSparsemixer};
  MakeLayer(1, config);
  if (IsSkipped() || HasFatalFailure()) return;
  const RandomWeights biased(config, true, kSeed);
  EXPECT_EQ(layer_->Load(biased.weights()),
            absl::InvalidArgumentError(
                "router_bias is given; with RouterConfig::scores sparsemixer there is none"));
}

TEST_F(MoeLayerTest, AutoTakesOneLaunchForFewTokensOfMxfp4OnOneGpu) {
  const auto expect = [this](int ranks, int tokens, LayerPath path) {
    MakeNode(ranks);
    if (IsSkipped() || node_ == nullptr || node_->topology().platform == "amd") return;
    MoeLayerConfig config = GptOssConfig();
    config.max_tokens_per_rank = tokens;
    const absl::StatusOr<std::unique_ptr<MoeLayer>> layer = MoeLayer::Create(*node_, config);
    ASSERT_OK(layer.status());
    EXPECT_EQ((*layer)->config().path, path);
  };
  expect(1, 4, LayerPath::kDecode);
  expect(1, 5, LayerPath::kLaunches);
  expect(2, 1, LayerPath::kLaunches);
  MoeLayerConfig config = GptOssConfig();
  config.path = LayerPath::kDecode;
  config.max_tokens_per_rank = 1;
  EXPECT_EQ(Validate(config, 2).message(), "");
}

TEST_F(MoeLayerTest, RefusesWhatMxfp4AndBiasesCannotBe) {
  const auto refusal = [](const MoeLayerConfig& of) {
    return std::string(Validate(of, 2).message());
  };
  MoeLayerConfig config = Mxfp4Config();
  EXPECT_EQ(refusal(config), "");
  config.hidden = 144;
  EXPECT_THAT(refusal(config), HasSubstr("multiple of 32"));
  config = Mxfp4Config();
  config.dtype = DType::kFloat16;
  EXPECT_THAT(refusal(config), HasSubstr("MXFP4 weights need bf16"));
  config = Mxfp4Config();
  config.fusion = Fusion::kTiles;
  EXPECT_THAT(refusal(config), HasSubstr("with MXFP4 weights it must be auto or none"));
  config = Mxfp4Config();
  config.fp8_rows = true;
  EXPECT_EQ(refusal(config), "");
  config.weights = GemmFormat::kFp8;
  EXPECT_THAT(refusal(config), HasSubstr("fp8_rows is true; with weights fp8 it must be false"));
  config = Mxfp4Config();
  config.swiglu.limit = 0;
  EXPECT_THAT(refusal(config), HasSubstr("the limit must be above 0"));

  // Weights and configuration must agree on what biases there are.
  MakeLayer(2, GptOssConfig());
  if (IsSkipped() || HasFatalFailure()) return;
  MoeLayerWeights weights = weights_->weights();
  weights.logit_bias = {};
  EXPECT_THAT(std::string(layer_->Load(weights).message()), HasSubstr("logit_bias is missing"));
  weights = weights_->weights();
  weights.experts[3].up_bias = {};
  EXPECT_THAT(std::string(layer_->Load(weights).message()),
              HasSubstr("experts[3].up_bias is missing"));
  MoeLayerConfig plain = GptOssConfig();
  plain.expert_biases = false;
  const absl::StatusOr<std::unique_ptr<MoeLayer>> other = MoeLayer::Create(*node_, plain);
  ASSERT_OK(other.status());
  EXPECT_THAT(std::string((*other)->Load(weights_->weights()).message()),
              HasSubstr("expert_biases is false"));
}

}  // namespace
}  // namespace octet
