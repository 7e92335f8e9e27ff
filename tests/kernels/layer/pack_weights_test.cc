#include "kernels/layer/pack_weights.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <vector>

#include "absl/status/status.h"
#include "octet/fp8.h"
#include "octet/native_fp8.h"

namespace octet {
namespace {

// A matrix whose elements the test knows.
template <typename T>
HostTensor View(TensorType type, int rows, int columns, const std::vector<T>& data) {
  return {.type = type,
          .rows = rows,
          .columns = columns,
          .data = reinterpret_cast<const std::byte*>(data.data())};
}

std::vector<uint16_t> Words(const PackedMatrix& matrix) {
  std::vector<uint16_t> words(matrix.elements.size() / sizeof(uint16_t));
  std::memcpy(words.data(), matrix.elements.data(), matrix.elements.size());
  return words;
}

TEST(PackWeightsTest, SameTypeKeepsBits) {
  const std::vector<uint16_t> bits = {0x7fc1, 0x0001, 0x8000, 0x3f80, 0xff80, 0x1234};
  const HostTensor tensor = View(TensorType::kBFloat16, 2, 3, bits);
  EXPECT_EQ(Words(PackMatrix(tensor, {})), bits);
}

TEST(PackWeightsTest, OtherTypesAreRounded) {
  const std::vector<float> values = {1.0F, 1.0F + 0x1p-9F, -3.14159F, 1e-8F};
  const HostTensor tensor = View(TensorType::kFloat32, 1, 4, values);
  for (const DType dtype : {DType::kBFloat16, DType::kFloat16}) {
    std::vector<uint16_t> expected;
    for (const float value : values) expected.push_back(BitsFromFloat(dtype, value));
    EXPECT_EQ(Words(PackMatrix(tensor, FormatOf(dtype))), expected);
  }
  const std::vector<uint16_t> half = {BitsFromFloat(DType::kFloat16, 0.1F)};
  EXPECT_EQ(Words(PackMatrix(View(TensorType::kFloat16, 1, 1, half), {})),
            std::vector<uint16_t>{
                BitsFromFloat(DType::kBFloat16, FloatFromBits(DType::kFloat16, half[0]))});
}

TEST(PackWeightsTest, DataNeedNotBeAligned) {
  std::vector<std::byte> bytes(1 + 2 * sizeof(float));
  const float values[] = {2.5F, -7.0F};
  std::memcpy(bytes.data() + 1, values, sizeof(values));
  HostTensor tensor = {.type = TensorType::kFloat32, .rows = 1, .columns = 2};
  tensor.data = bytes.data() + 1;
  EXPECT_EQ(ElementOf(tensor, 0, 1), -7.0F);
}

// Scales of 16 bits mean what the same scales as float32 do, in either order of the matrix.
TEST(PackWeightsTest, ScalesOf16Bits) {
  constexpr int kRows = 130;
  constexpr int kColumns = 260;
  std::vector<uint8_t> elements;
  for (int i = 0; i < kRows * kColumns; ++i) elements.push_back(static_cast<uint8_t>(i % 0x78));
  const std::vector<float> scales = {0.0078125F, 3.0F, 1.5F, 0.25F, 0x1p-24F, 240.0F};
  for (const size_t pitch : {size_t{0}, size_t{kRows}}) {
    HostTensor tensor = View(TensorType::kFloat8E4m3, kRows, kColumns, elements);
    tensor.column_pitch = pitch;
    tensor.scales = reinterpret_cast<const std::byte*>(scales.data());
    const PackedMatrix fp8 = PackMatrix(tensor, FormatOf({}, GemmFormat::kFp8));
    const PackedMatrix bf16 = PackMatrix(tensor, {});
    for (const DType dtype : {DType::kBFloat16, DType::kFloat16}) {
      std::vector<uint16_t> bits;
      for (const float scale : scales) bits.push_back(BitsFromFloat(dtype, scale));
      tensor.scales = reinterpret_cast<const std::byte*>(bits.data());
      tensor.scale_type = dtype == DType::kFloat16 ? TensorType::kFloat16 : TensorType::kBFloat16;
      EXPECT_TRUE(CheckTensor("it", tensor, kRows, kColumns).ok());
      const PackedMatrix packed = PackMatrix(tensor, FormatOf({}, GemmFormat::kFp8));
      EXPECT_EQ(packed.elements, fp8.elements);
      EXPECT_EQ(packed.scales, fp8.scales);
      EXPECT_EQ(PackMatrix(tensor, {}).elements, bf16.elements);
    }
    tensor.scale_type = TensorType::kFloat8E4m3;
    EXPECT_EQ(CheckTensor("it", tensor, kRows, kColumns),
              absl::InvalidArgumentError(
                  "it has scales of fp8; they must be fp32 or bf16 or fp16 or e8m0"));
  }
}

TEST(PackWeightsTest, GateAndUpAlternateByEightRows) {
  constexpr int kRows = 24;
  std::vector<uint16_t> gate;
  std::vector<uint16_t> up;
  for (uint16_t row = 0; row < kRows; ++row) {
    gate.insert(gate.end(), 2, row);
    up.insert(up.end(), 2, static_cast<uint16_t>(100 + row));
  }
  const MlpWeights weights = {.gate = View(TensorType::kBFloat16, kRows, 2, gate),
                              .up = View(TensorType::kBFloat16, kRows, 2, up),
                              .down = {}};
  const std::vector<uint16_t> packed = Words(PackGateUp(weights, {}));
  ASSERT_EQ(packed.size(), 2U * 2 * kRows);
  for (size_t row = 0; row < kRows; ++row) {
    const size_t place = 16 * (row / 8) + row % 8;
    EXPECT_EQ(packed[2 * place], row);
    EXPECT_EQ(packed[2 * (place + 8)], 100 + row);
  }
}

// Blocks of different sizes of numbers, at the edges too.
TEST(PackWeightsTest, QuantizesByBlocks) {
  constexpr int kRows = 130;
  constexpr int kColumns = 260;
  std::vector<float> values;
  for (int row = 0; row < kRows; ++row) {
    for (int column = 0; column < kColumns; ++column) {
      const int block = row / 128 * 10 + column / 128 * 3;
      const auto size = static_cast<float>(1 + block);
      values.push_back(size * std::sin(static_cast<float>(row * kColumns + column)));
    }
  }
  const HostTensor tensor = View(TensorType::kFloat32, kRows, kColumns, values);
  const PackedMatrix packed = PackMatrix(tensor, FormatOf({}, GemmFormat::kFp8));
  ASSERT_EQ(packed.scales.size(), 2U * 3);
  for (int row = 0; row < kRows; ++row) {
    for (int column = 0; column < kColumns; ++column) {
      const size_t i = static_cast<size_t>(row) * kColumns + static_cast<size_t>(column);
      const float scale =
          packed.scales[static_cast<size_t>(row / 128) * 3 + static_cast<size_t>(column / 128)];
      const float got = FloatFromFp8Bits(Fp8Form::kNative, packed.elements[i]) * scale;
      EXPECT_NEAR(got, values[i], std::abs(values[i]) / 16 + scale * 0x1p-9F)
          << row << " " << column;
    }
  }
}

TEST(PackWeightsTest, Fp8StaysExact) {
  std::vector<uint8_t> bits;
  for (int i = 0; i < 256; ++i) bits.push_back(static_cast<uint8_t>(i));
  const std::vector<float> scales = {0.5F, 3.0F};
  HostTensor tensor = View(TensorType::kFloat8E4m3, 1, 256, bits);
  tensor.scales = reinterpret_cast<const std::byte*>(scales.data());
  const PackedMatrix packed = PackMatrix(tensor, FormatOf({}, GemmFormat::kFp8));
  ASSERT_EQ(packed.scales.size(), 2U);
  for (size_t i = 0; i < 256; ++i) {
    const float want = FloatFromFp8Bits(Fp8Form::kE4m3Fn, bits[i]) * scales[i / 128];
    const float got =
        FloatFromFp8Bits(Fp8Form::kNative, packed.elements[i]) * packed.scales[i / 128];
    if (std::isnan(want)) {
      EXPECT_TRUE(std::isnan(got)) << i;
    } else {
      EXPECT_EQ(got, want) << i;
    }
    const uint16_t word = BitsFromFloat(DType::kBFloat16, want);
    EXPECT_EQ(Words(PackMatrix(tensor, {}))[i], word) << i;
  }
}

// All numbers with all scales, in every second row; rows of scales become whole vectors.
TEST(PackWeightsTest, Mxfp4StaysExact) {
  constexpr int kRows = 256;
  constexpr int kColumns = 64;
  std::vector<uint8_t> elements(2 * kRows * kColumns / 2);
  std::vector<uint8_t> exponents(2 * kRows * 2, 7);
  for (size_t row = 0; row < kRows; ++row) {
    for (size_t i = 0; i < kColumns / 2; ++i) {
      elements[2 * row * (kColumns / 2) + i] = static_cast<uint8_t>(i * 17 + row);
    }
    exponents[4 * row] = static_cast<uint8_t>(row);
    exponents[4 * row + 1] = static_cast<uint8_t>(255 - row);
  }
  HostTensor tensor = View(TensorType::kFloat4E2m1, kRows, kColumns, elements);
  tensor.scales = reinterpret_cast<const std::byte*>(exponents.data());
  tensor.scale_type = TensorType::kFloat8E8m0;
  tensor.row_step = 2;
  ASSERT_TRUE(CheckTensor("it", tensor, kRows, kColumns).ok());
  const PackedMatrix packed = PackMatrix(tensor, FormatOf({}, GemmFormat::kMxfp4));
  const std::vector<uint8_t> scales = ScaleBytes(packed);
  ASSERT_EQ(scales.size(), size_t{16} * kRows);
  for (size_t row = 0; row < kRows; ++row) {
    EXPECT_EQ(scales[16 * row], row);
    EXPECT_EQ(scales[16 * row + 1], 255 - row);
    for (size_t i = 0; i < kColumns / 2; ++i) {
      EXPECT_EQ(packed.elements[row * (kColumns / 2) + i], static_cast<uint8_t>(i * 17 + row));
    }
  }
  // Numbers that MXFP4 has stay what they are when they are quantized from another type.
  tensor.row_step = 1;
  std::fill(exponents.begin(), exponents.end(), uint8_t{120});
  for (size_t block = 0; block < elements.size() / 16; ++block) elements[16 * block] = 0x7f;
  const PackedMatrix floats = PackMatrix(tensor, FormatOf(TensorType::kFloat32));
  HostTensor plain = View(TensorType::kFloat32, kRows, kColumns, floats.elements);
  const PackedMatrix again = PackMatrix(plain, FormatOf({}, GemmFormat::kMxfp4));
  EXPECT_EQ(again.scales, std::vector<float>(again.scales.size(), 0x1p-7F));
  EXPECT_EQ(PackMatrix(tensor, FormatOf({}, GemmFormat::kMxfp4)).elements, again.elements);

  tensor.column_pitch = kRows;
  EXPECT_FALSE(CheckTensor("it", tensor, kRows, kColumns).ok());
  HostTensor blocks = View(TensorType::kFloat8E4m3, kRows, kColumns / 2, elements);
  blocks.scales = tensor.scales;
  blocks.row_step = 2;
  EXPECT_FALSE(CheckTensor("it", blocks, kRows, kColumns / 2).ok());
}

TEST(PackWeightsTest, ScalesOfMxfp4AlternateAsRowsDo) {
  constexpr size_t kRows = 24;
  const std::vector<uint8_t> elements(kRows * 16, 0x21);
  std::vector<uint8_t> exponents(kRows);
  for (size_t row = 0; row < kRows; ++row) exponents[row] = static_cast<uint8_t>(100 + row);
  MlpWeights weights;
  weights.gate = View(TensorType::kFloat4E2m1, kRows, 32, elements);
  weights.gate.scales = reinterpret_cast<const std::byte*>(exponents.data());
  weights.gate.scale_type = TensorType::kFloat8E8m0;
  std::vector<uint8_t> others = exponents;
  for (uint8_t& exponent : others) exponent += 50;
  weights.up = weights.gate;
  weights.up.scales = reinterpret_cast<const std::byte*>(others.data());
  const std::vector<uint8_t> scales =
      ScaleBytes(PackGateUp(weights, FormatOf({}, GemmFormat::kMxfp4)));
  ASSERT_EQ(scales.size(), 2 * kRows * 16);
  for (size_t row = 0; row < kRows; ++row) {
    const size_t place = 16 * (row / 8) + row % 8;
    EXPECT_EQ(scales[16 * place], 100 + row);
    EXPECT_EQ(scales[16 * (place + 8)], 150 + row);
  }
}

// Columns, longer than the matrix is high, behind each other.
template <typename T>
std::vector<T> ColumnMajor(const std::vector<T>& elements, int rows, int columns, size_t pitch) {
  std::vector<T> stored(static_cast<size_t>(columns) * pitch, T{77});
  for (size_t row = 0; row < static_cast<size_t>(rows); ++row) {
    for (size_t column = 0; column < static_cast<size_t>(columns); ++column) {
      stored[column * pitch + row] = elements[row * static_cast<size_t>(columns) + column];
    }
  }
  return stored;
}

// Expects that the matrix is packed alike from both orders.
template <typename T>
void ExpectOrderDoesNotMatter(const HostTensor& by_rows, const std::vector<T>& elements) {
  const std::vector<float> scales = {1.5F, 0.25F, 3.0F, 5.0F, 7.0F, 0.5F};  // [2][3]
  const std::vector<float> scales_by_columns = ColumnMajor(scales, 2, 3, 4);
  HostTensor tensor = by_rows;
  tensor.data = reinterpret_cast<const std::byte*>(elements.data());
  const std::vector<T> stored = ColumnMajor(elements, tensor.rows, tensor.columns, 400);
  HostTensor other = tensor;
  other.data = reinterpret_cast<const std::byte*>(stored.data());
  other.column_pitch = 400;
  if (tensor.type == TensorType::kFloat8E4m3) {
    tensor.scales = reinterpret_cast<const std::byte*>(scales.data());
    other.scales = reinterpret_cast<const std::byte*>(scales_by_columns.data());
  }
  for (const GemmFormat format : {GemmFormat::kSame, GemmFormat::kFp8}) {
    const PackedMatrix expected = PackMatrix(tensor, FormatOf({}, format));
    const PackedMatrix packed = PackMatrix(other, FormatOf({}, format));
    EXPECT_TRUE(packed.elements == expected.elements) << EnumName(tensor.type);
    EXPECT_EQ(packed.scales, expected.scales) << EnumName(tensor.type);
  }
  for (const int row : {0, 129}) {
    EXPECT_EQ(ElementOf(other, row, 259), ElementOf(tensor, row, 259)) << EnumName(tensor.type);
  }
}

TEST(PackWeightsTest, ColumnMajorIsPackedAlike) {
  HostTensor shape = {.rows = 130, .columns = 260};
  std::vector<float> floats;
  std::vector<uint16_t> words;
  std::vector<uint8_t> bytes;
  for (int i = 0; i < 130 * 260; ++i) {
    floats.push_back(std::sin(static_cast<float>(i)));
    words.push_back(BitsFromFloat(DType::kBFloat16, floats.back()));
    bytes.push_back(static_cast<uint8_t>(i % 127));
  }
  shape.type = TensorType::kFloat32;
  ExpectOrderDoesNotMatter(shape, floats);
  for (const TensorType type : {TensorType::kBFloat16, TensorType::kFloat16}) {
    shape.type = type;
    ExpectOrderDoesNotMatter(shape, words);
  }
  shape.type = TensorType::kFloat8E4m3;
  ExpectOrderDoesNotMatter(shape, bytes);
}

TEST(PackWeightsTest, ColumnsMustNotOverlap) {
  const std::vector<uint16_t> bits(8);
  HostTensor tensor = View(TensorType::kBFloat16, 4, 2, bits);
  tensor.column_pitch = 4;
  EXPECT_EQ(CheckTensor("up", tensor, 4, 2), absl::OkStatus());
  tensor.column_pitch = 3;
  EXPECT_EQ(CheckTensor("up", tensor, 4, 2),
            absl::InvalidArgumentError("up has a column_pitch of 3 and 4 rows; it must be 0 or at "
                                       "least as many"));
}

TEST(PackWeightsTest, NanMakesNanOfItsBlock) {
  std::vector<float> values(2 * 128, 1.0F);
  values[5] = std::numeric_limits<float>::quiet_NaN();
  const HostTensor tensor = View(TensorType::kFloat32, 1, 256, values);
  const PackedMatrix packed = PackMatrix(tensor, FormatOf({}, GemmFormat::kFp8));
  EXPECT_TRUE(std::isnan(packed.scales[0]));
  EXPECT_FALSE(std::isnan(packed.scales[1]));
}

}  // namespace
}  // namespace octet
