#include "octet/types/weight_format.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <iterator>

#include "octet/fp4_format.h"
#include "octet/fp8.h"
#include "octet/fp8_scale.h"
#include "octet/gemm_tiles.h"

namespace octet {
namespace {

constexpr size_t kBitsOfByte = 8;

constexpr WeightFormatInfo kFormats[] = {
    {.format = {.element = TensorType::kFloat32},
     .name = "fp32",
     .title = "FP32",
     .file_dtype = "F32",
     .bits = 32,
     .numbers = {.digits = 24, .least = -149, .greatest = 128},
     .word = GemmFormat::kSame,
     .quantizes_rows = false,
     .dtype = std::nullopt},
    {.format = {.element = TensorType::kBFloat16},
     .name = "bf16",
     .title = "BF16",
     .file_dtype = "BF16",
     .bits = 16,
     .numbers = {.digits = 8, .least = -133, .greatest = 128},
     .word = GemmFormat::kSame,
     .quantizes_rows = false,
     .dtype = std::nullopt},
    {.format = {.element = TensorType::kFloat16},
     .name = "fp16",
     .title = "FP16",
     .file_dtype = "F16",
     .bits = 16,
     .numbers = {.digits = 11, .least = -24, .greatest = 16},
     .word = GemmFormat::kSame,
     .quantizes_rows = false,
     .dtype = std::nullopt},
    {.format = {.element = TensorType::kFloat8E4m3,
                .block_rows = kGemmScaleGroup,
                .block_columns = kGemmScaleGroup,
                .scale = ScaleFormat::kFloat32},
     .name = "fp8",
     .title = "FP8",
     .file_dtype = "F8_E4M3",
     .bits = 8,
     .numbers = {.digits = 4, .least = -9, .greatest = 9},
     .word = GemmFormat::kFp8,
     .quantizes_rows = true,
     .dtype = DType::kBFloat16},
    {.format = {.element = TensorType::kFloat4E2m1,
                .block_rows = 1,
                .block_columns = kMxBlock,
                .scale = ScaleFormat::kUe8m0},
     .name = "mxfp4",
     .title = "MXFP4",
     .file_dtype = "",  // files have tensors of bytes instead
     .bits = 4,
     .numbers = {.digits = 2, .least = -1, .greatest = 3},
     .word = GemmFormat::kMxfp4,
     .quantizes_rows = false,
     .dtype = DType::kBFloat16},
    {.format = {.element = TensorType::kFloat8E8m0},
     .name = "e8m0",
     .title = "E8M0",
     .file_dtype = "F8_E8M0",
     .bits = 8,
     .numbers = {.digits = 1, .least = -127, .greatest = 128},
     .word = GemmFormat::kSame,
     .quantizes_rows = false,
     .dtype = std::nullopt},
    {.format = {.element = TensorType::kInt4,
                .block_rows = 1,
                .block_columns = kMxBlock,  // or a multiple
                .scale = ScaleFormat::kFloat32},
     .name = "int4",
     .title = "INT4",
     .file_dtype = "",  // eight in a number of 32 bits
     .bits = 4,
     .numbers = {.digits = 3, .least = 0, .greatest = 4},
     .word = GemmFormat::kSame,
     .quantizes_rows = false,
     .dtype = std::nullopt},
};

constexpr int kInt4Zero = 8;  // the half of a byte that means 0

template <typename T>
T Load(const std::byte* data, size_t index) {
  T value;
  std::memcpy(&value, data + index * sizeof(T), sizeof(T));
  return value;
}

template <typename T>
void Store(T value, std::byte* data, size_t index) {
  std::memcpy(data + index * sizeof(T), &value, sizeof(T));
}

// Reads and writes a half of a byte.
uint8_t LoadHalf(const std::byte* data, size_t index) {
  const unsigned shift = index % 2 == 0 ? 0 : 4;
  return std::to_integer<uint8_t>(data[index / 2]) >> shift & 0xf;
}
void StoreHalf(uint8_t value, std::byte* data, size_t index) {
  const unsigned shift = index % 2 == 0 ? 0 : 4;
  std::byte& both = data[index / 2];
  both = (both & ~(std::byte{0xf} << shift)) | std::byte{value} << shift;
}

// Returns the nearest exponent, of two the larger.
uint8_t NearestExponent(float value) {
  constexpr float kHalf = 1.5F;  // between a power of two and the next
  constexpr int kMost = 254;
  constexpr uint8_t kNan = 255;
  if (!(value > 0)) return kNan;
  for (int exponent = 0; exponent < kMost; ++exponent) {
    if (value < kHalf * ScaleFromUe8m0(static_cast<uint8_t>(exponent))) {
      return static_cast<uint8_t>(exponent);
    }
  }
  return kMost;
}

// NaN, which the format does not have, becomes the least.
uint8_t NearestInt4(float value) {
  constexpr float kLeast = -kInt4Zero;
  constexpr float kMost = kInt4Zero - 1;
  const float number = !(value > kLeast) ? kLeast : std::min(std::nearbyint(value), kMost);
  return static_cast<uint8_t>(static_cast<int>(number) + kInt4Zero);
}

}  // namespace

absl::Span<const WeightFormatInfo> WeightFormats() { return kFormats; }

const WeightFormatInfo& InfoOf(TensorType type) {
  return *std::find_if(std::begin(kFormats), std::end(kFormats) - 1,
                       [type](const auto& info) { return info.format.element == type; });
}

size_t WeightFormat::Bytes(size_t elements) const {
  return elements * static_cast<size_t>(InfoOf(element).bits) / kBitsOfByte;
}

size_t BytesOf(TensorType type) { return FormatOf(type).Bytes(1); }

TensorType TypeOf(DType dtype) {
  return dtype == DType::kFloat16 ? TensorType::kFloat16 : TensorType::kBFloat16;
}

WeightFormat FormatOf(DType dtype, GemmFormat format) {
  if (format == GemmFormat::kSame) return FormatOf(TypeOf(dtype));
  return std::find_if(std::begin(kFormats), std::end(kFormats) - 1,
                      [format](const auto& info) { return info.word == format; })
      ->format;
}

Conversion ConversionOf(const WeightFormat& from, const WeightFormat& to) {
  const bool keeps = from.element == to.element && from.scale == to.scale && from.has_scales();
  // Each block of `to` lies in one of `from`.
  if (keeps && to.has_scales() && from.block_rows % to.block_rows == 0 &&
      from.block_columns % to.block_columns == 0) {
    return Conversion::kExact;
  }
  if (from == to) return Conversion::kExact;
  if (to.has_scales()) return Conversion::kQuantized;
  if (from.has_scales()) return Conversion::kRounded;
  const NumberRange& a = InfoOf(from).numbers;
  const NumberRange& b = InfoOf(to).numbers;
  const bool within = a.digits <= b.digits && a.least >= b.least && a.greatest <= b.greatest;
  return within ? Conversion::kExact : Conversion::kRounded;
}

GemmFormat ProductsOf(const WeightFormat& format) {
  const WeightFormatInfo& info = InfoOf(format);
  const bool exact = ConversionOf(format, info.format) == Conversion::kExact;
  return exact ? info.word : GemmFormat::kSame;
}

std::vector<TensorType> TypesWithinFloat32() {
  std::vector<TensorType> types;
  for (const WeightFormatInfo& info : kFormats) {
    if (ConversionOf(info.format, FormatOf(TensorType::kFloat32)) == Conversion::kExact) {
      types.push_back(info.format.element);
    }
  }
  return types;
}

float LoadNumber(TensorType type, const std::byte* data, size_t index) {
  switch (type) {
    case TensorType::kFloat32:
      break;
    case TensorType::kBFloat16:
      return FloatFromBits(DType::kBFloat16, Load<uint16_t>(data, index));
    case TensorType::kFloat16:
      return FloatFromBits(DType::kFloat16, Load<uint16_t>(data, index));
    case TensorType::kFloat8E4m3:
      return FloatFromFp8Bits(Fp8Form::kE4m3Fn, Load<uint8_t>(data, index));
    case TensorType::kFloat4E2m1:
      return FloatFromFp4(LoadHalf(data, index));
    case TensorType::kFloat8E8m0:
      return ScaleFromUe8m0(Load<uint8_t>(data, index));
    case TensorType::kInt4:
      return static_cast<float>(LoadHalf(data, index) - kInt4Zero);
  }
  return Load<float>(data, index);
}

void StoreNumber(TensorType type, float value, std::byte* data, size_t index) {
  switch (type) {
    case TensorType::kFloat32:
      return Store(value, data, index);
    case TensorType::kBFloat16:
      return Store(BitsFromFloat(DType::kBFloat16, value), data, index);
    case TensorType::kFloat16:
      return Store(BitsFromFloat(DType::kFloat16, value), data, index);
    case TensorType::kFloat8E4m3:
      return Store(Fp8BitsFromFloat(Fp8Form::kE4m3Fn, value), data, index);
    case TensorType::kFloat4E2m1:
      return StoreHalf(Fp4FromFloat(value), data, index);
    case TensorType::kFloat8E8m0:
      return Store(NearestExponent(value), data, index);
    case TensorType::kInt4:
      return StoreHalf(NearestInt4(value), data, index);
  }
}

absl::Span<const EnumEntry<TensorType>> EnumTable(TensorType /*unused*/) {
  static constexpr auto kTable = [] {
    std::array<EnumEntry<TensorType>, std::size(kFormats)> table = {};
    std::transform(std::begin(kFormats), std::end(kFormats), table.begin(),
                   [](const WeightFormatInfo& info) {
                     return EnumEntry<TensorType>{info.format.element, info.name};
                   });
    return table;
  }();
  return kTable;
}

absl::Span<const EnumEntry<GemmFormat>> EnumTable(GemmFormat /*unused*/) {
  static const EnumEntry<GemmFormat> kTable[] = {
      {GemmFormat::kSame, "same"},
      {GemmFormat::kFp8, InfoOf(FormatOf({}, GemmFormat::kFp8)).name},
      {GemmFormat::kMxfp4, InfoOf(FormatOf({}, GemmFormat::kMxfp4)).name}};
  return kTable;
}

}  // namespace octet
