// Model folders: the configuration and the tensors of every family's layers, and what is said of
// folders that are damaged or not supported.
#include "octet/model_folder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "tests/support/model_files.h"

namespace octet {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::SizeIs;
using Json = nlohmann::json;

constexpr int kExperts = 4;
constexpr int kHidden = 16;
constexpr int kIntermediate = 8;

// Shapes whose last blocks of 128 rows and columns are not whole.
constexpr int kFp8Hidden = 272;
constexpr int kFp8Intermediate = 144;

struct MlpNames {
  std::string gate = "gate_proj";
  std::string up = "up_proj";
  std::string down = "down_proj";
};

// A model folder in the making.
struct Model {
  Json config;
  std::map<std::string, FileTensor> tensors;

  void Add(const FileTensor& tensor) { tensors[tensor.name] = tensor; }
  void AddMatrix(const std::string& name, int rows, int columns) {
    Add(NamedTensor(name, "BF16", {rows, columns}, 2));
  }
  void AddMlp(const std::string& prefix, int hidden, int intermediate, const MlpNames& names = {}) {
    AddMatrix(absl::StrCat(prefix, ".", names.gate, ".weight"), intermediate, hidden);
    AddMatrix(absl::StrCat(prefix, ".", names.up, ".weight"), intermediate, hidden);
    AddMatrix(absl::StrCat(prefix, ".", names.down, ".weight"), hidden, intermediate);
  }

  // Makes a matrix one of FP8 with its scales.
  void MakeFp8(const std::string& name, const std::string& scales = "F32") {
    const int rows = tensors.at(name).shape[0];
    const int columns = tensors.at(name).shape[1];
    Add(NamedTensor(name, "F8_E4M3", {rows, columns}, 1));
    Add(NamedTensor(name + "_scale_inv", scales, {(rows + 127) / 128, (columns + 127) / 128},
                    scales == "F32" ? 4 : 2));
  }

  std::vector<FileTensor> List() const {
    std::vector<FileTensor> list;
    for (const auto& [name, tensor] : tensors) list.push_back(tensor);
    return list;
  }

  // Writes the folder with all tensors in one file.
  void Write(const TestFolder& folder) const {
    folder.Write("config.json", config.dump());
    folder.Write("model.safetensors", SafetensorsText(List()));
  }
};

Model Mixtral() {
  Model model;
  model.config = {
      {"model_type", "mixtral"}, {"num_local_experts", kExperts},      {"num_experts_per_tok", 2},
      {"hidden_size", kHidden},  {"intermediate_size", kIntermediate}, {"num_hidden_layers", 2},
      {"hidden_act", "silu"},    {"torch_dtype", "bfloat16"}};
  for (int layer = 0; layer < 2; ++layer) {
    const std::string block = absl::StrCat("model.layers.", layer, ".block_sparse_moe.");
    model.AddMatrix(block + "gate.weight", kExperts, kHidden);
    for (int expert = 0; expert < kExperts; ++expert) {
      model.AddMlp(absl::StrCat(block, "experts.", expert), kHidden, kIntermediate,
                   {.gate = "w1", .up = "w3", .down = "w2"});
    }
  }
  return model;
}

// The experts of one layer whose block is called mlp.
void AddExperts(Model& model, int layer, int hidden = kHidden, int intermediate = kIntermediate) {
  const std::string block = absl::StrCat("model.layers.", layer, ".mlp.");
  model.AddMatrix(block + "gate.weight", kExperts, hidden);
  for (int expert = 0; expert < kExperts; ++expert) {
    model.AddMlp(absl::StrCat(block, "experts.", expert), hidden, intermediate);
  }
}

Model Qwen3() {
  Model model;
  model.config = {{"model_type", "qwen3_moe"},        {"num_experts", kExperts},
                  {"num_experts_per_tok", 3},         {"hidden_size", kHidden},
                  {"intermediate_size", 999},         {"moe_intermediate_size", kIntermediate},
                  {"num_hidden_layers", 1},           {"norm_topk_prob", true},
                  {"mlp_only_layers", Json::array()}, {"decoder_sparse_step", 1}};
  AddExperts(model, 0);
  return model;
}

Model Qwen2() {
  Model model = Qwen3();
  model.config["model_type"] = "qwen2_moe";
  model.config["norm_topk_prob"] = false;
  model.config["shared_expert_intermediate_size"] = 24;
  model.AddMlp("model.layers.0.mlp.shared_expert", kHidden, 24);
  model.AddMatrix("model.layers.0.mlp.shared_expert_gate.weight", 1, kHidden);
  return model;
}

Model Olmoe() {
  Model model;
  model.config = {{"model_type", "olmoe"},
                  {"num_experts", kExperts},
                  {"num_experts_per_tok", 2},
                  {"hidden_size", kHidden},
                  {"intermediate_size", kIntermediate},
                  {"num_hidden_layers", 1},
                  {"norm_topk_prob", false},
                  {"torch_dtype", "float32"}};
  AddExperts(model, 0);
  return model;
}

Model DeepseekV2() {
  Model model;
  model.config = {{"model_type", "deepseek_v2"},
                  {"n_routed_experts", kExperts},
                  {"num_experts_per_tok", 2},
                  {"hidden_size", kHidden},
                  {"intermediate_size", 999},
                  {"moe_intermediate_size", kIntermediate},
                  {"num_hidden_layers", 2},
                  {"n_shared_experts", 2},
                  {"first_k_dense_replace", 1},
                  {"n_group", 2},
                  {"topk_group", 1},
                  {"topk_method", "group_limited_greedy"},
                  {"scoring_func", "softmax"},
                  {"norm_topk_prob", false},
                  {"routed_scaling_factor", 16.0}};
  AddExperts(model, 1);
  model.AddMlp("model.layers.1.mlp.shared_experts", kHidden, 2 * kIntermediate);
  return model;
}

Model DeepseekV3(int intermediate = kFp8Intermediate, const std::string& scales = "F32") {
  Model model;
  model.config = {{"model_type", "deepseek_v3"},
                  {"n_routed_experts", kExperts},
                  {"num_experts_per_tok", 2},
                  {"hidden_size", kFp8Hidden},
                  {"moe_intermediate_size", intermediate},
                  {"num_hidden_layers", 2},
                  {"n_shared_experts", 1},
                  {"first_k_dense_replace", 1},
                  {"moe_layer_freq", 1},
                  {"n_group", 2},
                  {"topk_group", 1},
                  {"topk_method", "noaux_tc"},
                  {"scoring_func", "sigmoid"},
                  {"norm_topk_prob", true},
                  {"routed_scaling_factor", 2.5},
                  {"quantization_config",
                   {{"quant_method", "fp8"}, {"fmt", "e4m3"}, {"weight_block_size", {128, 128}}}}};
  AddExperts(model, 1, kFp8Hidden, intermediate);
  model.AddMlp("model.layers.1.mlp.shared_experts", kFp8Hidden, intermediate);
  for (const FileTensor& tensor : model.List()) {
    if (tensor.name != "model.layers.1.mlp.gate.weight") model.MakeFp8(tensor.name, scales);
  }
  model.Add(NamedTensor("model.layers.1.mlp.gate.e_score_correction_bias", scales, {kExperts},
                        scales == "F32" ? 4 : 2));
  return model;
}

absl::StatusOr<std::unique_ptr<ModelFolder>> Open(const Model& model, const TestFolder& folder) {
  model.Write(folder);
  return ModelFolder::Open(folder.path());
}

// Returns the elements row by row, as they are stored.
std::string RowMajorBytes(const HostTensor& tensor) {
  std::string bytes;
  const size_t size = BytesOf(tensor.type);
  const auto columns = static_cast<size_t>(tensor.columns);
  for (size_t row = 0; row < static_cast<size_t>(tensor.rows); ++row) {
    for (size_t column = 0; column < columns; ++column) {
      const size_t index =
          tensor.column_pitch == 0 ? row * columns + column : column * tensor.column_pitch + row;
      bytes.append(reinterpret_cast<const char*>(tensor.data) + index * size, size);
    }
  }
  return bytes;
}

// Returns the matrix of the scales of an FP8 tensor.
HostTensor ScalesOf(const HostTensor& tensor) {
  return {.type = tensor.scale_type,
          .rows = (tensor.rows + 127) / 128,
          .columns = (tensor.columns + 127) / 128,
          .data = tensor.scales,
          .column_pitch = (tensor.column_pitch + 127) / 128};
}

// Expects `tensor` to be the model's of this name, in shape, type, elements and scales.
void ExpectIs(const HostTensor& tensor, const Model& model, const std::string& name) {
  SCOPED_TRACE(name);
  const FileTensor& written = model.tensors.at(name);
  ASSERT_FALSE(tensor.empty());
  EXPECT_EQ(tensor.rows, written.shape.size() == 1 ? 1 : written.shape[0]);
  EXPECT_EQ(tensor.columns, written.shape.back());
  const std::map<std::string, TensorType> types = {{"F32", TensorType::kFloat32},
                                                   {"BF16", TensorType::kBFloat16},
                                                   {"F16", TensorType::kFloat16},
                                                   {"F8_E4M3", TensorType::kFloat8E4m3}};
  EXPECT_EQ(tensor.type, types.at(written.dtype));
  ASSERT_EQ(written.bytes.size(), static_cast<size_t>(tensor.rows) *
                                      static_cast<size_t>(tensor.columns) * BytesOf(tensor.type));
  EXPECT_TRUE(RowMajorBytes(tensor) == written.bytes);
  const auto scales = model.tensors.find(name + "_scale_inv");
  ASSERT_EQ(tensor.scales != nullptr, scales != model.tensors.end());
  if (tensor.scales != nullptr) {
    EXPECT_EQ(tensor.scale_type, types.at(scales->second.dtype));
    EXPECT_TRUE(RowMajorBytes(ScalesOf(tensor)) == scales->second.bytes);
  }
}

void ExpectIs(const MlpWeights& mlp, const Model& model, const std::string& prefix,
              const MlpNames& names = {}) {
  ExpectIs(mlp.gate, model, absl::StrCat(prefix, ".", names.gate, ".weight"));
  ExpectIs(mlp.up, model, absl::StrCat(prefix, ".", names.up, ".weight"));
  ExpectIs(mlp.down, model, absl::StrCat(prefix, ".", names.down, ".weight"));
}

void ExpectExpertsAre(const MoeLayerWeights& weights, const Model& model, int layer) {
  const std::string block = absl::StrCat("model.layers.", layer, ".mlp.");
  ExpectIs(weights.router, model, block + "gate.weight");
  ASSERT_THAT(weights.experts, SizeIs(kExperts));
  for (int expert = 0; expert < kExperts; ++expert) {
    ExpectIs(weights.experts[static_cast<size_t>(expert)], model,
             absl::StrCat(block, "experts.", expert));
  }
}

void ExpectIsEmpty(const MlpWeights& mlp) {
  EXPECT_TRUE(mlp.gate.empty() && mlp.up.empty() && mlp.down.empty());
}

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

int LastLayer(const Model& model) { return model.config["num_hidden_layers"].get<int>() - 1; }

// Returns the configuration of a layer after `change`, a merge patch of config.json.
absl::StatusOr<MoeLayerConfig> ConfigWith(Model model, const Json& change, int layer) {
  const TestFolder files;
  model.config.merge_patch(change);
  const auto folder = Open(model, files);
  return folder.ok() ? (*folder)->LayerConfig(layer) : folder.status();
}

TEST(ModelFolderConfig, OptionalMembersHaveTheDefaultsOfTransformers) {
  const Json null;
  const auto qwen = ConfigWith(Qwen3(),
                               {{"norm_topk_prob", null},
                                {"mlp_only_layers", null},
                                {"decoder_sparse_step", null},
                                {"hidden_act", null}},
                               0);
  ASSERT_TRUE(qwen.ok()) << qwen.status();
  EXPECT_EQ(qwen->router, RouterConfig());
  const Json deepseek = {{"norm_topk_prob", null},
                         {"routed_scaling_factor", null},
                         {"topk_method", null},
                         {"scoring_func", null},
                         {"n_group", null},
                         {"topk_group", null},
                         {"n_shared_experts", null},  // taken away, so that it has the default
                         {"first_k_dense_replace", null},
                         {"num_hidden_layers", 4}};
  const auto v2 = ConfigWith(DeepseekV2(), deepseek, 0);
  ASSERT_TRUE(v2.ok()) << v2.status();
  EXPECT_EQ(v2->router, RouterConfig());
  EXPECT_EQ(v2->shared_intermediate, 2 * kIntermediate);
  const auto v3 = ConfigWith(DeepseekV3(), deepseek, 3);
  ASSERT_TRUE(v3.ok()) << v3.status();
  EXPECT_EQ(v3->router, (RouterConfig{.scores = RouterScores::kSigmoid,
                                      .groups = 8,
                                      .top_groups = 4,
                                      .group_score = GroupScore::kSumOfTwoBest,
                                      .normalize = true,
                                      .normalize_epsilon = 1e-20F,
                                      .scaling = 2.5F}));
  EXPECT_EQ(v3->shared_intermediate, kFp8Intermediate);
  EXPECT_FALSE(ConfigWith(DeepseekV3(), deepseek, 2).ok());  // dense
}

TEST(ModelFolderConfig, NoSharedExperts) {
  const TestFolder files;
  Model model = DeepseekV2();
  model.config["n_shared_experts"] = nullptr;
  for (const FileTensor& tensor : model.List()) {
    if (tensor.name.find("shared_experts") != std::string::npos) model.tensors.erase(tensor.name);
  }
  const auto folder = Open(model, files);
  ASSERT_TRUE(folder.ok()) << folder.status();
  EXPECT_EQ((*folder)->LayerConfig(1)->shared_intermediate, 0);
  const auto weights = (*folder)->Weights(1);
  ASSERT_TRUE(weights.ok()) << weights.status();
  ExpectIsEmpty(weights->shared);
}

TEST(ModelFolderConfig, DeepseekV2Greedy) {
  const auto config =
      ConfigWith(DeepseekV2(), {{"topk_method", "greedy"}, {"norm_topk_prob", true}}, 1);
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->router,
            (RouterConfig{.normalize = true, .normalize_epsilon = 1e-20F, .scaling = 16.0F}));
}

TEST(ModelFolderConfig, Dtypes) {
  EXPECT_EQ(ConfigWith(Mixtral(), {{"torch_dtype", "float16"}}, 0)->dtype, DType::kFloat16);
  EXPECT_EQ(ConfigWith(Mixtral(), {{"torch_dtype", nullptr}}, 0)->dtype, DType::kBFloat16);
  EXPECT_EQ(ConfigWith(Mixtral(), {{"dtype", "float16"}}, 0)->dtype, DType::kFloat16);
  EXPECT_EQ(ConfigWith(Mixtral(), {{"torch_dtype", "float16"}, {"dtype", "bfloat16"}}, 0)->dtype,
            DType::kBFloat16);
}

TEST(ModelFolderConfig, TheNewerNameOfTheNumberOfExperts) {
  const auto config =
      ConfigWith(Qwen3(), {{"num_experts", nullptr}, {"num_local_experts", kExperts}}, 0);
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->num_experts, kExperts);
}

// Returns the layers that have a configuration; the others must be told to be dense.
std::set<int> LayersWithExperts(Model model, const Json& change) {
  const TestFolder files;
  model.config.merge_patch(change);
  const auto folder = Open(model, files);
  std::set<int> layers;
  if (!folder.ok()) {
    ADD_FAILURE() << folder.status();
    return layers;
  }
  for (int layer = 0; layer < (*folder)->num_layers(); ++layer) {
    const absl::Status status = (*folder)->LayerConfig(layer).status();
    if (status.ok()) {
      layers.insert(layer);
      continue;
    }
    EXPECT_EQ(status,
              absl::InvalidArgumentError(absl::StrCat(files.PathOf("config.json"), ": layer ",
                                                      layer, " is dense, it has no experts")));
    EXPECT_EQ((*folder)->Weights(layer).status(), status);
  }
  return layers;
}

TEST(ModelFolderConfig, WhichLayersHaveExperts) {
  EXPECT_EQ(LayersWithExperts(Mixtral(), {{"num_hidden_layers", 3}}), (std::set<int>{0, 1, 2}));
  EXPECT_EQ(LayersWithExperts(Qwen3(), {{"num_hidden_layers", 8},
                                        {"decoder_sparse_step", 2},
                                        {"mlp_only_layers", {0, 3}}}),
            (std::set<int>{1, 5, 7}));
  EXPECT_EQ(LayersWithExperts(Qwen2(), {{"num_hidden_layers", 2}, {"num_experts", 0}}),
            (std::set<int>{}));
  EXPECT_EQ(LayersWithExperts(
                DeepseekV2(),
                {{"num_hidden_layers", 7}, {"first_k_dense_replace", 1}, {"moe_layer_freq", 2}}),
            (std::set<int>{2, 4, 6}));
}

TEST(ModelFolderConfig, LayersThatDoNotExist) {
  const TestFolder files;
  const auto folder = Open(Mixtral(), files);
  ASSERT_TRUE(folder.ok()) << folder.status();
  for (const int layer : {-1, 2}) {
    const absl::Status expected = absl::InvalidArgumentError(
        absl::StrCat(files.PathOf("config.json"), ": there is no layer ", layer, ", only 0 to 1"));
    EXPECT_EQ((*folder)->LayerConfig(layer).status(), expected);
    EXPECT_EQ((*folder)->Weights(layer).status(), expected);
  }
}

struct WrongMember {
  std::string change;   // a merge patch of config.json
  std::string message;  // after the file's name
};

// Expects that config.json of `model` with each change is refused.
void ExpectRefused(const Model& model, const std::vector<WrongMember>& all) {
  for (const WrongMember& each : all) {
    SCOPED_TRACE(each.change);
    const absl::Status status =
        ConfigWith(model, Json::parse(each.change), LastLayer(model)).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(status.message()), HasSubstr("config.json: " + each.message));
  }
}

TEST(ModelFolderConfig, WrongMembersOfAnyFamily) {
  ExpectRefused(
      Mixtral(),
      {{R"({"num_local_experts": null})", "num_local_experts is missing"},
       {R"({"num_local_experts": 0})", "num_local_experts must be a whole number from 1 up, and"},
       {R"({"num_experts_per_tok": null})", "num_experts_per_tok is missing"},
       {R"({"hidden_size": null})", "hidden_size is missing"},
       {R"({"hidden_size": "9"})", "hidden_size must be a whole number from 1 up, and is \"9\""},
       {R"({"hidden_size": -16})", "hidden_size must be a whole number from 1 up, and is -16"},
       {R"({"hidden_size": 2147483648})", "hidden_size must be a whole number from 1 up, and is"},
       {R"({"hidden_size": 16.0})", "hidden_size must be a whole number from 1 up, and is 16.0"},
       {R"({"intermediate_size": null})", "intermediate_size is missing"},
       {R"({"hidden_act": "gelu"})", "hidden_act \"gelu\" is not supported; it must be 'silu'"},
       {R"({"hidden_act": 1})", "hidden_act must be a string, and is 1"},
       {R"({"torch_dtype": {}})", "torch_dtype must be a string, and is an object"}});
}

TEST(ModelFolderConfig, WrongMembersOfQwenAndOlmoe) {
  ExpectRefused(
      Qwen3(), {{R"({"num_experts": null})", "num_experts is missing"},
                {R"({"moe_intermediate_size": null})", "moe_intermediate_size is missing"},
                {R"({"norm_topk_prob": 1})", "norm_topk_prob must be true or false, and is 1"},
                {R"({"mlp_only_layers": 1})", "mlp_only_layers must be a list of whole numbers"},
                {R"({"mlp_only_layers": [-1]})", "mlp_only_layers must be a list of whole numbers"},
                {R"({"decoder_sparse_step": 0})", "decoder_sparse_step must be a whole number"}});
  ExpectRefused(Qwen2(), {{R"({"shared_expert_intermediate_size": null})",
                           "shared_expert_intermediate_size is missing"}});
  ExpectRefused(Olmoe(), {{R"({"num_experts": null})", "num_experts is missing"},
                          {R"({"intermediate_size": null})", "intermediate_size is missing"}});
}

TEST(ModelFolderConfig, WrongMembersOfDeepseek) {
  ExpectRefused(
      DeepseekV2(),
      {{R"({"n_routed_experts": null})", "n_routed_experts is missing"},
       {R"({"n_group": null})", "n_group is missing"},
       {R"({"topk_group": null})", "topk_group is missing"},
       {R"({"topk_method": "noaux_tc"})", "topk_method \"noaux_tc\" is not supported; it must be"},
       {R"({"scoring_func": "sigmoid"})", "scoring_func \"sigmoid\" is not supported; it must be"},
       {R"({"routed_scaling_factor": "1"})", "routed_scaling_factor must be a number, and is"},
       {R"({"routed_scaling_factor": 1e39})", "routed_scaling_factor must be a number, and is"},
       {R"({"moe_layer_freq": 0})", "moe_layer_freq must be a whole number from 1 up, and is 0"},
       {R"({"first_k_dense_replace": -1})", "first_k_dense_replace must be a whole number from 0"},
       {R"({"n_shared_experts": 2147483647})",
        "n_shared_experts \"2147483647\" is not supported"}});
  ExpectRefused(
      DeepseekV3(),
      {{R"({"topk_method": "greedy"})", "topk_method \"greedy\" is not supported; it must be"},
       {R"({"scoring_func": "softmax"})", "scoring_func \"softmax\" is not supported; it must be"},
       {R"({"quantization_config": 1})", "quantization_config must be an object, and is 1"},
       {R"({"quantization_config": {"quant_method": "gptq"}})",
        "quantization_config: quant_method \"gptq\" is not supported; it must be 'fp8'"},
       {R"({"quantization_config": {"fmt": "e5m2"}})",
        "quantization_config: fmt \"e5m2\" is not supported; it must be 'e4m3'"},
       {R"({"quantization_config": {"weight_block_size": [64, 128]}})",
        "quantization_config: weight_block_size \"[64, 128]\" is not supported"},
       {R"({"quantization_config": {"weight_block_size": null}})",
        "quantization_config: weight_block_size \"[]\" is not supported"}});
}

// What changes numbers is obeyed, or refused by name.
TEST(ModelFolderConfig, MembersThatChangeTheResult) {
  ExpectRefused(DeepseekV2(),
                {{R"({"mlp_bias": true})", "mlp_bias true is not supported; it must be false"},
                 {R"({"mlp_bias": "no"})", "mlp_bias must be true or false, and is \"no\""}});
  ExpectRefused(
      DeepseekV3(),
      {{R"({"quantization_config": {"scale_fmt": "ue8m0"}})",
        "quantization_config: scale_fmt \"ue8m0\" is not supported; it must be 'float'"},
       {R"({"quantization_config": {"activation_scheme": "static"}})",
        "quantization_config: activation_scheme \"static\" is not supported; it must be 'dyn"},
       {R"({"quantization_config": {"dequantize": true}})",
        "quantization_config: dequantize true is not supported; it must be false"},
       {R"({"quantization_config": {"rotation": 1}})",
        "quantization_config: 'rotation' is unknown, and the result might depend on it"}});
  const auto ignored = ConfigWith(DeepseekV3(),
                                  {{"mlp_bias", true},  // without a meaning in this family
                                   {"seq_aux", true},
                                   {"quantization_config",
                                    {{"activation_scheme", "dynamic"},
                                     {"scale_fmt", "float"},
                                     {"dequantize", false},
                                     {"modules_to_not_convert", {"lm_head"}}}}},
                                  1);
  EXPECT_TRUE(ignored.ok()) << ignored.status();
  EXPECT_TRUE(ConfigWith(DeepseekV2(), {{"mlp_bias", false}}, 1).ok());
}

// Returns the configuration if a member is null in the file, which no merge patch can say.
absl::StatusOr<MoeLayerConfig> ConfigWithNull(Model model, const std::string& member) {
  const TestFolder files;
  model.config[member] = nullptr;
  const auto folder = Open(model, files);
  return folder.ok() ? (*folder)->LayerConfig(LastLayer(model)) : folder.status();
}

TEST(ModelFolderConfig, NullIsWhatPythonMakesOfNone) {
  const auto v3 = ConfigWithNull(DeepseekV3(), "norm_topk_prob");
  ASSERT_TRUE(v3.ok()) << v3.status();
  EXPECT_FALSE(v3->router.normalize);
  EXPECT_TRUE(ConfigWithNull(DeepseekV2(), "mlp_bias").ok());
  EXPECT_TRUE(ConfigWithNull(DeepseekV3(), "quantization_config").ok());
  EXPECT_TRUE(ConfigWithNull(Qwen3(), "mlp_only_layers").ok());
  EXPECT_TRUE(ConfigWithNull(Mixtral(), "torch_dtype").ok());
  for (const std::string member : {"routed_scaling_factor", "first_k_dense_replace", "n_group"}) {
    const absl::Status status = ConfigWithNull(DeepseekV3(), member).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(status.message()),
                HasSubstr("config.json: " + member + " is null; remove it for its default"));
  }
}

TEST(ModelFolderConfig, NumbersThatJsonDoesNotHave) {
  const TestFolder files;
  const auto message_of = [&](const std::string& value) {
    files.Write("config.json", "{\n  \"routed_scaling_factor\": " + value + "\n}");
    return std::string(ModelFolder::Open(files.path()).status().message());
  };
  for (const std::string name : {"NaN", "Infinity"}) {
    for (const std::string sign : {"", "-"}) {
      EXPECT_THAT(message_of(sign + name),
                  AllOf(HasSubstr("config.json is no JSON: parse error at line 2, column "),
                        HasSubstr("; " + name + " is no number of JSON: write a finite one")));
    }
  }
  EXPECT_THAT(message_of("1e999"), HasSubstr("is no JSON: number overflow parsing '1e999'"));
  EXPECT_LT(message_of(std::string(100'000, '9') + "e999").size(), 500U);
  EXPECT_LT(message_of("\"" + std::string(100'000, 'x')).size(), 500U);
}

TEST(ModelFolderConfig, FilesThatCannotBeOpened) {
  const TestFolder files;
  const std::string path = files.PathOf("config.json");
  EXPECT_EQ(ModelFolder::Open(files.path()).status(),
            absl::NotFoundError(absl::StrCat("cannot read ", path, ": No such file or directory")));
  const auto status_of = [&](const std::string& text) {
    files.Write("config.json", text);
    return ModelFolder::Open(files.path()).status();
  };
  EXPECT_EQ(status_of("{"), absl::InvalidArgumentError(
                                path + " is no JSON: parse error at line 1, column 2: syntax error "
                                       "while parsing object key - unexpected end of input; "
                                       "expected string literal"));
  EXPECT_EQ(status_of("[]"), absl::InvalidArgumentError(path + " is no JSON object"));
  EXPECT_EQ(status_of(std::string(1'000'000, '[')),
            absl::InvalidArgumentError(path + " is no JSON: parse error at line 1, column 1000001: "
                                              "syntax error while parsing value - unexpected end "
                                              "of input; expected '[', '{', or a literal"));
  EXPECT_EQ(status_of(std::string(2 << 20, ' ')),
            absl::InvalidArgumentError(path + " has more than 1048576 bytes"));
  EXPECT_EQ(status_of("{}"), absl::InvalidArgumentError(path + ": model_type is missing"));
  EXPECT_EQ(status_of(R"({"model_type": "llama"})"),
            absl::UnimplementedError(
                path + ": model_type \"llama\" is not one of mixtral, qwen2_moe, qwen3_moe, olmoe, "
                       "deepseek_v2, deepseek_v3"));
  EXPECT_EQ(status_of(R"({"model_type": "olmoe"})"),
            absl::InvalidArgumentError(path + ": num_hidden_layers is missing"));
  EXPECT_EQ(status_of(Mixtral().config.dump()),
            absl::NotFoundError(files.path() + " has no *.safetensors files"));
}

TEST(ModelFolderFiles, NamesWithoutTheLeadingModel) {
  const TestFolder files;
  const Model model = Qwen2();
  Model renamed;
  renamed.config = model.config;
  for (FileTensor tensor : model.List()) {
    tensor.name = tensor.name.substr(std::string("model.").size());
    renamed.Add(tensor);
  }
  const auto folder = Open(renamed, files);
  ASSERT_TRUE(folder.ok()) << folder.status();
  const auto weights = (*folder)->Weights(0);
  ASSERT_TRUE(weights.ok()) << weights.status();
  ExpectExpertsAre(*weights, model, 0);
  ExpectIs(weights->shared_gate, model, "model.layers.0.mlp.shared_expert_gate.weight");
}

TEST(ModelFolderFiles, OtherDtypes) {
  const TestFolder files;
  Model model = Olmoe();
  for (const FileTensor& tensor : model.List()) {
    const bool half = tensor.name == "model.layers.0.mlp.experts.1.up_proj.weight";
    model.Add(NamedTensor(tensor.name, half ? "F16" : "F32", tensor.shape, half ? 2 : 4));
  }
  const auto folder = Open(model, files);
  ASSERT_TRUE(folder.ok()) << folder.status();
  const auto weights = (*folder)->Weights(0);
  ASSERT_TRUE(weights.ok()) << weights.status();
  ExpectExpertsAre(*weights, model, 0);
  EXPECT_EQ(weights->router.type, TensorType::kFloat32);
  EXPECT_EQ(weights->experts[1].up.type, TensorType::kFloat16);
}

// Two shards, with an index or without, and a file that is none of the model's.
class ShardsTest : public testing::Test {
 protected:
  ShardsTest() {
    files_.Write("config.json", model_.config.dump());
    const std::vector<FileTensor> all = model_.List();
    const auto middle = all.begin() + static_cast<int64_t>(all.size() / 3);
    first_.assign(all.begin(), middle);
    second_.assign(middle, all.end());
    for (const FileTensor& tensor : first_) index_["weight_map"][tensor.name] = "a.safetensors";
    for (const FileTensor& tensor : second_) index_["weight_map"][tensor.name] = "b.safetensors";
    files_.Write("a.safetensors", SafetensorsText(first_));
    files_.Write("b.safetensors", SafetensorsText(second_));
  }

  void WriteIndex() { files_.Write(kIndex, index_.dump()); }

  absl::Status OpenStatus() { return ModelFolder::Open(files_.path()).status(); }

  absl::Status WeightsStatus() {
    const auto folder = ModelFolder::Open(files_.path());
    return folder.ok() ? (*folder)->Weights(0).status() : folder.status();
  }

  void ExpectAllTensors() {
    const auto folder = ModelFolder::Open(files_.path());
    ASSERT_TRUE(folder.ok()) << folder.status();
    const auto weights = (*folder)->Weights(0);
    ASSERT_TRUE(weights.ok()) << weights.status();
    ExpectExpertsAre(*weights, model_, 0);
  }

  static constexpr absl::string_view kIndex = "model.safetensors.index.json";
  static constexpr absl::string_view kLfsPointer =
      "version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 4998663696\n";
  const Model model_ = Qwen3();
  const TestFolder files_;
  std::vector<FileTensor> first_;
  std::vector<FileTensor> second_;
  Json index_ = {{"metadata", {{"total_size", 1}}}, {"weight_map", Json::object()}};
};

TEST_F(ShardsTest, WithoutAnIndexAllFilesAreRead) { ExpectAllTensors(); }

TEST_F(ShardsTest, WithAnIndexItsFilesAreRead) {
  WriteIndex();
  files_.Write("c.safetensors", "not named, and not read");
  ExpectAllTensors();
}

TEST_F(ShardsTest, WithoutAnIndexADamagedFileIsAnError) {
  files_.Write("c.safetensors", "damaged, and read");
  const absl::Status status = OpenStatus();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("/c.safetensors: damaged header"));
}

TEST_F(ShardsTest, ATruncatedShard) {
  WriteIndex();
  const std::string text = SafetensorsText(second_);
  files_.Write("b.safetensors", text.substr(0, text.size() - 1));
  const absl::Status status = OpenStatus();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("/b.safetensors: tensor '"), HasSubstr("of which the file has")));
}

// The tensors count that are in the files, wherever the index puts them.
TEST_F(ShardsTest, AnIndexThatIsOld) {
  index_["weight_map"][second_.front().name] = "a.safetensors";
  index_["weight_map"]["mtp.fc.weight"] = "b.safetensors";
  index_["weight_map"]["model.layers.7.mlp.gate.weight"] = "there_is_no.safetensors";
  WriteIndex();
  ExpectAllTensors();
}

TEST_F(ShardsTest, ATensorThatOnlyTheIndexHas) {
  const std::string name = second_.front().name;
  files_.Write("b.safetensors",
               SafetensorsText(std::vector<FileTensor>(second_.begin() + 1, second_.end())));
  WriteIndex();
  EXPECT_EQ(WeightsStatus(), absl::NotFoundError(absl::StrCat(
                                 files_.PathOf("b.safetensors"), " has no tensor '", name,
                                 "', which ", files_.PathOf(kIndex), " puts there")));
}

// Of which shards are downloaded that hold the layer.
TEST_F(ShardsTest, AShardThatIsNotThere) {
  WriteIndex();
  const std::string b = files_.PathOf("b.safetensors");
  files_.Write("b.safetensors", kLfsPointer);
  for (const bool pointer : {true, false}) {
    if (!pointer) files_.Remove("b.safetensors");
    const absl::Status status = WeightsStatus();
    EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
    EXPECT_THAT(std::string(status.message()),
                AllOf(HasSubstr(b), HasSubstr(pointer ? "git lfs pull" : "No such file"),
                      HasSubstr(files_.PathOf(kIndex) + " puts tensor 'model.layers.0.mlp.")));
  }
  files_.Remove("a.safetensors");
  EXPECT_EQ(OpenStatus(),
            absl::NotFoundError(absl::StrCat("cannot read ", files_.PathOf("a.safetensors"),
                                             ": No such file or directory")));
}

// As in `transformers`.
TEST_F(ShardsTest, OneFileCountsMoreThanAnIndex) {
  WriteIndex();
  files_.Write("a.safetensors", "damaged, and not read");
  files_.Write("model.safetensors", SafetensorsText(model_.List()));
  ExpectAllTensors();
  files_.Write("model.safetensors", SafetensorsText(first_));
  EXPECT_EQ(WeightsStatus().code(), absl::StatusCode::kNotFound);
}

TEST_F(ShardsTest, FilesOfTheSystemAreIgnored) {
  files_.Write("._a.safetensors", "what macOS puts beside files");
  files_.Write(".safetensors", "no name at all");
  ExpectAllTensors();
}

TEST_F(ShardsTest, PointersOfGitLfs) {
  const std::string what =
      " is a pointer of git-lfs, and not the file itself; install git-lfs and run `git lfs pull` "
      "in its folder";
  files_.Write(kIndex, kLfsPointer);
  EXPECT_EQ(OpenStatus(), absl::NotFoundError(files_.PathOf(kIndex) + what));
  files_.Remove(kIndex);
  files_.Write("b.safetensors", kLfsPointer);
  EXPECT_EQ(OpenStatus(), absl::NotFoundError(files_.PathOf("b.safetensors") + what));
  files_.Write("config.json", kLfsPointer);
  EXPECT_EQ(OpenStatus(), absl::NotFoundError(files_.PathOf("config.json") + what));
}

TEST_F(ShardsTest, ATensorInTwoFiles) {
  first_.push_back(second_.back());
  files_.Write("a.safetensors", SafetensorsText(first_));
  const absl::Status expected = absl::InvalidArgumentError(
      absl::StrCat("tensor '", second_.back().name, "' is in ", files_.PathOf("a.safetensors"),
                   " and in ", files_.PathOf("b.safetensors")));
  EXPECT_EQ(OpenStatus(), expected);
  WriteIndex();
  EXPECT_EQ(OpenStatus(), expected);
}

TEST_F(ShardsTest, AnIndexThatIsNone) {
  const std::string path = files_.PathOf(kIndex);
  for (const std::string text : {"{}", R"({"weight_map": []})"}) {
    files_.Write(kIndex, text);
    EXPECT_EQ(OpenStatus(), absl::InvalidArgumentError(path + " has no object weight_map"));
  }
  files_.Write(kIndex, "{\n[");
  EXPECT_THAT(std::string(OpenStatus().message()),
              HasSubstr(path + " is no JSON: parse error at line 2, column 1: "));
  for (const Json& file : {Json("../a.safetensors"), Json("/etc/passwd"), Json("a.bin"), Json(3)}) {
    index_["weight_map"][first_.front().name] = file;
    WriteIndex();
    EXPECT_EQ(OpenStatus(), absl::InvalidArgumentError(absl::StrCat(
                                path, ": tensor '", first_.front().name, "' is in ", file.dump(),
                                ", which is no name of a *.safetensors file")));
  }
}

TEST(ModelFolderFiles, EveryTensorIsNeeded) {
  for (const Model& model : {Mixtral(), Qwen2(), Qwen3(), Olmoe(), DeepseekV2(), DeepseekV3()}) {
    const int layer = LastLayer(model);
    for (const FileTensor& tensor : model.List()) {
      if (tensor.name.find(absl::StrCat("layers.", layer)) == std::string::npos) continue;
      SCOPED_TRACE(tensor.name);
      const TestFolder files;
      Model without = model;
      without.tensors.erase(tensor.name);
      const auto folder = Open(without, files);
      ASSERT_TRUE(folder.ok()) << folder.status();
      EXPECT_EQ(
          (*folder)->Weights(layer).status(),
          absl::NotFoundError(absl::StrCat(files.path(), " has no tensor '", tensor.name, "'")));
    }
  }
}

TEST(ModelFolderFiles, EveryShapeIsChecked) {
  for (const Model& model : {Qwen2(), DeepseekV3()}) {
    const int layer = LastLayer(model);
    for (const FileTensor& tensor : model.List()) {
      SCOPED_TRACE(tensor.name);
      const size_t bytes = tensor.dtype == "F32" ? 4 : tensor.dtype == "BF16" ? 2 : 1;
      for (size_t dimension = 0; dimension <= tensor.shape.size(); ++dimension) {
        std::vector<int> shape = tensor.shape;
        if (dimension < shape.size()) {
          ++shape[dimension];
        } else {
          shape.push_back(1);
        }
        const TestFolder files;
        Model wrong = model;
        wrong.Add(NamedTensor(tensor.name, tensor.dtype, shape, bytes));
        const auto folder = Open(wrong, files);
        ASSERT_TRUE(folder.ok()) << folder.status();
        EXPECT_EQ((*folder)->Weights(layer).status(),
                  absl::InvalidArgumentError(
                      absl::StrCat(files.PathOf("model.safetensors"), ": tensor '", tensor.name,
                                   "' has the shape [", absl::StrJoin(shape, ", "),
                                   "], and must have [", absl::StrJoin(tensor.shape, ", "), "]")));
      }
    }
  }
}

// ---- All experts in two tensors

size_t BytesOfDtype(const std::string& dtype) {
  return dtype == "F32" ? 4 : dtype == "F8_E4M3" ? 1 : 2;
}

std::string Transposed(const FileTensor& matrix) {
  const auto rows = static_cast<size_t>(matrix.shape[0]);
  const auto columns = static_cast<size_t>(matrix.shape[1]);
  const size_t size = BytesOfDtype(matrix.dtype);
  std::string bytes;
  for (size_t column = 0; column < columns; ++column) {
    for (size_t row = 0; row < rows; ++row) {
      bytes += matrix.bytes.substr((row * columns + column) * size, size);
    }
  }
  return bytes;
}

// Returns the tensor of all experts' matrices `parts`, those of an expert below each other.
FileTensor Fused(const Model& model, const std::string& block,
                 const std::vector<std::string>& parts, bool transposed) {
  FileTensor fused;
  for (int expert = 0; expert < kExperts; ++expert) {
    FileTensor matrix;
    for (const std::string& part : parts) {
      const FileTensor& of_part =
          model.tensors.at(absl::StrCat(block, "experts.", expert, ".", part));
      const int above = matrix.shape.empty() ? 0 : matrix.shape[0];
      matrix.dtype = of_part.dtype;
      matrix.shape = {above + of_part.shape[0], of_part.shape[1]};
      matrix.bytes += of_part.bytes;
    }
    fused.dtype = matrix.dtype;
    fused.bytes += transposed ? Transposed(matrix) : matrix.bytes;
    fused.shape = {kExperts, matrix.shape[transposed ? 1 : 0], matrix.shape[transposed ? 0 : 1]};
  }
  return fused;
}

// Returns the model with all experts of its last layer in two tensors.
Model WithFusedExperts(const Model& model, bool transposed) {
  const bool mixtral = model.config["model_type"] == "mixtral";
  const std::string layer = absl::StrCat("model.layers.", LastLayer(model), ".");
  const std::string block = layer + (mixtral ? "block_sparse_moe." : "mlp.");
  const MlpNames names = mixtral ? MlpNames{.gate = "w1", .up = "w3", .down = "w2"} : MlpNames();
  Model fused;
  fused.config = model.config;
  for (FileTensor tensor : model.List()) {
    if (tensor.name.find(block + "experts.") == 0) continue;
    if (tensor.name == block + "gate.weight") tensor.name = layer + "mlp.gate.weight";
    fused.Add(tensor);
  }
  const bool fp8 = model.tensors.contains(block + "experts.0." + names.up + ".weight_scale_inv");
  for (const std::string scales : {"", "_scale_inv"}) {
    if (!scales.empty() && !fp8) continue;
    const auto add = [&](const std::string& name, const std::vector<std::string>& parts) {
      std::vector<std::string> all;
      for (const std::string& part : parts) all.push_back(absl::StrCat(part, ".weight", scales));
      FileTensor tensor = Fused(model, block, all, transposed);
      tensor.name = absl::StrCat(layer, "mlp.experts.", name, scales);
      fused.Add(tensor);
    };
    add("gate_up_proj", {names.gate, names.up});
    add("down_proj", {names.down});
  }
  return fused;
}

// Of another shape than the constants', none of whose matrices are square.
Model WideOlmoe() {
  Model model = Olmoe();
  model.config["intermediate_size"] = 24;
  AddExperts(model, 0, kHidden, 24);
  return model;
}

// Where down is square; with the constants, gate with up is.
Model SquareOlmoe() {
  Model model = Olmoe();
  model.config["intermediate_size"] = kHidden;
  AddExperts(model, 0, kHidden, kHidden);
  return model;
}

TEST(ModelFolderFused, BothFormsOfAllFamilies) {
  for (const Model& model : {Mixtral(), Qwen2(), Qwen3(), Olmoe(), DeepseekV2(), DeepseekV3(256),
                             DeepseekV3(256, "BF16"), WideOlmoe(), SquareOlmoe()}) {
    const int layer = LastLayer(model);
    const bool mixtral = model.config["model_type"] == "mixtral";
    for (const bool transposed : {false, true}) {
      SCOPED_TRACE(absl::StrCat(model.config["model_type"].dump(), " ", transposed));
      const TestFolder files;
      const auto folder = Open(WithFusedExperts(model, transposed), files);
      ASSERT_TRUE(folder.ok()) << folder.status();
      const bool fp8 = model.config.contains("quantization_config");
      EXPECT_EQ((*folder)->LayerConfig(layer)->weights, fp8 ? GemmFormat::kFp8 : GemmFormat::kSame);
      const auto weights = (*folder)->Weights(layer);
      ASSERT_TRUE(weights.ok()) << weights.status();
      EXPECT_EQ(weights->experts[0].gate.column_pitch != 0, transposed);
      if (!mixtral) {
        ExpectExpertsAre(*weights, model, layer);
        continue;
      }
      ExpectIs(weights->router, model, "model.layers.1.block_sparse_moe.gate.weight");
      ASSERT_THAT(weights->experts, SizeIs(kExperts));
      for (int expert = 0; expert < kExperts; ++expert) {
        ExpectIs(weights->experts[static_cast<size_t>(expert)], model,
                 absl::StrCat("model.layers.1.block_sparse_moe.experts.", expert),
                 {.gate = "w1", .up = "w3", .down = "w2"});
      }
    }
  }
}

TEST(ModelFolderFused, EachLayerHasItsForm) {
  const TestFolder files;
  const auto folder = Open(WithFusedExperts(Mixtral(), false), files);
  ASSERT_TRUE(folder.ok()) << folder.status();
  for (const int layer : {0, 1}) {
    const auto weights = (*folder)->Weights(layer);
    EXPECT_TRUE(weights.ok()) << weights.status();
  }
}

// Returns the status of Weights() of the last layer.
absl::Status WeightsStatus(const Model& model, const TestFolder& files) {
  const auto folder = Open(model, files);
  return folder.ok() ? (*folder)->Weights(LastLayer(model)).status() : folder.status();
}

TEST(ModelFolderFused, EveryTensorIsNeeded) {
  for (const Model& model : {Mixtral(), Qwen3(), DeepseekV3(256), SquareOlmoe()}) {
    const Model fused = WithFusedExperts(model, false);
    const std::string block = absl::StrCat("model.layers.", LastLayer(model), ".mlp.");
    for (const FileTensor& tensor : fused.List()) {
      if (tensor.name.find(block) != 0) continue;
      SCOPED_TRACE(tensor.name);
      const TestFolder files;
      Model without = fused;
      without.tensors.erase(tensor.name);
      EXPECT_EQ(
          WeightsStatus(without, files),
          absl::NotFoundError(absl::StrCat(files.path(), " has no tensor '", tensor.name, "'")));
    }
  }
}

TEST(ModelFolderFused, NoFormAtAll) {
  const TestFolder files;
  Model model = WithFusedExperts(Olmoe(), false);
  model.tensors.erase("model.layers.0.mlp.experts.gate_up_proj");
  model.tensors.erase("model.layers.0.mlp.experts.down_proj");
  EXPECT_EQ(WeightsStatus(model, files),
            absl::NotFoundError(absl::StrCat(
                files.path(), " has neither tensor 'model.layers.0.mlp.experts.0.gate_proj.weight'",
                " nor 'model.layers.0.mlp.experts.gate_up_proj'")));
}

TEST(ModelFolderFused, BothFormsAtOnce) {
  for (const Model& model : {Mixtral(), Qwen3()}) {
    const Model fused = WithFusedExperts(model, false);
    const std::string layer = absl::StrCat("model.layers.", LastLayer(model), ".");
    const std::string own = model.config["model_type"] == "mixtral"
                                ? layer + "block_sparse_moe.experts.2.w3.weight"
                                : layer + "mlp.experts.2.up_proj.weight";
    for (const std::string all : {"gate_up_proj", "down_proj"}) {
      const TestFolder files;
      Model both = fused;
      both.Add(model.tensors.at(own));
      if (all == "down_proj") both.tensors.erase(layer + "mlp.experts.gate_up_proj");
      EXPECT_EQ(WeightsStatus(both, files), absl::InvalidArgumentError(absl::StrCat(
                                                files.path(), " has both tensor '", layer,
                                                "mlp.experts.", all, "' of all experts and '", own,
                                                "' of one; a layer must have one form of them")));
    }
  }
}

// Returns the message about a fused tensor of another shape.
std::string WithShape(Model model, bool transposed, const std::string& name,
                      const std::vector<int>& shape) {
  const TestFolder files;
  model = WithFusedExperts(model, transposed);
  const std::string whole = absl::StrCat("model.layers.", LastLayer(model), ".mlp.experts.", name);
  const std::string dtype = model.tensors.at(whole).dtype;
  model.Add(NamedTensor(whole, dtype, shape, BytesOfDtype(dtype)));
  const absl::Status status = WeightsStatus(model, files);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  const std::string message(status.message());
  const std::string where =
      absl::StrCat(files.PathOf("model.safetensors"), ": tensor '", whole, "' has the shape ");
  EXPECT_EQ(message.find(where), 0U) << message;
  return message.substr(std::min(where.size(), message.size()));
}

TEST(ModelFolderFused, EveryShapeIsChecked) {
  const std::string gate_up = "since 'model.layers.0.mlp.experts.gate_up_proj' is ";
  const std::string down = "since 'model.layers.0.mlp.experts.down_proj' is ";
  EXPECT_EQ(WithShape(WideOlmoe(), false, "gate_up_proj", {4, 48, 17}),
            "[4, 48, 17], and must have [4, 48, 16] or, transposed, [4, 16, 48]");
  EXPECT_EQ(WithShape(WideOlmoe(), false, "gate_up_proj", {4 * 48, 16}),
            "[192, 16], and must have [4, 48, 16] or, transposed, [4, 16, 48]");
  EXPECT_EQ(WithShape(WideOlmoe(), false, "down_proj", {4, 24, 16}),
            "[4, 24, 16], and must have [4, 16, 24], " + gate_up + "not transposed");
  EXPECT_EQ(WithShape(WideOlmoe(), true, "down_proj", {4, 16, 24}),
            "[4, 16, 24], and must have [4, 24, 16], " + gate_up + "transposed");
  EXPECT_EQ(WithShape(WideOlmoe(), true, "down_proj", {3, 24, 16}),
            "[3, 24, 16], and must have [4, 24, 16], " + gate_up + "transposed");
  // gate with up is square
  EXPECT_EQ(WithShape(Olmoe(), false, "gate_up_proj", {4, 17, 16}),
            "[4, 17, 16], and must have [4, 16, 16], " + down + "not transposed");
  EXPECT_EQ(WithShape(Olmoe(), true, "down_proj", {4, 8, 17}),
            "[4, 8, 17], and must have [4, 16, 8] or, transposed, [4, 8, 16]");
  EXPECT_EQ(WithShape(SquareOlmoe(), true, "down_proj", {5, 16, 16}),
            "[5, 16, 16], and must have [4, 16, 16], " + gate_up + "transposed");
  // scales, [ceil(2 I / 128)][ceil(H / 128)] of an expert
  EXPECT_EQ(WithShape(DeepseekV3(256), false, "gate_up_proj_scale_inv", {4, 3, 4}),
            "[4, 3, 4], and must have [4, 4, 3]");
  EXPECT_EQ(WithShape(DeepseekV3(256), true, "gate_up_proj_scale_inv", {4, 4, 3}),
            "[4, 4, 3], and must have [4, 3, 4]");
  EXPECT_EQ(WithShape(DeepseekV3(256), false, "down_proj_scale_inv", {4, 4, 2}),
            "[4, 4, 2], and must have [4, 3, 2]");
}

TEST(ModelFolderFused, EveryDtypeIsChecked) {
  const std::string down = "model.layers.1.mlp.experts.down_proj";
  const auto message = [](const Model& model) {
    const TestFolder files;
    const absl::Status status = WeightsStatus(model, files);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    return std::string(status.message());
  };
  Model model = WithFusedExperts(DeepseekV2(), false);
  model.Add(NamedTensor(down, "I32", {4, 16, 8}, 4));
  EXPECT_THAT(message(model), HasSubstr("down_proj' has the dtype I32, and must have F32 or BF16"));
  model = WithFusedExperts(DeepseekV3(256), false);
  model.Add(NamedTensor(down, "BF16", {4, kFp8Hidden, 256}, 2));
  EXPECT_THAT(message(model),
              HasSubstr("layer 1: weights of expert 0 are bf16, and others are fp8"));
  model = WithFusedExperts(DeepseekV3(256), false);
  model.Add(NamedTensor(down + "_scale_inv", "I32", {4, 3, 2}, 4));
  EXPECT_THAT(message(model), HasSubstr("_scale_inv' has the dtype I32, and must have F32 or"));
}

// Such as biases, of experts that config.json does not count, or of another family.
TEST(ModelFolderFiles, TensorsOfTheBlockThatNobodyReads) {
  for (const Model& model : {Mixtral(), Qwen2(), DeepseekV2(), DeepseekV3(256)}) {
    const bool mixtral = model.config["model_type"] == "mixtral";
    const std::string layer = absl::StrCat("model.layers.", LastLayer(model), ".");
    const std::string block = layer + (mixtral ? "block_sparse_moe." : "mlp.");
    const Model fused = WithFusedExperts(model, false);
    for (const std::string& name :
         {block + "experts.0.gate_proj.bias", block + "experts.9.up_proj.weight",
          block + "gate.bias", block + "shared_experts.down_proj.bias",
          block + "gate.weight_scale_inv", layer + "mlp.experts.down_proj_bias"}) {
      for (const Model& form : {model, fused}) {
        SCOPED_TRACE(name);
        Model other = form;
        other.Add(NamedTensor(name, "BF16", {3}, 2));
        const TestFolder files;
        EXPECT_EQ(WeightsStatus(other, files),
                  absl::InvalidArgumentError(absl::StrCat(
                      files.PathOf("model.safetensors"), ": tensor '", name,
                      "' is none of the layer's that Octet knows, and y might depend on it; take "
                      "it out of the file if y does not")));
      }
    }
    Model other = model;  // neither the layer's nor its block's
    other.Add(NamedTensor(layer + "self_attn.q_proj.bias", "BF16", {3}, 2));
    other.Add(NamedTensor(layer + "mlp2.bias", "BF16", {3}, 2));
    const TestFolder files;
    EXPECT_TRUE(WeightsStatus(other, files).ok());
  }
}

TEST(ModelFolderFused, GateAndUpMustNotShareScales) {
  const TestFolder files;
  Model model = WithFusedExperts(DeepseekV3(), false);
  // As quantizing both together gives it.
  const std::string gate_up = "model.layers.1.mlp.experts.gate_up_proj";
  model.Add(NamedTensor(gate_up + "_scale_inv", "F32", {4, 3, 3}, 4));
  EXPECT_EQ(WeightsStatus(model, files),
            absl::InvalidArgumentError(absl::StrCat(
                files.path(), ": tensor '", gate_up,
                "' is FP8, and 144 rows of gate and of up share scales; they must be a multiple of "
                "128")));
}

// Returns the status of Weights(layer) with one tensor of another dtype.
absl::Status WithDtype(Model model, int layer, const std::string& name, const std::string& dtype) {
  const TestFolder files;
  const std::map<std::string, size_t> bytes = {
      {"F32", 4}, {"I32", 4}, {"BF16", 2}, {"F8_E4M3", 1}, {"F8_E5M2", 1}};
  model.Add(NamedTensor(name, dtype, model.tensors.at(name).shape, bytes.at(dtype)));
  const auto folder = Open(model, files);
  return folder.ok() ? (*folder)->Weights(layer).status() : folder.status();
}

TEST(ModelFolderFiles, EveryDtypeIsChecked) {
  const std::string mlp = "model.layers.1.mlp.";
  const auto expect = [&](const absl::Status& status, const std::string& message) {
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(status.message()), HasSubstr(message));
  };
  expect(WithDtype(DeepseekV2(), 1, mlp + "gate.weight", "I32"),
         "gate.weight' has the dtype I32, and must have F32 or BF16 or F16");
  expect(WithDtype(DeepseekV2(), 1, mlp + "gate.weight", "F8_E4M3"),
         "gate.weight' has the dtype F8_E4M3, and must have F32 or BF16 or F16");
  expect(WithDtype(DeepseekV2(), 1, mlp + "experts.2.up_proj.weight", "F8_E5M2"),
         "up_proj.weight' has the dtype F8_E5M2, and must have F32 or BF16 or F16");
  expect(WithDtype(DeepseekV3(), 1, mlp + "gate.e_score_correction_bias", "I32"),
         "e_score_correction_bias' has the dtype I32, and must have F32 or BF16 or F16");
  expect(WithDtype(DeepseekV3(), 1, mlp + "experts.2.up_proj.weight_scale_inv", "F8_E4M3"),
         "weight_scale_inv' has the dtype F8_E4M3, and must have F32 or BF16 or F16");
  // One expert of another format than the others.
  expect(WithDtype(DeepseekV3(), 1, mlp + "experts.2.up_proj.weight", "BF16"),
         "layer 1: weights of expert 2 are bf16, and others are fp8; all must be, or none");
  Model model = DeepseekV2();
  model.MakeFp8(mlp + "experts.3.down_proj.weight");
  const TestFolder files;
  const auto folder = Open(model, files);
  ASSERT_TRUE(folder.ok()) << folder.status();
  EXPECT_EQ((*folder)->LayerConfig(1)->weights, GemmFormat::kSame);
  expect((*folder)->Weights(1).status(),
         "layer 1: weights of expert 3 are fp8, and others are not fp8; all must be, or none");
}

TEST(ModelFolder, TheNamesOfFamiliesAndTypes) {
  EXPECT_EQ(EnumNames<ModelFamily>(),
            "mixtral, qwen2_moe, qwen3_moe, olmoe, deepseek_v2, deepseek_v3");
  EXPECT_EQ(EnumNames<TensorType>(), "fp32, bf16, fp16, fp8");
  EXPECT_EQ(BytesOf(TensorType::kFloat32), 4U);
  EXPECT_EQ(BytesOf(TensorType::kBFloat16), 2U);
  EXPECT_EQ(BytesOf(TensorType::kFloat16), 2U);
  EXPECT_EQ(BytesOf(TensorType::kFloat8E4m3), 1U);
}

}  // namespace
}  // namespace octet
