// Folders of families whose tensors or members have names of their own.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "octet/model_folder.h"
#include "tests/kernels/layer/test_models.h"
#include "tests/support/node/node_fixture.h"

namespace octet {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

Json Config(const std::string& type, const Json& more) {
  Json config = {{"model_type", type}, {"hidden_size", kHidden}, {"num_hidden_layers", 4}};
  config.update(more);
  return config;
}

// Returns the layers of the folder that have experts.
std::vector<int> ExpertLayersOf(const ModelFolder& folder) {
  std::vector<int> layers;
  for (int layer = 0; layer < folder.num_layers(); ++layer) {
    if (folder.LayerConfig(layer).ok()) layers.push_back(layer);
  }
  return layers;
}

// Returns the layers with experts of a folder with this config.json.
std::vector<int> ExpertLayersOf(const Json& config) {
  const TestFolder files;
  Model model = Qwen3();  // of which only config.json is looked at
  model.config = config;
  const auto folder = Open(model, files);
  return folder.ok() ? ExpertLayersOf(**folder) : std::vector<int>();
}

std::string Refusal(const Json& config) {
  const TestFolder files;
  Model model = Qwen3();
  model.config = config;
  const auto folder = Open(model, files);
  return std::string(folder.ok() ? (*folder)->LayerConfig(1).status().message()
                                 : folder.status().message());
}

Model Granite(bool in_memory) {
  Model model;
  model.config = Config("granitemoe", {{"num_local_experts", kExperts},
                                       {"num_experts_per_tok", 2},
                                       {"intermediate_size", kIntermediate}});
  const std::string block = "model.layers.1.block_sparse_moe.";
  model.AddMatrix(block + (in_memory ? "router.weight" : "router.layer.weight"), kExperts, kHidden);
  model.Add(NamedTensor(block + (in_memory ? "experts.gate_up_proj" : "input_linear.weight"),
                        "BF16", {kExperts, 2 * kIntermediate, kHidden}, 2));
  model.Add(NamedTensor(block + (in_memory ? "experts.down_proj" : "output_linear.weight"), "BF16",
                        {kExperts, kHidden, kIntermediate}, 2));
  return model;
}

TEST(ModelFolderTest, Granite) {
  for (const bool in_memory : {false, true}) {
    SCOPED_TRACE(in_memory);
    const Model model = Granite(in_memory);
    const TestFolder files;
    const auto folder = Open(model, files);
    ASSERT_OK(folder.status());
    const auto config = (*folder)->LayerConfig(1);
    ASSERT_OK(config.status());
    EXPECT_TRUE(config->router.normalize);
    const auto weights = (*folder)->Weights(1);
    ASSERT_OK(weights.status());
    const std::string block = "model.layers.1.block_sparse_moe.";
    ExpectIs(weights->router, model, block + (in_memory ? "router.weight" : "router.layer.weight"));
    const std::string& all =
        model.tensors.at(block + (in_memory ? "experts.gate_up_proj" : "input_linear.weight"))
            .bytes;
    const size_t bytes = size_t{2} * kIntermediate * kHidden;  // of gate, or of up
    ASSERT_EQ(weights->experts.size(), static_cast<size_t>(kExperts));
    for (size_t expert = 0; expert < kExperts; ++expert) {
      const MlpWeights& mlp = weights->experts[expert];
      EXPECT_EQ(RowMajorBytes(mlp.gate), all.substr(2 * expert * bytes, bytes));
      EXPECT_EQ(RowMajorBytes(mlp.up), all.substr((2 * expert + 1) * bytes, bytes));
    }
    Model other = model;
    other.AddMatrix(block + "router.bias", 1, kExperts);
    const TestFolder more;
    const auto refused = Open(other, more);
    ASSERT_OK(refused.status());
    EXPECT_THAT(std::string((*refused)->Weights(1).status().message()), HasSubstr("router.bias"));
  }
}

TEST(ModelFolderTest, KimiK2IsDeepseekV3) {
  Model model = DeepseekV3();
  model.config["model_type"] = "kimi_k2";
  model.config["routed_scaling_factor"] = 2.827;
  const TestFolder files;
  const auto folder = Open(model, files);
  ASSERT_OK(folder.status());
  EXPECT_EQ((*folder)->family(), ModelFamily::kKimiK2);
  EXPECT_EQ((*folder)->LayerConfig(1)->router.scaling, 2.827F);
  const auto weights = (*folder)->Weights(1);
  ASSERT_OK(weights.status());
  ExpectExpertsAre(*weights, model, 1);
  ExpectIs(weights->router_bias, model, "model.layers.1.mlp.gate.e_score_correction_bias");
}

Json Ernie() {
  return Config("ernie4_5_moe", {{"moe_num_experts", kExperts},
                                 {"moe_k", 2},
                                 {"intermediate_size", 999},
                                 {"moe_intermediate_size", kIntermediate},
                                 {"moe_num_shared_experts", 2},
                                 {"moe_layer_start_index", 1},
                                 {"moe_layer_end_index", -1},
                                 {"use_bias", false}});
}

TEST(ModelFolderTest, Ernie) {
  for (const std::string statics : {"moe_statics.", "gate.moe_statics."}) {
    SCOPED_TRACE(statics);
    Model model;
    model.config = Ernie();
    AddExperts(model, 1);
    const std::string block = "model.layers.1.mlp.";
    model.AddMlp(block + "shared_experts", kHidden, 2 * kIntermediate);
    model.Add(NamedTensor(block + statics + "e_score_correction_bias", "F32", {1, kExperts}, 4));
    const TestFolder files;
    const auto folder = Open(model, files);
    ASSERT_OK(folder.status());
    const auto config = (*folder)->LayerConfig(1);
    ASSERT_OK(config.status());
    EXPECT_EQ(config->topk, 2);
    EXPECT_EQ(config->shared_intermediate, 2 * kIntermediate);
    EXPECT_EQ(config->router, RouterConfig{.normalize = true});
    const auto weights = (*folder)->Weights(1);
    ASSERT_OK(weights.status());
    ExpectExpertsAre(*weights, model, 1);
    ExpectIs(weights->shared, model, block + "shared_experts");
    ExpectIs(weights->router_bias, model, block + statics + "e_score_correction_bias");
  }
  const auto with = [](const std::string& member, const Json& value) {
    Json config = Ernie();
    config[member] = value;
    return config;
  };
  EXPECT_THAT(ExpertLayersOf(Ernie()), ElementsAre(1, 2, 3));
  EXPECT_THAT(ExpertLayersOf(with("moe_layer_end_index", 2)), ElementsAre(1, 2));
  EXPECT_THAT(ExpertLayersOf(with("moe_layer_interval", 2)), ElementsAre(1, 3));
  EXPECT_THAT(Refusal(with("use_bias", true)), HasSubstr("use_bias true is not supported"));
  EXPECT_THAT(Refusal(with("moe_num_shared_experts", 2147483647)),
              HasSubstr("moe_num_shared_experts"));
  EXPECT_EQ(Refusal(with("moe_num_shared_experts", 0)), "");
}

TEST(ModelFolderTest, Hunyuan) {
  Model model;
  model.config = Config("hunyuan_v1_moe", {{"num_experts", kExperts},
                                           {"moe_topk", {3, 3, 3, 3}},
                                           {"intermediate_size", kIntermediate}});
  AddExperts(model, 1);
  const std::string block = "model.layers.1.mlp.";
  model.tensors.erase(block + "gate.weight");
  model.AddMatrix(block + "gate.wg.weight", kExperts, kHidden);
  model.AddMlp(block + "shared_mlp", kHidden, kIntermediate);
  const TestFolder files;
  const auto folder = Open(model, files);
  ASSERT_OK(folder.status());
  const auto config = (*folder)->LayerConfig(1);
  ASSERT_OK(config.status());
  EXPECT_EQ(config->topk, 3);
  EXPECT_EQ(config->shared_intermediate, kIntermediate);
  EXPECT_EQ(config->router, RouterConfig{.normalize = true});
  const auto weights = (*folder)->Weights(1);
  ASSERT_OK(weights.status());
  ExpectIs(weights->router, model, block + "gate.wg.weight");
  ExpectIs(weights->shared, model, block + "shared_mlp");
  ExpectIs(weights->experts[2], model, block + "experts.2");
  for (const Json& wrong : {Json({3, 2}), Json::array(), Json({0, 0})}) {
    model.config["moe_topk"] = wrong;
    EXPECT_THAT(Refusal(model.config), HasSubstr("moe_topk \"a list\" is not supported"));
  }
}

Json Llama4() {
  return Config("llama4_text", {{"num_local_experts", kExperts},
                                {"num_experts_per_tok", 1},
                                {"intermediate_size", kIntermediate},
                                {"intermediate_size_mlp", 999},
                                {"interleave_moe_layer_step", 2}});
}

TEST(ModelFolderTest, Llama4) {
  for (const std::string prefix : {"model.", "language_model.model."}) {
    SCOPED_TRACE(prefix);
    Model model;
    model.config = Llama4();
    if (prefix != "model.") {  // what sees images, too
      model.config = {{"model_type", "llama4"},
                      {"text_config", Llama4()},
                      {"dtype", "float16"},
                      {"vision_config", {{"hidden_size", 1}}}};
    }
    const std::string block = prefix + "layers.1.feed_forward.";
    model.AddMatrix(block + "router.weight", kExperts, kHidden);
    const FileTensor gate_up = NamedTensor(block + "experts.gate_up_proj", "BF16",
                                           {kExperts, kHidden, 2 * kIntermediate}, 2);
    model.Add(gate_up);
    model.Add(
        NamedTensor(block + "experts.down_proj", "BF16", {kExperts, kIntermediate, kHidden}, 2));
    model.AddMlp(block + "shared_expert", kHidden, kIntermediate);
    const TestFolder files;
    const auto folder = Open(model, files);
    ASSERT_OK(folder.status());
    EXPECT_EQ((*folder)->family(), ModelFamily::kLlama4Text);
    EXPECT_THAT(ExpertLayersOf(**folder), ElementsAre(1, 3));
    const auto config = (*folder)->LayerConfig(1);
    ASSERT_OK(config.status());
    EXPECT_TRUE(config->weighs_input);
    EXPECT_FALSE(config->shared_gate);
    EXPECT_EQ(config->shared_intermediate, kIntermediate);
    EXPECT_EQ(config->router, RouterConfig{.scores = RouterScores::kSigmoid});
    EXPECT_EQ(config->dtype, prefix == "model." ? DType::kBFloat16 : DType::kFloat16);
    const auto weights = (*folder)->Weights(1);
    ASSERT_OK(weights.status());
    ExpectIs(weights->router, model, block + "router.weight");
    ExpectIs(weights->shared, model, block + "shared_expert");
    EXPECT_TRUE(weights->shared_gate.empty());
    // Row r of gate is column r of the stored matrix, row r of up column I + r.
    const HostTensor& up = weights->experts[1].up;
    EXPECT_EQ(up.column_pitch, size_t{2} * kIntermediate);
    const size_t first = size_t{2} * (kHidden * 2 * kIntermediate + kIntermediate);
    EXPECT_EQ(RowMajorBytes(up).substr(0, 2), gate_up.bytes.substr(first, 2));
  }
  Json config = Llama4();
  config["moe_layers"] = {0, 3};
  EXPECT_THAT(ExpertLayersOf(config), ElementsAre(0, 3));
  config["num_experts_per_tok"] = 2;
  EXPECT_THAT(ExpertLayersOf(config), IsEmpty());
  EXPECT_THAT(Refusal(config), HasSubstr("num_experts_per_tok 2 is not supported; it must be 1"));
  EXPECT_THAT(Refusal({{"model_type", "llama4"}, {"text_config", 3}}),
              HasSubstr("text_config must be an object"));
}

Json Phimoe(const Json& more = Json::object()) {
  Json config = Mixtral().config;
  config["model_type"] = "phimoe";
  config.update(more);
  return config;
}

TEST(ModelFolderTest, Phimoe) {
  Model model = Mixtral();
  model.config = Phimoe();
  const TestFolder files;
  const auto folder = Open(model, files);
  ASSERT_OK(folder.status());
  EXPECT_EQ((*folder)->family(), ModelFamily::kPhimoe);
  const auto config = (*folder)->LayerConfig(1);
  ASSERT_OK(config.status());
  EXPECT_EQ(config->topk, 2);
  EXPECT_EQ(config->router, (RouterConfig{.scores = RouterScores::kSparsemixer, .jitter = 0.01F}));
  const auto weights = (*folder)->Weights(1);
  ASSERT_OK(weights.status());
  const std::string block = "model.layers.1.block_sparse_moe.";
  ExpectIs(weights->router, model, block + "gate.weight");
  ExpectIs(weights->experts[2].gate, model, block + "experts.2.w1.weight");
  ExpectIs(weights->experts[2].up, model, block + "experts.2.w3.weight");
  ExpectIs(weights->experts[2].down, model, block + "experts.2.w2.weight");

  model.AddMatrix(block + "router.weight", kExperts, kHidden);  // beside gate.weight
  const TestFolder two;
  const auto refused = Open(model, two);
  ASSERT_OK(refused.status());
  EXPECT_THAT(std::string((*refused)->Weights(1).status().message()), HasSubstr("gate.weight"));
}

TEST(ModelFolderTest, PhimoeAsItIsInMemory) {
  Model model;
  model.config = Phimoe({{"router_jitter_noise", 0.5}, {"input_jitter_noise", 0.25}});
  const std::string block = "model.layers.1.mlp.";
  model.AddMatrix(block + "router.weight", kExperts, kHidden);
  model.Add(NamedTensor(block + "experts.gate_up_proj", "BF16",
                        {kExperts, 2 * kIntermediate, kHidden}, 2));
  model.Add(
      NamedTensor(block + "experts.down_proj", "BF16", {kExperts, kHidden, kIntermediate}, 2));
  const TestFolder files;
  const auto folder = Open(model, files);
  ASSERT_OK(folder.status());
  EXPECT_EQ((*folder)->LayerConfig(1)->router.jitter, 0.5F);
  const auto weights = (*folder)->Weights(1);
  ASSERT_OK(weights.status());
  ExpectIs(weights->router, model, block + "router.weight");
}

TEST(ModelFolderTest, PhimoeRefuses) {
  EXPECT_EQ(Refusal(Phimoe()), "");
  EXPECT_THAT(Refusal(Phimoe({{"num_experts_per_tok", 4}})),
              HasSubstr("num_experts_per_tok 4 is not supported; it must be 2"));
  EXPECT_THAT(Refusal(Phimoe({{"router_jitter_noise", -0.5}})),
              HasSubstr("router_jitter_noise -0.5 is not supported; it must be at least 0"));
  EXPECT_THAT(Refusal(Phimoe({{"router_jitter_noise", "wide"}})),
              HasSubstr("router_jitter_noise must be a number"));
  EXPECT_THAT(Refusal(Phimoe({{"hidden_act", "gelu"}})), HasSubstr("hidden_act"));
}

TEST(ModelFolderTest, Qwen35) {
  Model model = Qwen2();
  Json text = model.config;
  text["model_type"] = "qwen3_5_moe_text";
  text["mlp_only_layers"] = {0};  // without a meaning in this family
  model.config = {{"model_type", "qwen3_5_moe"}, {"text_config", text}};
  for (FileTensor tensor : model.List()) {
    model.tensors.erase(tensor.name);
    tensor.name = "model.language_model." + tensor.name.substr(tensor.name.find("layers."));
    model.Add(tensor);
  }
  const TestFolder files;
  const auto folder = Open(model, files);
  ASSERT_OK(folder.status());
  const auto config = (*folder)->LayerConfig(0);
  ASSERT_OK(config.status());
  EXPECT_EQ(config->router, RouterConfig{.normalize = true});
  EXPECT_TRUE(config->shared_gate);
  const auto weights = (*folder)->Weights(0);
  ASSERT_OK(weights.status());
  const std::string block = "model.language_model.layers.0.mlp.";
  ExpectIs(weights->router, model, block + "gate.weight");
  ExpectIs(weights->experts[1], model, block + "experts.1");
  ExpectIs(weights->shared_gate, model, block + "shared_expert_gate.weight");
}

}  // namespace
}  // namespace octet
