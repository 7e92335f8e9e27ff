// Folders of gpt-oss.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/layer/pack_weights.h"
#include "octet/dtype.h"
#include "octet/model_folder.h"
#include "tests/kernels/layer/test_models.h"
#include "tests/support/node/node_fixture.h"

namespace octet {
namespace {

using ::testing::HasSubstr;

constexpr int kSize = 64;  // H of GptOss()
constexpr int kBetween = 32;
const char* const kPrefix = "model.layers.0.mlp.experts.";

// Returns the place of number `column` of row `row`, of rows of `columns`.
size_t IndexOf(int row, int columns, int column) {
  return static_cast<size_t>(row) * static_cast<size_t>(columns) + static_cast<size_t>(column);
}

// Returns element `index` of a BF16 tensor in the file.
float Bf16At(const Model& model, const std::string& name, int index) {
  uint16_t bits = 0;
  std::memcpy(&bits, model.tensors.at(name).bytes.data() + 2 * static_cast<size_t>(index), 2);
  return FloatFromBits(DType::kBFloat16, bits);
}

// Returns number `column` of row `row`, of rows of `columns`, by the specification.
float Mxfp4At(const Model& model, const std::string& name, int row, int columns, int column) {
  constexpr float kNumbers[] = {0, 0.5F, 1, 1.5F, 2, 3, 4, 6};
  const std::string& blocks = model.tensors.at(name + "_blocks").bytes;
  const std::string& scales = model.tensors.at(name + "_scales").bytes;
  const size_t index = IndexOf(row, columns, column);
  const int byte = static_cast<uint8_t>(blocks[index / 2]);
  const int code = index % 2 == 0 ? byte % 16 : byte / 16;
  const int exponent = static_cast<uint8_t>(scales[index / 32]);
  const float magnitude = std::ldexp(kNumbers[code % 8], exponent - 127);
  if (exponent == 255) return std::nanf("");
  return code < 8 ? magnitude : -magnitude;
}

void ExpectSame(float got, float want, int row, int column) {
  if (std::isnan(want)) {
    EXPECT_TRUE(std::isnan(got)) << row << ", " << column;
  } else {
    EXPECT_EQ(got, want) << row << ", " << column;
  }
}

// `element(row, column)` is what the matrix must have.
template <typename Element>
void ExpectMatrix(const HostTensor& tensor, int rows, int columns, const Element& element) {
  ASSERT_OK(CheckTensor("tensor", tensor, rows, columns));
  const PackedMatrix packed = PackMatrix(tensor, FormatOf(TensorType::kFloat32));
  const auto* const data = reinterpret_cast<const std::byte*>(packed.elements.data());
  for (int row = 0; row < rows; ++row) {
    for (int column = 0; column < columns; ++column) {
      const size_t index = IndexOf(row, columns, column);
      const float want = element(row, column);
      ExpectSame(ElementOf(tensor, row, column), want, row, column);
      ExpectSame(LoadNumber(TensorType::kFloat32, data, index), want, row, column);
    }
  }
}

TEST(ModelFolderTest, GptOss) {
  for (const bool mxfp4 : {false, true}) {
    SCOPED_TRACE(mxfp4);
    const Model model = GptOss(mxfp4);
    const TestFolder files;
    const absl::StatusOr<std::unique_ptr<ModelFolder>> folder = Open(model, files);
    ASSERT_OK(folder.status());
    EXPECT_EQ((*folder)->family(), ModelFamily::kGptOss);
    const absl::StatusOr<MoeLayerConfig> config = (*folder)->LayerConfig(0);
    ASSERT_OK(config.status());
    EXPECT_EQ(config->weights, mxfp4 ? GemmFormat::kMxfp4 : GemmFormat::kSame);
    EXPECT_TRUE(config->router.normalize && config->logit_bias && config->expert_biases);
    EXPECT_EQ(config->swiglu, (SwiGlu{.alpha = 1.702F, .limit = 7.0F, .up_offset = 1.0F}));
    const absl::StatusOr<MoeLayerWeights> weights = (*folder)->Weights(0);
    ASSERT_OK(weights.status());
    ExpectIs(weights->router, model, "model.layers.0.mlp.router.weight");
    ExpectIs(weights->logit_bias, model, "model.layers.0.mlp.router.bias");
    ASSERT_THAT(weights->experts, ::testing::SizeIs(kExperts));
    for (int expert = 0; expert < kExperts; ++expert) {
      SCOPED_TRACE(expert);
      const MlpWeights& mlp = weights->experts[static_cast<size_t>(expert)];
      for (const int odd : {0, 1}) {
        ExpectMatrix(odd == 0 ? mlp.gate : mlp.up, kBetween, kSize, [&](int row, int column) {
          const std::string name = std::string(kPrefix) + "gate_up_proj";
          const int own = 2 * row + odd;
          return mxfp4 ? Mxfp4At(model, name, expert * 2 * kBetween + own, kSize, column)
                       : Bf16At(model, name, (expert * kSize + column) * 2 * kBetween + own);
        });
        ExpectMatrix(odd == 0 ? mlp.gate_bias : mlp.up_bias, 1, kBetween, [&](int, int column) {
          return Bf16At(model, std::string(kPrefix) + "gate_up_proj_bias",
                        expert * 2 * kBetween + 2 * column + odd);
        });
      }
      ExpectMatrix(mlp.down, kSize, kBetween, [&](int row, int column) {
        const std::string name = std::string(kPrefix) + "down_proj";
        return mxfp4 ? Mxfp4At(model, name, expert * kSize + row, kBetween, column)
                     : Bf16At(model, name, (expert * kBetween + column) * kSize + row);
      });
      ExpectMatrix(mlp.down_bias, 1, kSize, [&](int, int column) {
        return Bf16At(model, std::string(kPrefix) + "down_proj_bias", expert * kSize + column);
      });
    }
  }
}

TEST(ModelFolderTest, RefusesGptOssThatIsNotWhatItMustBe) {
  const auto refusal = [](const Model& model) {
    const TestFolder files;
    const absl::StatusOr<std::unique_ptr<ModelFolder>> folder = Open(model, files);
    return std::string(folder.ok() ? (*folder)->Weights(0).status().message()
                                   : folder.status().message());
  };
  Model model = GptOss(true);
  model.tensors.erase(std::string(kPrefix) + "down_proj_scales");
  EXPECT_THAT(refusal(model), HasSubstr("down_proj_scales"));
  model = GptOss(true);
  model.tensors.erase(std::string(kPrefix) + "gate_up_proj_bias");
  EXPECT_THAT(refusal(model), HasSubstr("gate_up_proj_bias"));
  model = GptOss(true);
  model.Add(NamedTensor(std::string(kPrefix) + "down_proj_scales", "F32", {kExperts, kSize, 1}, 4));
  EXPECT_THAT(refusal(model), HasSubstr("must be U8"));
  model = GptOss(true);
  model.config["swiglu_limit"] = 6.0;
  EXPECT_THAT(refusal(model), HasSubstr("swiglu_limit"));
  model = GptOss(true);
  model.config["quantization_config"]["group_size"] = 16;
  EXPECT_THAT(refusal(model), HasSubstr("group_size"));
  model = Qwen3();
  model.config["quantization_config"] = {{"quant_method", "mxfp4"}};
  EXPECT_THAT(refusal(model), HasSubstr("mxfp4"));
  model = GptOss(false);
  model.AddMatrix(std::string(kPrefix) + "gate_up_proj_blocks_extra", 1, 8);
  EXPECT_THAT(refusal(model), HasSubstr("gate_up_proj_blocks_extra"));
}

}  // namespace
}  // namespace octet
