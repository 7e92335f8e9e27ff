// The oracle of grouped products against values worked out by hand.
#include <gtest/gtest.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <random>
#include <vector>

#include "kernels/oracle/gemm_reference.h"
#include "octet/fp8_format.h"
#include "octet/native_fp8.h"

namespace octet {
namespace {

std::vector<uint16_t> Bits(const std::vector<float>& values) {
  std::vector<uint16_t> bits;
  bits.reserve(values.size());
  for (const float v : values) bits.push_back(BitsFromFloat(DType::kBFloat16, v));
  return bits;
}

TEST(GemmReferenceTest, SumsProductsAndBoundsTheError) {
  const std::vector<uint16_t> a = Bits({1, 2, 3, 4, 5, 6, 7, 8});
  std::vector<float> weights(64, 1);
  weights[8] = -1;  // column 1
  const std::vector<uint16_t> b = Bits(weights);
  const HostGemm gemm = {
      {.experts = 1, .max_rows = 1, .n = 8, .k = 8}, BytesOfAll(a), BytesOfAll(b)};
  EXPECT_EQ(ExpectedElement(gemm, 0, 0, 0).value, 36);
  EXPECT_EQ(ExpectedElement(gemm, 0, 0, 1).value, 34);
  EXPECT_EQ(ExpectedElement(gemm, 0, 0, 1).error, 10 * 0x1p-24 * 36);
}

TEST(GemmReferenceTest, AppliesBiasScaleAndSwiGlu) {
  const std::vector<uint16_t> a = Bits({1, 0, 0, 0, 0, 0, 0, 0});
  std::vector<float> weights(128, 0);
  weights[3 * 8] = 2;        // gate of column 3
  weights[(8 + 3) * 8] = 5;  // up of column 3
  const std::vector<uint16_t> b = Bits(weights);
  std::vector<float> bias(16, 0);
  bias[11] = 1;
  const std::vector<float> scale = {0.5F};
  HostGemm gemm = {
      {.experts = 1, .max_rows = 1, .n = 16, .k = 8}, BytesOfAll(a), BytesOfAll(b), bias, scale};
  EXPECT_EQ(ExpectedElement(gemm, 0, 0, 11).value, 3);
  gemm.config.activation = GemmActivation::kSwiGlu;
  EXPECT_DOUBLE_EQ(ExpectedElement(gemm, 0, 0, 3).value, 2 / (1 + std::exp(-2.0)) * 3);
  EXPECT_EQ(ExpectedElement(gemm, 0, 0, 4).value, 0);
}

TEST(GemmReferenceTest, ScalesGroupsOfFp8) {
  constexpr int kK = 144;  // two groups
  std::vector<uint8_t> a(kK, 0);
  std::vector<uint8_t> b(size_t{136} * kK, 0);
  const auto bits = [](float value) { return Fp8FromFloat<NativeFp8>(value).bits; };
  a[0] = bits(2);
  a[143] = bits(3);
  b[130 * kK] = bits(1);
  b[130 * kK + 143] = bits(-4);
  const std::vector<float> a_scales = {0.5F, 8};
  const std::vector<float> b_scales = {100, 200, 0.25F, 3};  // column 130 has the second row
  HostGemm gemm = {{.experts = 1, .max_rows = 1, .n = 136, .k = kK, .format = GemmFormat::kFp8},
                   a,
                   b,
                   {},
                   {},
                   BytesOfAll(a_scales),
                   BytesOfAll(b_scales)};
  EXPECT_EQ(ExpectedElement(gemm, 0, 0, 130).value, 2 * 0.5 * 0.25 - 12.0 * 8 * 3);
  EXPECT_EQ(ExpectedElement(gemm, 0, 0, 3).value, 0);
  const std::vector<uint8_t> a_exponents = {127 - 1, 127 + 3, 0, 0};
  const std::vector<uint8_t> b_exponents = {127, 127, 0, 0, 127 - 2, 127 + 1, 0, 0};
  gemm.config.scale_format = ScaleFormat::kUe8m0;
  gemm.a_scales = a_exponents;
  gemm.b_scales = b_exponents;
  EXPECT_EQ(ExpectedElement(gemm, 0, 0, 130).value, 2 * 0.5 * 0.25 - 12.0 * 8 * 2);
}

// As in a checkpoint: a gate and an up matrix, each with its own scales.
TEST(GemmReferenceTest, SwiGluTakesTheScalesOfGateAndOfUp) {
  constexpr int kN = 264;  // rows of each, in three groups
  constexpr int kK = 144;  // two groups
  constexpr size_t kScales = 6;
  std::vector<uint8_t> a(kK);
  std::vector<uint8_t> gate(size_t{kN} * kK);
  std::vector<uint8_t> up(gate.size());
  std::mt19937 rng(1);
  for (std::vector<uint8_t>* elements : {&a, &gate, &up}) {
    for (uint8_t& element : *elements) {
      element = Fp8FromFloat<NativeFp8>(static_cast<float>(rng() % 9) - 4).bits;
    }
  }
  const std::vector<float> a_scales = {0.5F, 2};
  const std::vector<float> gate_scales = {1.0F / 8, 1.0F / 16, 1.0F / 32, 1.0F / 64, 1.0F / 4, 1};
  const std::vector<float> up_scales = {3, 5, 7, 11, 13, 17};
  const auto of = [&](const std::vector<uint8_t>& b, const std::vector<float>& b_scales, int n,
                      GemmActivation activation) {
    return HostGemm{{.experts = 1,
                     .max_rows = 1,
                     .n = n,
                     .k = kK,
                     .format = GemmFormat::kFp8,
                     .activation = activation},
                    a,
                    b,
                    {},
                    {},
                    BytesOfAll(a_scales),
                    BytesOfAll(b_scales)};
  };
  std::vector<uint8_t> both;  // eight rows of each in turn
  for (size_t row = 0; row < kN; row += 8) {
    for (const std::vector<uint8_t>* from : {&gate, &up}) {
      const auto first = from->begin() + static_cast<ptrdiff_t>(row * kK);
      both.insert(both.end(), first, first + ptrdiff_t{8} * kK);
    }
  }
  std::vector<float> both_scales = gate_scales;
  both_scales.insert(both_scales.end(), up_scales.begin(), up_scales.end());
  const HostGemm gated = of(both, both_scales, 2 * kN, GemmActivation::kSwiGlu);
  ASSERT_EQ(gated.config.weight_scale_rows(), 6);
  ASSERT_EQ(both_scales.size(), 2 * kScales);
  for (int column = 0; column < kN; ++column) {
    const double g =
        ExpectedElement(of(gate, gate_scales, kN, GemmActivation::kNone), 0, 0, column).value;
    const double u =
        ExpectedElement(of(up, up_scales, kN, GemmActivation::kNone), 0, 0, column).value;
    EXPECT_DOUBLE_EQ(ExpectedElement(gated, 0, 0, column).value, g / (1 + std::exp(-g)) * u)
        << "column " << column;
  }
}

TEST(GemmReferenceTest, AcceptsWhatTheBoundAllowsAndNothingElse) {
  const auto meets = [](double value, double error, float got) {
    return MeetsExpectation({value, error}, DType::kBFloat16, BitsFromFloat(DType::kBFloat16, got));
  };
  constexpr float kStep = 0x1p-7F;  // between bfloat16 numbers from 1 to 2
  EXPECT_TRUE(meets(1 + 0.25 * kStep, 0, 1));
  EXPECT_FALSE(meets(1 + 0.25 * kStep, 0, 1 + kStep));
  EXPECT_FALSE(meets(1 + 0.75 * kStep, 0, 1));
  EXPECT_TRUE(meets(1 + 0.75 * kStep, 0.3 * kStep, 1));
  EXPECT_TRUE(meets(1 + 0.75 * kStep, 0.3 * kStep, 1 + kStep));
  EXPECT_FALSE(meets(1 + 0.75 * kStep, 0.3 * kStep, 1 + 2 * kStep));
}

TEST(GemmReferenceTest, NanAndInfinityMustBeThemselves) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
  const uint16_t infinity = 0x7c00;
  const uint16_t nan = 0x7e00;
  EXPECT_TRUE(MeetsExpectation({kInfinity, 0}, DType::kFloat16, infinity));
  EXPECT_FALSE(MeetsExpectation({-kInfinity, 0}, DType::kFloat16, infinity));
  EXPECT_FALSE(MeetsExpectation({kInfinity, 0}, DType::kFloat16, nan));
  EXPECT_TRUE(MeetsExpectation({kNan, 0}, DType::kFloat16, nan));
  EXPECT_FALSE(MeetsExpectation({1, 1}, DType::kFloat16, nan));
  EXPECT_TRUE(MeetsExpectation({70000, 0}, DType::kFloat16, infinity));
}

}  // namespace
}  // namespace octet
