// Model folders: shards, and what is said of folders that are damaged.
#include "octet/model_folder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "tests/kernels/layer/test_models.h"
#include "tests/support/model_files.h"

namespace octet {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

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
        const bool scales = absl::EndsWith(tensor.name, "_scale_inv");
        EXPECT_EQ(
            (*folder)->Weights(layer).status(),
            absl::InvalidArgumentError(absl::StrCat(
                files.PathOf("model.safetensors"), ": tensor '", tensor.name, "' has the shape [",
                absl::StrJoin(shape, ", "), "], and must have [", absl::StrJoin(tensor.shape, ", "),
                "]", scales ? ", one for each row, or one for all" : "")));
      }
    }
  }
}

// ---- All experts in two tensors

// Such as biases, of experts that config.json does not count, or of another family.
TEST(ModelFolderFiles, TensorsOfTheBlockThatNobodyReads) {
  for (const Model& model : {Mixtral(), Qwen2(), DeepseekV2(), DeepseekV3(256)}) {
    const bool mixtral = model.config["model_type"] == "mixtral";
    const std::string layer = absl::StrCat("model.layers.", LastLayer(model), ".");
    const std::string block = layer + (mixtral ? "block_sparse_moe." : "mlp.");
    const Model fused = WithRoutedExperts(model, false);
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
         "gate.weight' has the dtype I32, and must have F32 or BF16 or F16 or F8_E8M0");
  expect(WithDtype(DeepseekV2(), 1, mlp + "gate.weight", "F8_E4M3"),
         "gate.weight' has the dtype F8_E4M3, and must have F32 or BF16 or F16 or F8_E8M0");
  expect(WithDtype(DeepseekV2(), 1, mlp + "experts.2.up_proj.weight", "F8_E5M2"),
         "up_proj.weight' has the dtype F8_E5M2, and must have F32 or BF16 or F16 or F8_E8M0");
  expect(WithDtype(DeepseekV3(), 1, mlp + "gate.e_score_correction_bias", "I32"),
         "e_score_correction_bias' has the dtype I32, and must have F32 or BF16 or F16 or F8_E8M0");
  expect(WithDtype(DeepseekV3(), 1, mlp + "experts.2.up_proj.weight_scale_inv", "F8_E4M3"),
         "weight_scale_inv' has the dtype F8_E4M3, and must have F32 or BF16 or F16 or F8_E8M0");
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

}  // namespace
}  // namespace octet
