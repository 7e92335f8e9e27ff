// Model folders whose experts are one tensor.
#include "octet/model_folder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "tests/kernels/layer/test_models.h"
#include "tests/support/model_files.h"

namespace octet {
namespace {

using ::testing::HasSubstr;
using ::testing::SizeIs;

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
      const auto folder = Open(WithRoutedExperts(model, transposed), files);
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
  const auto folder = Open(WithRoutedExperts(Mixtral(), false), files);
  ASSERT_TRUE(folder.ok()) << folder.status();
  for (const int layer : {0, 1}) {
    const auto weights = (*folder)->Weights(layer);
    EXPECT_TRUE(weights.ok()) << weights.status();
  }
}

TEST(ModelFolderFused, EveryTensorIsNeeded) {
  for (const Model& model : {Mixtral(), Qwen3(), DeepseekV3(256), SquareOlmoe()}) {
    const Model fused = WithRoutedExperts(model, false);
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
  Model model = WithRoutedExperts(Olmoe(), false);
  model.tensors.erase("model.layers.0.mlp.experts.gate_up_proj");
  model.tensors.erase("model.layers.0.mlp.experts.down_proj");
  EXPECT_EQ(WeightsStatus(model, files),
            absl::NotFoundError(absl::StrCat(
                files.path(), " has neither tensor 'model.layers.0.mlp.experts.0.gate_proj.weight'",
                " nor 'model.layers.0.mlp.experts.gate_up_proj'")));
}

TEST(ModelFolderFused, BothFormsAtOnce) {
  for (const Model& model : {Mixtral(), Qwen3()}) {
    const Model fused = WithRoutedExperts(model, false);
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
  model = WithRoutedExperts(model, transposed);
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
  Model model = WithRoutedExperts(DeepseekV2(), false);
  model.Add(NamedTensor(down, "I32", {4, 16, 8}, 4));
  EXPECT_THAT(message(model), HasSubstr("down_proj' has the dtype I32, and must have F32 or BF16"));
  model = WithRoutedExperts(DeepseekV3(256), false);
  model.Add(NamedTensor(down, "BF16", {4, kFp8Hidden, 256}, 2));
  EXPECT_THAT(message(model),
              HasSubstr("layer 1: weights of expert 0 are bf16, and others are fp8"));
  model = WithRoutedExperts(DeepseekV3(256), false);
  model.Add(NamedTensor(down + "_scale_inv", "I32", {4, 3, 2}, 4));
  EXPECT_THAT(message(model), HasSubstr("_scale_inv' has the dtype I32, and must have F32 or"));
}

TEST(ModelFolderFused, GateAndUpMustNotShareScales) {
  const TestFolder files;
  Model model = WithRoutedExperts(DeepseekV3(), false);
  // As quantizing both together gives it.
  const std::string gate_up = "model.layers.1.mlp.experts.gate_up_proj";
  model.Add(NamedTensor(gate_up + "_scale_inv", "F32", {4, 3, 3}, 4));
  EXPECT_EQ(WeightsStatus(model, files),
            absl::InvalidArgumentError(absl::StrCat(
                files.path(), ": tensor '", gate_up,
                "' is FP8, and 144 rows of gate and of up share scales; they must be a multiple of "
                "128")));
}

}  // namespace
}  // namespace octet
