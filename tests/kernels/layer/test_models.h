// Model folders in the making: a small model of each family, and what its layers' weights must be.
#ifndef OCTET_TESTS_KERNELS_LAYER_TEST_MODELS_H_
#define OCTET_TESTS_KERNELS_LAYER_TEST_MODELS_H_

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "octet/model_folder.h"
#include "octet/moe_weights.h"
#include "tests/support/model_files.h"

namespace octet {

using Json = nlohmann::json;

inline constexpr int kExperts = 4;
inline constexpr int kHidden = 16;
inline constexpr int kIntermediate = 8;

// Shapes whose last blocks of 128 rows and columns are not whole.
inline constexpr int kFp8Hidden = 272;
inline constexpr int kFp8Intermediate = 144;

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

inline Model Mixtral() {
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
inline void AddExperts(Model& model, int layer, int hidden = kHidden,
                       int intermediate = kIntermediate) {
  const std::string block = absl::StrCat("model.layers.", layer, ".mlp.");
  model.AddMatrix(block + "gate.weight", kExperts, hidden);
  for (int expert = 0; expert < kExperts; ++expert) {
    model.AddMlp(absl::StrCat(block, "experts.", expert), hidden, intermediate);
  }
}

inline Model Qwen3() {
  Model model;
  model.config = {{"model_type", "qwen3_moe"},        {"num_experts", kExperts},
                  {"num_experts_per_tok", 3},         {"hidden_size", kHidden},
                  {"intermediate_size", 999},         {"moe_intermediate_size", kIntermediate},
                  {"num_hidden_layers", 1},           {"norm_topk_prob", true},
                  {"mlp_only_layers", Json::array()}, {"decoder_sparse_step", 1}};
  AddExperts(model, 0);
  return model;
}

inline Model Qwen2() {
  Model model = Qwen3();
  model.config["model_type"] = "qwen2_moe";
  model.config["norm_topk_prob"] = false;
  model.config["shared_expert_intermediate_size"] = 24;
  model.AddMlp("model.layers.0.mlp.shared_expert", kHidden, 24);
  model.AddMatrix("model.layers.0.mlp.shared_expert_gate.weight", 1, kHidden);
  return model;
}

inline Model Olmoe() {
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

inline Model DeepseekV2() {
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

inline Model DeepseekV3(int intermediate = kFp8Intermediate, const std::string& scales = "F32") {
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

// Rows of gate and up alternate; matrices are MXFP4, or transposed BF16.
inline Model GptOss(bool mxfp4) {
  constexpr int kSize = 64;  // H
  constexpr int kBetween = 32;
  Model model;
  model.config = {{"model_type", "gpt_oss"},       {"num_local_experts", kExperts},
                  {"num_experts_per_tok", 2},      {"hidden_size", kSize},
                  {"intermediate_size", kBetween}, {"num_hidden_layers", 1},
                  {"swiglu_limit", 7.0},           {"hidden_act", "silu"}};
  const std::string block = "model.layers.0.mlp.";
  const std::string experts = block + "experts.";
  model.AddMatrix(block + "router.weight", kExperts, kSize);
  model.Add(NamedTensor(block + "router.bias", "BF16", {kExperts}, 2));
  model.AddMatrix(experts + "gate_up_proj_bias", kExperts, 2 * kBetween);
  model.AddMatrix(experts + "down_proj_bias", kExperts, kSize);
  if (!mxfp4) {
    model.Add(NamedTensor(experts + "gate_up_proj", "BF16", {kExperts, kSize, 2 * kBetween}, 2));
    model.Add(NamedTensor(experts + "down_proj", "BF16", {kExperts, kBetween, kSize}, 2));
    return model;
  }
  model.config["quantization_config"] = {{"quant_method", "mxfp4"},
                                         {"modules_to_not_convert", {"lm_head"}}};
  const auto add = [&](const std::string& name, int rows, int columns) {
    model.Add(NamedTensor(experts + name + "_blocks", "U8", {kExperts, rows, columns / 32, 16}, 1));
    model.Add(NamedTensor(experts + name + "_scales", "U8", {kExperts, rows, columns / 32}, 1));
  };
  add("gate_up_proj", 2 * kBetween, kSize);
  add("down_proj", kSize, kBetween);
  return model;
}

inline absl::StatusOr<std::unique_ptr<ModelFolder>> Open(const Model& model,
                                                         const TestFolder& folder) {
  model.Write(folder);
  return ModelFolder::Open(folder.path());
}

// Returns the elements row by row, as they are stored.
inline std::string RowMajorBytes(const HostTensor& tensor) {
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
inline HostTensor ScalesOf(const HostTensor& tensor) {
  return {.type = tensor.scale_type,
          .rows = (tensor.rows + 127) / 128,
          .columns = (tensor.columns + 127) / 128,
          .data = tensor.scales,
          .column_pitch = (tensor.column_pitch + 127) / 128};
}

// Expects `tensor` to be the model's of this name, in shape, type, elements and scales.
inline void ExpectIs(const HostTensor& tensor, const Model& model, const std::string& name) {
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

inline void ExpectIs(const MlpWeights& mlp, const Model& model, const std::string& prefix,
                     const MlpNames& names = {}) {
  ExpectIs(mlp.gate, model, absl::StrCat(prefix, ".", names.gate, ".weight"));
  ExpectIs(mlp.up, model, absl::StrCat(prefix, ".", names.up, ".weight"));
  ExpectIs(mlp.down, model, absl::StrCat(prefix, ".", names.down, ".weight"));
}

inline void ExpectExpertsAre(const MoeLayerWeights& weights, const Model& model, int layer) {
  const std::string block = absl::StrCat("model.layers.", layer, ".mlp.");
  ExpectIs(weights.router, model, block + "gate.weight");
  ASSERT_THAT(weights.experts, ::testing::SizeIs(kExperts));
  for (int expert = 0; expert < kExperts; ++expert) {
    ExpectIs(weights.experts[static_cast<size_t>(expert)], model,
             absl::StrCat(block, "experts.", expert));
  }
}

inline void ExpectIsEmpty(const MlpWeights& mlp) {
  EXPECT_TRUE(mlp.gate.empty() && mlp.up.empty() && mlp.down.empty());
}

inline int LastLayer(const Model& model) {
  return model.config["num_hidden_layers"].get<int>() - 1;
}

// Returns the status of Weights() of the last layer.
inline absl::Status WeightsStatus(const Model& model, const TestFolder& files) {
  const auto folder = Open(model, files);
  return folder.ok() ? (*folder)->Weights(LastLayer(model)).status() : folder.status();
}

inline size_t BytesOfDtype(const std::string& dtype) {
  return dtype == "F32" ? 4 : dtype == "F8_E4M3" ? 1 : 2;
}

inline std::string Transposed(const FileTensor& matrix) {
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
inline FileTensor Fused(const Model& model, const std::string& block,
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
inline Model WithRoutedExperts(const Model& model, bool transposed) {
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

}  // namespace octet

#endif  // OCTET_TESTS_KERNELS_LAYER_TEST_MODELS_H_
