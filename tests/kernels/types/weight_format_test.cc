#include "octet/types/weight_format.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "octet/enum_names.h"

namespace octet {
namespace {

using ::testing::ElementsAre;

// Numbers of a type: all of up to 16 bits, otherwise some whose digits do not end early.
std::vector<float> NumbersOf(TensorType type) {
  const size_t bytes = std::max(FormatOf(type).Bytes(1), size_t{1});
  std::vector<float> numbers;
  constexpr uint32_t kMost = 1U << 16;
  constexpr uint32_t kStep = 0x10001;
  for (uint32_t i = 0; i < (bytes == 1 ? 256U : kMost); ++i) {
    const auto data =
        std::bit_cast<std::array<std::byte, sizeof(uint32_t)>>(bytes > 2 ? i * kStep : i);
    const float number = LoadNumber(type, data.data(), 0);
    if (std::isfinite(number)) numbers.push_back(number);
  }
  return numbers;
}

bool AllStay(const std::vector<float>& numbers, TensorType type) {
  std::array<std::byte, 2 * sizeof(float)> data = {};
  for (const float number : numbers) {
    StoreNumber(type, number, data.data(), 1);
    if (LoadNumber(type, data.data(), 1) != number) return false;
  }
  return true;
}

TEST(WeightFormatTest, ConversionIsExactIfAllNumbersStay) {
  for (const WeightFormatInfo& from : WeightFormats()) {
    const std::vector<float> numbers = NumbersOf(from.format.element);
    for (const WeightFormatInfo& to : WeightFormats()) {
      const Conversion plain =
          ConversionOf({.element = from.format.element}, {.element = to.format.element});
      EXPECT_EQ(plain == Conversion::kExact, AllStay(numbers, to.format.element))
          << from.name << " to " << to.name;
    }
  }
  EXPECT_THAT(TypesWithinFloat32(), ElementsAre(TensorType::kFloat32, TensorType::kBFloat16,
                                                TensorType::kFloat16, TensorType::kFloat8E8m0));
}

TEST(WeightFormatTest, ScalesDecideOnConversion) {
  const WeightFormat fp8 = FormatOf(TensorType::kFloat8E4m3);
  WeightFormat smaller = fp8;
  smaller.block_rows = 1;
  const WeightFormat bf16 = FormatOf(DType::kBFloat16);
  EXPECT_EQ(ConversionOf(fp8, fp8), Conversion::kExact);
  EXPECT_EQ(ConversionOf(smaller, fp8), Conversion::kQuantized);
  EXPECT_EQ(ProductsOf(smaller), GemmFormat::kSame);
  WeightFormat larger = fp8;  // whose scales are those of several blocks
  larger.block_rows *= 3;
  EXPECT_EQ(ConversionOf(larger, fp8), Conversion::kExact);
  EXPECT_EQ(ConversionOf(fp8, larger), Conversion::kQuantized);
  EXPECT_EQ(ProductsOf(larger), GemmFormat::kFp8);
  EXPECT_EQ(ProductsOf(FormatOf(TensorType::kInt4)), GemmFormat::kSame);
  EXPECT_EQ(ConversionOf(bf16, fp8), Conversion::kQuantized);
  EXPECT_EQ(ConversionOf(fp8, bf16), Conversion::kRounded);
}

TEST(WeightFormatTest, BlocksAtTheEndsCount) {
  const WeightFormat format = {
      .element = TensorType::kFloat8E4m3, .block_rows = 1, .block_columns = 32};
  EXPECT_TRUE(format.has_scales());
  EXPECT_EQ(format.BlocksOfRows(5), 5U);
  EXPECT_EQ(format.BlocksOfColumns(32), 1U);
  EXPECT_EQ(format.BlocksOfColumns(33), 2U);
  EXPECT_FALSE(WeightFormat().has_scales());
}

// The numbers of the OCP specification, in pairs, of which the first is the lower half of a byte.
TEST(WeightFormatTest, HalvesOfBytesAreNumbers) {
  constexpr float kNumbers[] = {0, 0.5F, 1, 1.5F, 2, 3, 4, 6};
  std::array<std::byte, 8> data = {};
  for (size_t code = 0; code < 16; ++code) {
    data[code / 2] |= static_cast<std::byte>(code << (code % 2 * 4));
  }
  for (size_t code = 0; code < 16; ++code) {
    const float magnitude = kNumbers[code % 8];
    const float number = LoadNumber(TensorType::kFloat4E2m1, data.data(), code);
    EXPECT_EQ(number, code < 8 ? magnitude : -magnitude) << code;
    EXPECT_EQ(std::signbit(number), code >= 8) << code;
  }
  const std::array<std::byte, 8> before = data;
  for (size_t code = 0; code < 16; ++code) {
    const float number = LoadNumber(TensorType::kFloat4E2m1, data.data(), code);
    StoreNumber(TensorType::kFloat4E2m1, number, data.data(), code);
  }
  EXPECT_EQ(data, before);
}

TEST(WeightFormatTest, RoundsToTheNearestHalfByte) {
  std::byte data = {};
  const auto rounded = [&data](float value) {
    StoreNumber(TensorType::kFloat4E2m1, value, &data, 1);
    return LoadNumber(TensorType::kFloat4E2m1, &data, 1);
  };
  EXPECT_EQ(rounded(0.25F), 0.0F);
  EXPECT_EQ(rounded(0.26F), 0.5F);
  EXPECT_EQ(rounded(0.75F), 1.0F);
  EXPECT_EQ(rounded(-1.25F), -1.0F);
  EXPECT_EQ(rounded(2.5F), 2.0F);
  EXPECT_EQ(rounded(-3.5F), -4.0F);
  EXPECT_EQ(rounded(5.0F), 4.0F);
  EXPECT_EQ(rounded(5.1F), 6.0F);
  EXPECT_EQ(rounded(-1e9F), -6.0F);
}

TEST(WeightFormatTest, HalvesOfBytesAreIntegers) {
  std::array<std::byte, 8> data = {};
  for (size_t code = 0; code < 16; ++code) {
    data[code / 2] |= static_cast<std::byte>(code << (code % 2 * 4));
  }
  for (size_t code = 0; code < 16; ++code) {
    const float number = LoadNumber(TensorType::kInt4, data.data(), code);
    EXPECT_EQ(number, static_cast<float>(code) - 8);
    StoreNumber(TensorType::kInt4, number + (code % 2 == 0 ? 0.5F : -0.25F), data.data(), code);
    EXPECT_EQ(LoadNumber(TensorType::kInt4, data.data(), code), number);  // ties to even
  }
  for (const float beyond : {7.6F, 1e9F}) {
    StoreNumber(TensorType::kInt4, beyond, data.data(), 3);
    EXPECT_EQ(LoadNumber(TensorType::kInt4, data.data(), 3), 7);
  }
  StoreNumber(TensorType::kInt4, -9, data.data(), 3);
  EXPECT_EQ(LoadNumber(TensorType::kInt4, data.data(), 3), -8);
}

TEST(WeightFormatTest, ExponentsArePowersOfTwo) {
  for (int exponent = 0; exponent < 255; ++exponent) {
    std::byte data{static_cast<uint8_t>(exponent)};
    const float number = LoadNumber(TensorType::kFloat8E8m0, &data, 0);
    EXPECT_EQ(static_cast<double>(number), std::ldexp(1.0, exponent - 127));
    StoreNumber(TensorType::kFloat8E8m0, number, &data, 0);
    EXPECT_EQ(std::to_integer<int>(data), exponent);
  }
  std::byte nan{0xff};
  EXPECT_TRUE(std::isnan(LoadNumber(TensorType::kFloat8E8m0, &nan, 0)));
  StoreNumber(TensorType::kFloat8E8m0, -1, &nan, 0);
  EXPECT_EQ(nan, std::byte{0xff});
}

TEST(WeightFormatTest, ConfigurationsNameFormats) {
  for (const DType dtype : {DType::kFloat16, DType::kBFloat16}) {
    EXPECT_EQ(InfoOf(FormatOf(dtype)).name, EnumName(dtype));
    EXPECT_EQ(InfoOf(dtype).bytes, BytesOf(TypeOf(dtype)));
  }
  for (const EnumEntry<GemmFormat>& entry : EnumTable(GemmFormat())) {
    EXPECT_EQ(InfoOf(FormatOf(DType::kBFloat16, entry.value)).word, entry.value) << entry.name;
  }
  EXPECT_EQ(FormatOf(DType::kBFloat16, GemmFormat::kFp8), FormatOf(TensorType::kFloat8E4m3));
  EXPECT_EQ(InfoOf(TensorType::kFloat8E4m3).unit(), 16);
  EXPECT_EQ(InfoOf(TensorType::kBFloat16).unit(), 8);
  EXPECT_EQ(InfoOf(TensorType::kFloat4E2m1).unit(), 32);
  EXPECT_EQ(FormatOf(TensorType::kFloat4E2m1).Bytes(32), 16U);
}

}  // namespace
}  // namespace octet
