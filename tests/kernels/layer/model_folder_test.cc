// Model folders: the tensors of every family's layers.
#include "octet/model_folder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "tests/kernels/layer/test_models.h"
#include "tests/support/model_files.h"

namespace octet {
namespace {

using ::testing::SizeIs;

TEST(ModelFolder, Mixtral) {
  const TestFolder files;
  const Model model = Mixtral();
  const auto folder = Open(model, files);
  ASSERT_TRUE(folder.ok()) << folder.status();
  EXPECT_EQ((*folder)->family(), ModelFamily::kMixtral);
  EXPECT_EQ((*folder)->num_layers(), 2);
  for (int layer = 0; layer < 2; ++layer) {
    const auto config = (*folder)->LayerConfig(layer);
    ASSERT_TRUE(config.ok()) << config.status();
    EXPECT_EQ(config->num_experts, kExperts);
    EXPECT_EQ(config->topk, 2);
    EXPECT_EQ(config->hidden, kHidden);
    EXPECT_EQ(config->intermediate, kIntermediate);
    EXPECT_EQ(config->shared_intermediate, 0);
    EXPECT_FALSE(config->shared_gate);
    EXPECT_EQ(config->router, RouterConfig{.normalize = true});
    EXPECT_EQ(config->dtype, DType::kBFloat16);
    EXPECT_EQ(config->weights, GemmFormat::kSame);
    EXPECT_EQ(config->max_tokens_per_rank, 0);
    const auto weights = (*folder)->Weights(layer);
    ASSERT_TRUE(weights.ok()) << weights.status();
    const std::string block = absl::StrCat("model.layers.", layer, ".block_sparse_moe.");
    ExpectIs(weights->router, model, block + "gate.weight");
    ASSERT_THAT(weights->experts, SizeIs(kExperts));
    for (int expert = 0; expert < kExperts; ++expert) {
      ExpectIs(weights->experts[static_cast<size_t>(expert)], model,
               absl::StrCat(block, "experts.", expert), {.gate = "w1", .up = "w3", .down = "w2"});
    }
    EXPECT_TRUE(weights->router_bias.empty());
    EXPECT_TRUE(weights->shared_gate.empty());
    ExpectIsEmpty(weights->shared);
  }
}

TEST(ModelFolder, Qwen2Moe) {
  const TestFolder files;
  const Model model = Qwen2();
  const auto folder = Open(model, files);
  ASSERT_TRUE(folder.ok()) << folder.status();
  EXPECT_EQ((*folder)->family(), ModelFamily::kQwen2Moe);
  const auto config = (*folder)->LayerConfig(0);
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->num_experts, kExperts);
  EXPECT_EQ(config->topk, 3);
  EXPECT_EQ(config->intermediate, kIntermediate);
  EXPECT_EQ(config->shared_intermediate, 24);
  EXPECT_TRUE(config->shared_gate);
  EXPECT_EQ(config->router, RouterConfig());
  const auto weights = (*folder)->Weights(0);
  ASSERT_TRUE(weights.ok()) << weights.status();
  ExpectExpertsAre(*weights, model, 0);
  ExpectIs(weights->shared, model, "model.layers.0.mlp.shared_expert");
  ExpectIs(weights->shared_gate, model, "model.layers.0.mlp.shared_expert_gate.weight");
}

TEST(ModelFolder, Qwen3Moe) {
  const TestFolder files;
  const Model model = Qwen3();
  const auto folder = Open(model, files);
  ASSERT_TRUE(folder.ok()) << folder.status();
  EXPECT_EQ((*folder)->family(), ModelFamily::kQwen3Moe);
  const auto config = (*folder)->LayerConfig(0);
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->intermediate, kIntermediate);
  EXPECT_EQ(config->shared_intermediate, 0);
  EXPECT_EQ(config->router, RouterConfig{.normalize = true});
  const auto weights = (*folder)->Weights(0);
  ASSERT_TRUE(weights.ok()) << weights.status();
  ExpectExpertsAre(*weights, model, 0);
  ExpectIsEmpty(weights->shared);
}

TEST(ModelFolder, Olmoe) {
  const TestFolder files;
  const Model model = Olmoe();
  const auto folder = Open(model, files);
  ASSERT_TRUE(folder.ok()) << folder.status();
  EXPECT_EQ((*folder)->family(), ModelFamily::kOlmoe);
  const auto config = (*folder)->LayerConfig(0);
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->intermediate, kIntermediate);
  EXPECT_EQ(config->router, RouterConfig());
  EXPECT_EQ(config->dtype, DType::kBFloat16);  // float32 becomes it
  const auto weights = (*folder)->Weights(0);
  ASSERT_TRUE(weights.ok()) << weights.status();
  ExpectExpertsAre(*weights, model, 0);
}

TEST(ModelFolder, DeepseekV2) {
  const TestFolder files;
  const Model model = DeepseekV2();
  const auto folder = Open(model, files);
  ASSERT_TRUE(folder.ok()) << folder.status();
  EXPECT_EQ((*folder)->family(), ModelFamily::kDeepseekV2);
  const auto config = (*folder)->LayerConfig(1);
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->num_experts, kExperts);
  EXPECT_EQ(config->intermediate, kIntermediate);
  EXPECT_EQ(config->shared_intermediate, 2 * kIntermediate);
  EXPECT_FALSE(config->shared_gate);
  EXPECT_EQ(config->router, (RouterConfig{.groups = 2, .top_groups = 1, .scaling = 16.0F}));
  const auto weights = (*folder)->Weights(1);
  ASSERT_TRUE(weights.ok()) << weights.status();
  ExpectExpertsAre(*weights, model, 1);
  ExpectIs(weights->shared, model, "model.layers.1.mlp.shared_experts");
  EXPECT_TRUE(weights->router_bias.empty());
}

TEST(ModelFolder, DeepseekV3InFp8) {
  const TestFolder files;
  const Model model = DeepseekV3();
  const auto folder = Open(model, files);
  ASSERT_TRUE(folder.ok()) << folder.status();
  EXPECT_EQ((*folder)->family(), ModelFamily::kDeepseekV3);
  const auto config = (*folder)->LayerConfig(1);
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->hidden, kFp8Hidden);
  EXPECT_EQ(config->intermediate, kFp8Intermediate);
  EXPECT_EQ(config->shared_intermediate, kFp8Intermediate);
  EXPECT_EQ(config->weights, GemmFormat::kFp8);
  EXPECT_EQ(config->router, (RouterConfig{.scores = RouterScores::kSigmoid,
                                          .groups = 2,
                                          .top_groups = 1,
                                          .group_score = GroupScore::kSumOfTwoBest,
                                          .normalize = true,
                                          .normalize_epsilon = 1e-20F,
                                          .scaling = 2.5F}));
  const auto weights = (*folder)->Weights(1);
  ASSERT_TRUE(weights.ok()) << weights.status();
  ExpectExpertsAre(*weights, model, 1);
  EXPECT_NE(weights->experts[0].gate.scales, nullptr);
  ExpectIs(weights->shared, model, "model.layers.1.mlp.shared_experts");
  ExpectIs(weights->router_bias, model, "model.layers.1.mlp.gate.e_score_correction_bias");
}

// Other releases have scales and correction biases of 16 bits.
TEST(ModelFolder, DeepseekV3InFp8WithScalesOfOtherTypes) {
  for (const std::string dtype : {"BF16", "F16"}) {
    SCOPED_TRACE(dtype);
    const TestFolder files;
    const Model model = DeepseekV3(kFp8Intermediate, dtype);
    const auto folder = Open(model, files);
    ASSERT_TRUE(folder.ok()) << folder.status();
    const auto weights = (*folder)->Weights(1);
    ASSERT_TRUE(weights.ok()) << weights.status();
    ExpectExpertsAre(*weights, model, 1);
    ExpectIs(weights->shared, model, "model.layers.1.mlp.shared_experts");
    ExpectIs(weights->router_bias, model, "model.layers.1.mlp.gate.e_score_correction_bias");
  }
}

TEST(ModelFolder, TheNamesOfFamiliesAndTypes) {
  EXPECT_EQ(EnumNames<ModelFamily>(),
            "mixtral, qwen2_moe, qwen3_moe, olmoe, deepseek_v2, deepseek_v3, gpt_oss, glm4_moe, "
            "minimax_m2, qwen3_next, kimi_k2, granitemoe, ernie4_5_moe, hunyuan_v1_moe, "
            "llama4_text, qwen3_5_moe_text, phimoe");
  EXPECT_EQ(EnumNames<TensorType>(), "fp32, bf16, fp16, fp8, mxfp4, e8m0, int4");
  EXPECT_EQ(BytesOf(TensorType::kFloat32), 4U);
  EXPECT_EQ(BytesOf(TensorType::kBFloat16), 2U);
  EXPECT_EQ(BytesOf(TensorType::kFloat16), 2U);
  EXPECT_EQ(BytesOf(TensorType::kFloat8E4m3), 1U);
  EXPECT_EQ(BytesOf(TensorType::kFloat8E8m0), 1U);
}

}  // namespace
}  // namespace octet
