// Folders whose weights have scales of other shapes than FP8's blocks, and INT4.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "kernels/layer/pack_weights.h"
#include "octet/dtype.h"
#include "octet/fp8.h"
#include "octet/model_folder.h"
#include "tests/kernels/layer/test_models.h"
#include "tests/support/node/node_fixture.h"

namespace octet {
namespace {

using ::testing::HasSubstr;

constexpr int kInner = 256;  // I of Int4(); H is kFp8Hidden otherwise
constexpr int kInt4Hidden = 384;
const char* const kGate = "model.layers.1.mlp.experts.0.gate_proj.weight";

// Returns number `index` of a tensor of floating-point numbers in the file.
float NumberAt(const FileTensor& tensor, size_t index) {
  const char* const data = tensor.bytes.data();
  if (tensor.dtype == "F32") {
    float value = 0;
    std::memcpy(&value, data + sizeof(value) * index, sizeof(value));
    return value;
  }
  uint16_t bits = 0;
  std::memcpy(&bits, data + sizeof(bits) * index, sizeof(bits));
  return FloatFromBits(tensor.dtype == "BF16" ? DType::kBFloat16 : DType::kFloat16, bits);
}

// How a folder has scales of FP8.
struct ScaleForm {
  std::string suffix;
  std::string dtype;
  bool of_rows;            // a scale for each, else one for all
  std::vector<int> shape;  // rows are 0
};

bool IsExpert(const std::string& name) { return absl::StrContains(name, ".experts."); }

Model Fp8(const ScaleForm& form) {
  Model model = DeepseekV3();
  Json& config = model.config["quantization_config"];
  config = {{"quant_method", "fp8"}, {"activation_scheme", "static"}};
  for (const FileTensor& tensor : model.List()) {
    if (!absl::EndsWith(tensor.name, "_scale_inv")) continue;
    const std::string weight = tensor.name.substr(0, tensor.name.rfind("_scale_inv"));
    std::vector<int> shape = form.shape;
    for (int& size : shape) size = size == 0 ? model.tensors.at(weight).shape[0] : size;
    model.tensors.erase(tensor.name);
    model.Add(NamedTensor(weight + form.suffix, form.dtype, shape, BytesOfDtype(form.dtype)));
    model.Add(NamedTensor(weight.substr(0, weight.rfind('.')) + ".input_scale", "F32", {}, 4));
  }
  return model;
}

void ExpectFp8(const HostTensor& tensor, const Model& model, const std::string& name,
               const ScaleForm& form) {
  const FileTensor& weight = model.tensors.at(name);
  const FileTensor& scales = model.tensors.at(name + form.suffix);
  ASSERT_OK(CheckTensor(name, tensor, weight.shape[0], weight.shape[1]));
  const PackedMatrix packed = PackMatrix(tensor, FormatOf({}, GemmFormat::kFp8));
  const WeightFormat blocks = packed.format;
  const auto columns = static_cast<size_t>(tensor.columns);
  for (int row = 0; row < tensor.rows; ++row) {
    for (int column = 0; column < tensor.columns; ++column) {
      const size_t index = static_cast<size_t>(row) * columns + static_cast<size_t>(column);
      const auto bits = static_cast<uint8_t>(weight.bytes[index]);
      const float scale = NumberAt(scales, form.of_rows ? static_cast<size_t>(row) : 0);
      const float want = FloatFromFp8Bits(Fp8Form::kE4m3Fn, bits) * scale;
      const float got = ElementOf(tensor, row, column);
      ASSERT_TRUE(got == want || (std::isnan(got) && std::isnan(want))) << row << ", " << column;
      if (form.of_rows) continue;
      const size_t block =
          static_cast<size_t>(row / blocks.block_rows) * blocks.BlocksOfColumns(columns) +
          static_cast<size_t>(column / blocks.block_columns);
      const float kept =
          FloatFromFp8Bits(Fp8Form::kNative, packed.elements[index]) * packed.scales[block];
      ASSERT_TRUE(kept == want || std::isnan(want)) << row << ", " << column;
    }
  }
}

TEST(ModelFolderTest, Fp8WithAScaleForEachTensorOrRow) {
  for (const ScaleForm& form :
       {ScaleForm{"_scale", "F32", false, {}}, ScaleForm{"_scale", "BF16", false, {1}},
        ScaleForm{"_scale_inv", "F32", false, {1, 1}}, ScaleForm{"_scale", "F16", true, {0}},
        ScaleForm{"_scale", "BF16", true, {0, 1}}, ScaleForm{"_scale_inv", "F32", true, {0, 1}}}) {
    SCOPED_TRACE(absl::StrCat(form.suffix, " ", form.dtype, " ", form.shape.size()));
    const Model model = Fp8(form);
    const TestFolder files;
    const auto folder = Open(model, files);
    ASSERT_OK(folder.status());
    const auto config = (*folder)->LayerConfig(1);
    ASSERT_OK(config.status());
    EXPECT_EQ(config->weights, form.of_rows ? GemmFormat::kSame : GemmFormat::kFp8);
    const auto weights = (*folder)->Weights(1);
    ASSERT_OK(weights.status());
    for (int expert = 0; expert < kExperts; ++expert) {
      const std::string prefix = absl::StrCat("model.layers.1.mlp.experts.", expert, ".");
      const MlpWeights& mlp = weights->experts[static_cast<size_t>(expert)];
      ExpectFp8(mlp.gate, model, prefix + "gate_proj.weight", form);
      ExpectFp8(mlp.down, model, prefix + "down_proj.weight", form);
    }
    ExpectFp8(weights->shared.up, model, "model.layers.1.mlp.shared_experts.up_proj.weight", form);
  }
}

// A matrix that is no larger than a block has all shapes at once.
TEST(ModelFolderTest, Fp8OfOneBlockWithOneScale) {
  Model model = Qwen3();
  for (const FileTensor& tensor : model.List()) {
    if (!IsExpert(tensor.name)) continue;
    model.Add(NamedTensor(tensor.name, "F8_E4M3", tensor.shape, 1));
    model.Add(NamedTensor(tensor.name + "_scale", "F32", {1}, 4));
  }
  const TestFolder files;
  const auto folder = Open(model, files);
  ASSERT_OK(folder.status());
  EXPECT_EQ((*folder)->LayerConfig(0)->weights, GemmFormat::kFp8);
  EXPECT_OK((*folder)->Weights(0).status());
}

// INT4 as compressed-tensors writes it: a scale for `group` columns.
Model Int4(int group, const std::string& scales = "BF16") {
  Model model = DeepseekV3(kInner, "F32");
  model.config["hidden_size"] = kInt4Hidden;
  model.config["quantization_config"] = {{"quant_method", "compressed-tensors"},
                                         {"format", "pack-quantized"},
                                         {"quantization_status", "compressed"},
                                         {"config_groups",
                                          {{"group_0",
                                            {{"targets", {"Linear"}},
                                             {"weights",
                                              {{"num_bits", 4},
                                               {"type", "int"},
                                               {"strategy", "group"},
                                               {"group_size", group},
                                               {"symmetric", true},
                                               {"actorder", nullptr},
                                               {"observer_kwargs", Json::object()}}},
                                             {"input_activations", nullptr},
                                             {"output_activations", nullptr}}}}},
                                         {"ignore", {"lm_head"}}};
  const std::vector<FileTensor> old = model.List();
  model.tensors.clear();
  for (const FileTensor& tensor : old) {
    if (absl::EndsWith(tensor.name, "_scale_inv")) continue;
    const bool down = absl::StrContains(tensor.name, "down_proj");
    const int rows = down ? kInt4Hidden : tensor.shape[0];
    const int columns = down ? kInner : kInt4Hidden;
    if (tensor.shape.size() == 1) {
      model.Add(tensor);
    } else if (!IsExpert(tensor.name)) {
      model.AddMatrix(tensor.name, rows, columns);
    } else {
      model.Add(NamedTensor(tensor.name + "_packed", "I32", {rows, columns / 8}, 4));
      model.Add(NamedTensor(tensor.name + "_scale", scales, {rows, columns / group},
                            BytesOfDtype(scales)));
      model.Add(NamedTensor(tensor.name + "_shape", "I64", {2}, 8));
    }
  }
  return model;
}

TEST(ModelFolderTest, Int4WithGroups) {
  for (const auto& [group, scales] :
       {std::pair<int, std::string>(32, "BF16"), std::pair<int, std::string>(128, "F16"),
        std::pair<int, std::string>(64, "F32")}) {
    SCOPED_TRACE(group);
    const Model model = Int4(group, scales);
    const TestFolder files;
    const auto folder = Open(model, files);
    ASSERT_OK(folder.status());
    const auto config = (*folder)->LayerConfig(1);
    ASSERT_OK(config.status());
    EXPECT_EQ(config->weights, GemmFormat::kSame);
    const auto weights = (*folder)->Weights(1);
    ASSERT_OK(weights.status());
    const HostTensor& gate = weights->experts[0].gate;
    ASSERT_OK(CheckTensor("gate", gate, kInner, kInt4Hidden));
    const PackedMatrix packed = PackMatrix(gate, FormatOf(DType::kBFloat16));
    const std::string& words = model.tensors.at(absl::StrCat(kGate, "_packed")).bytes;
    const FileTensor& of_groups = model.tensors.at(absl::StrCat(kGate, "_scale"));
    for (size_t index = 0; index < size_t{kInner} * kInt4Hidden; ++index) {
      uint32_t word = 0;
      std::memcpy(&word, words.data() + index / 8 * sizeof(word), sizeof(word));
      const int number = static_cast<int>(word >> index % 8 * 4 & 15) - 8;
      const float want =
          static_cast<float>(number) * NumberAt(of_groups, index / static_cast<size_t>(group));
      const auto row = static_cast<int>(index / kInt4Hidden);
      const auto column = static_cast<int>(index % kInt4Hidden);
      const float got = ElementOf(gate, row, column);
      ASSERT_TRUE(got == want || (std::isnan(got) && std::isnan(want))) << row << ", " << column;
      uint16_t bits = 0;
      std::memcpy(&bits, &packed.elements[index * sizeof(bits)], sizeof(bits));
      ASSERT_EQ(bits, BitsFromFloat(DType::kBFloat16, want)) << row << ", " << column;
    }
  }
}

TEST(ModelFolderTest, RefusesScalesThatAreNoneOfTheKnown) {
  const auto refusal = [](const Model& model) {
    const TestFolder files;
    return std::string(WeightsStatus(model, files).message());
  };
  const std::string gate = kGate;
  Model model = Int4(32);
  EXPECT_EQ(refusal(model), "");
  model.Add(NamedTensor(gate + "_scale", "BF16", {kInner, 5}, 2));
  EXPECT_THAT(refusal(model), HasSubstr("gate_proj.weight_scale' has the shape [256, 5], and must "
                                        "have [256, 12], or fewer columns"));
  model.tensors.erase(gate + "_scale");
  EXPECT_THAT(refusal(model), HasSubstr("gate_proj.weight_scale'"));
  model = Int4(32);
  model.Add(NamedTensor(gate + "_packed", "I32", {kInner, kInt4Hidden / 4}, 4));
  EXPECT_THAT(refusal(model), HasSubstr("must be I32 [256, 48]"));
  model = Int4(32);
  model.Add(NamedTensor(gate + "_zero_point", "I32", {kInner / 8, 12}, 4));
  EXPECT_THAT(refusal(model), HasSubstr("gate_proj.weight_zero_point' is none of the layer's"));
  model = Int4(32);
  model.Add(NamedTensor("model.layers.1.mlp.gate.input_scale_2", "F32", {}, 4));
  EXPECT_THAT(refusal(model), HasSubstr("input_scale_2' is none of the layer's"));

  const ScaleForm form = {"_scale", "F32", false, {}};
  model = Fp8(form);
  model.Add(NamedTensor(gate + "_scale", "F32", {3}, 4));
  EXPECT_THAT(refusal(model), HasSubstr("gate_proj.weight_scale' has the shape [3], and must have "
                                        "[2, 3], one for each row, or one for all"));
  model = Fp8(form);  // one matrix of other scales than the rest
  model.Add(NamedTensor(gate + "_scale", "F32", {kFp8Intermediate, 1}, 4));
  EXPECT_THAT(refusal(model), HasSubstr("others are not fp8; all must be, or none"));
}

}  // namespace
}  // namespace octet
