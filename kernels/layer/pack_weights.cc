#include "kernels/layer/pack_weights.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <type_traits>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/types/span.h"
#include "kernels/gemm/gemm_config.h"
#include "octet/enum_names.h"
#include "octet/fp8.h"
#include "octet/fp8_format.h"
#include "octet/fp8_scale.h"
#include "octet/native_fp8.h"
#include "runtime/base/size.h"

namespace octet {
namespace {

constexpr int kAlternating = 8;  // rows of gate, then of up

template <typename T>
T Load(const std::byte* bytes, size_t index) {
  T value;
  std::memcpy(&value, bytes + index * sizeof(T), sizeof(T));
  return value;
}

float ScaleOf(const HostTensor& tensor, int row, int column) {
  const WeightFormat format = tensor.format();
  const size_t i = Size(row / format.block_rows) * Size(tensor.row_step);
  const size_t j = Size(column / format.block_columns);
  const size_t index = tensor.column_pitch == 0
                           ? i * format.BlocksOfColumns(Size(tensor.columns)) + j
                           : j * format.BlocksOfRows(tensor.column_pitch) + i;
  return LoadNumber(tensor.scale_type, tensor.scales, index);
}

// Stores a column-major matrix row by row: square tiles, whose rows and columns fit the cache.
template <typename T>
void Transpose(const HostTensor& tensor, std::byte* to) {
  constexpr int kTile = 64;
  for (int row0 = 0; row0 < tensor.rows; row0 += kTile) {
    for (int column0 = 0; column0 < tensor.columns; column0 += kTile) {
      const int row_end = std::min(tensor.rows, row0 + kTile);
      const int column_end = std::min(tensor.columns, column0 + kTile);
      for (int row = row0; row < row_end; ++row) {
        for (int column = column0; column < column_end; ++column) {
          const T value = Load<T>(
              tensor.data, Size(column) * tensor.column_pitch + Size(row) * Size(tensor.row_step));
          std::memcpy(to + (Size(row) * Size(tensor.columns) + Size(column)) * sizeof(T), &value,
                      sizeof(T));
        }
      }
    }
  }
}

// Stores rows that are not one behind the other.
void CopyRows(const HostTensor& tensor, std::byte* to) {
  const size_t row_bytes = FormatOf(tensor.type).Bytes(Size(tensor.columns));
  for (size_t row = 0; row < Size(tensor.rows); ++row) {
    std::memcpy(to + row * row_bytes, tensor.data + row * Size(tensor.row_step) * row_bytes,
                row_bytes);
  }
}

void MakeRowMajor(const HostTensor& tensor, std::byte* to) {
  if (tensor.column_pitch == 0) return CopyRows(tensor, to);
  switch (BytesOf(tensor.type)) {
    case sizeof(uint8_t):
      return Transpose<uint8_t>(tensor, to);
    case sizeof(uint16_t):
      return Transpose<uint16_t>(tensor, to);
    default:
      return Transpose<uint32_t>(tensor, to);
  }
}

// A matrix of any order, row by row.
class RowMajor {
 public:
  explicit RowMajor(const HostTensor& tensor)
      : view_(tensor),
        data_(FormatOf(tensor.type).Bytes(Size(tensor.rows) * Size(tensor.columns))) {
    MakeRowMajor(tensor, data_.data());
    view_.column_pitch = 0;
    view_.row_step = 1;
    view_.data = data_.data();
    if (tensor.scales == nullptr) return;
    const WeightFormat format = tensor.format();
    for (int row = 0; row < tensor.rows; row += format.block_rows) {
      for (int column = 0; column < tensor.columns; column += format.block_columns) {
        scales_.push_back(ScaleOf(tensor, row, column));
      }
    }
    view_.scales = reinterpret_cast<const std::byte*>(scales_.data());
    view_.scale_type = TensorType::kFloat32;
  }
  RowMajor(const RowMajor&) = delete;
  RowMajor& operator=(const RowMajor&) = delete;

  const HostTensor& view() const { return view_; }

 private:
  HostTensor view_;
  std::vector<std::byte> data_;
  std::vector<float> scales_;
};

// Packs a tensor into a format without scales.
PackedMatrix PackPlain(const HostTensor& tensor, const WeightFormat& format) {
  PackedMatrix packed;
  packed.elements.resize(format.Bytes(Size(tensor.rows) * Size(tensor.columns)));
  if (tensor.type == format.element) {
    std::memcpy(packed.elements.data(), tensor.data, packed.elements.size());
    return packed;
  }
  auto* const out = reinterpret_cast<std::byte*>(packed.elements.data());
  size_t index = 0;
  for (int row = 0; row < tensor.rows; ++row) {
    for (int column = 0; column < tensor.columns; ++column) {
      StoreNumber(format.element, ElementOf(tensor, row, column), out, index++);
    }
  }
  return packed;
}

// The platform's FP8 number for one of OCP's, and what its scale is multiplied by: the same bits
// mean half as much in e4m3fnuz, which has no -0 and no other NaN than its bits.
struct NativeFromE4m3Fn {
  static constexpr bool kSame = std::is_same_v<NativeFp8, E4m3Fn>;
  static constexpr float kScale = kSame ? 1.0F : 2.0F;

  static uint8_t Convert(uint8_t bits) {
    if constexpr (kSame) return bits;
    constexpr uint8_t kNegativeZero = 0x80;
    constexpr uint8_t kMagnitude = 0x7f;
    if ((bits & kMagnitude) == kMagnitude) return kNegativeZero;  // e4m3fnuz's NaN
    return bits == kNegativeZero ? uint8_t{0} : bits;
  }
};

// Reads the elements of a row.
void ReadRow(const HostTensor& tensor, int row, absl::Span<float> out) {
  for (int column = 0; column < tensor.columns; ++column) {
    out[Size(column)] = ElementOf(tensor, row, column);
  }
}

// A block of `tensor`: of its rows from first_row on, those that `values` holds, and its columns
// [first, end).
struct Block {
  absl::Span<const float> values;
  size_t row_size;
  size_t first_row;
  size_t first;
  size_t end;
};

// Returns the scale of a block with this largest magnitude.
float ScaleOfBlock(const WeightFormat& format, float largest) {
  if (format.scale == ScaleFormat::kFloat32) return Fp8Scale<NativeFp8>(largest, format.scale);
  if (!std::isfinite(largest)) return std::numeric_limits<float>::quiet_NaN();
  constexpr int kLeast = -127;
  const int exponent = largest == 0 ? 0 : std::ilogb(largest) - InfoOf(format).numbers.greatest + 1;
  return std::ldexp(1.0F, std::max(exponent, kLeast));
}

void StoreQuantized(const WeightFormat& format, float value, PackedMatrix& packed, size_t index) {
  if (format.element == TensorType::kFloat8E4m3) {  // in the platform's form
    packed.elements[index] = Fp8BitsFromFloat(Fp8Form::kNative, value);
  } else {
    StoreNumber(format.element, value, reinterpret_cast<std::byte*>(packed.elements.data()), index);
  }
}

void QuantizeBlock(const Block& block, const WeightFormat& format, PackedMatrix& packed) {
  const size_t rows = block.values.size() / block.row_size;
  float largest = 0;
  for (size_t row = 0; row < rows; ++row) {
    for (size_t column = block.first; column < block.end; ++column) {
      const float magnitude = std::abs(block.values[row * block.row_size + column]);
      // Infinities and NaN make NaN of the scale, and so of the block.
      if (!(magnitude <= largest) && !std::isnan(largest)) largest = magnitude;
    }
  }
  const float scale = ScaleOfBlock(format, largest);
  for (size_t row = 0; row < rows; ++row) {
    const size_t first = (block.first_row + row) * block.row_size;
    for (size_t column = block.first; column < block.end; ++column) {
      StoreQuantized(format, block.values[row * block.row_size + column] / scale, packed,
                     first + column);
    }
  }
  packed.scales.push_back(scale);
}

PackedMatrix Quantize(const HostTensor& tensor, const WeightFormat& format) {
  PackedMatrix packed;
  const size_t columns = Size(tensor.columns);
  packed.elements.resize(format.Bytes(Size(tensor.rows) * columns));
  std::vector<float> values;
  for (int first = 0; first < tensor.rows; first += format.block_rows) {
    const int rows = std::min(format.block_rows, tensor.rows - first);
    values.resize(Size(rows) * columns);
    for (int row = 0; row < rows; ++row) {
      ReadRow(tensor, first + row, absl::MakeSpan(values).subspan(Size(row) * columns, columns));
    }
    for (int column = 0; column < tensor.columns; column += format.block_columns) {
      QuantizeBlock({.values = values,
                     .row_size = columns,
                     .first_row = Size(first),
                     .first = Size(column),
                     .end = Size(std::min(column + format.block_columns, tensor.columns))},
                    format, packed);
    }
  }
  return packed;
}

// Packs a tensor that has the format already, but for the platform's form of the elements, and for
// scales that several of its blocks have in common.
PackedMatrix KeepScales(const HostTensor& tensor, const WeightFormat& format) {
  PackedMatrix packed;
  packed.elements.resize(format.Bytes(Size(tensor.rows) * Size(tensor.columns)));
  // One type with scales has a form that depends on the platform.
  const bool converts = format.element == TensorType::kFloat8E4m3;
  std::transform(tensor.data, tensor.data + packed.elements.size(), packed.elements.begin(),
                 [converts](std::byte bits) {
                   const auto byte = std::to_integer<uint8_t>(bits);
                   return converts ? NativeFromE4m3Fn::Convert(byte) : byte;
                 });
  const float factor = converts ? NativeFromE4m3Fn::kScale : 1.0F;
  for (int row = 0; row < tensor.rows; row += format.block_rows) {
    for (int column = 0; column < tensor.columns; column += format.block_columns) {
      packed.scales.push_back(ScaleOf(tensor, row, column) * factor);
    }
  }
  return packed;
}

void AppendName(std::string* out, TensorType type) { absl::StrAppend(out, EnumName(type)); }

}  // namespace

absl::Status CheckTensor(absl::string_view name, const HostTensor& tensor, int rows, int columns) {
  if (tensor.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat(name, " is missing; it must be ", rows, " x ", columns));
  }
  if (tensor.rows != rows || tensor.columns != columns) {
    return absl::InvalidArgumentError(absl::StrCat(name, " is ", tensor.rows, " x ", tensor.columns,
                                                   "; it must be ", rows, " x ", columns));
  }
  const WeightFormatInfo& type = InfoOf(tensor.type);
  constexpr int kByte = 8;  // bits
  if (type.bits < kByte && (tensor.column_pitch != 0 || columns % type.format.block_columns != 0)) {
    return absl::InvalidArgumentError(
        absl::StrCat(name, " is ", type.name,
                     ", whose matrices must be in row-major order with a "
                     "multiple of ",
                     type.format.block_columns, " columns"));
  }
  if (tensor.row_step < 1 || (tensor.row_step > 1 && tensor.format().block_rows > 1)) {
    return absl::InvalidArgumentError(
        absl::StrCat(name, " is ", type.name, " with a row_step of ", tensor.row_step,
                     "; it must be at least 1, and 1 where rows share scales"));
  }
  if (tensor.column_pitch != 0 && tensor.column_pitch < Size(rows)) {
    return absl::InvalidArgumentError(absl::StrCat(name, " has a column_pitch of ",
                                                   tensor.column_pitch, " and ", rows,
                                                   " rows; it must be 0 or at least as many"));
  }
  if (FormatOf(tensor.type).has_scales() && tensor.scales == nullptr) {
    return absl::InvalidArgumentError(absl::StrCat(name, " is ", EnumName(tensor.type),
                                                   " without scales; set HostTensor::scales"));
  }
  if (tensor.scale_rows < 0 || tensor.scale_columns < 0) {
    return absl::InvalidArgumentError(absl::StrCat(name, " has scale_rows ", tensor.scale_rows,
                                                   " and scale_columns ", tensor.scale_columns,
                                                   "; neither may be negative"));
  }
  const std::vector<TensorType> scale_types = TypesWithinFloat32();
  if (tensor.scales != nullptr && !absl::c_linear_search(scale_types, tensor.scale_type)) {
    return absl::InvalidArgumentError(absl::StrCat(name, " has scales of ",
                                                   EnumName(tensor.scale_type), "; they must be ",
                                                   absl::StrJoin(scale_types, " or ", AppendName)));
  }
  return absl::OkStatus();
}

float ElementOf(const HostTensor& tensor, int row, int column) {
  const size_t own_row = Size(row) * Size(tensor.row_step);
  const size_t index = tensor.column_pitch == 0 ? own_row * Size(tensor.columns) + Size(column)
                                                : Size(column) * tensor.column_pitch + own_row;
  const float number = LoadNumber(tensor.type, tensor.data, index);
  return FormatOf(tensor.type).has_scales() ? number * ScaleOf(tensor, row, column) : number;
}

PackedMatrix PackMatrix(const HostTensor& tensor, const WeightFormat& format) {
  if (tensor.column_pitch != 0 || tensor.row_step != 1) {
    return PackMatrix(RowMajor(tensor).view(), format);
  }
  const bool exact = ConversionOf(tensor.format(), format) == Conversion::kExact;
  PackedMatrix packed = !format.has_scales() ? PackPlain(tensor, format)
                        : exact              ? KeepScales(tensor, format)
                                             : Quantize(tensor, format);
  packed.format = format;
  packed.columns = tensor.columns;
  return packed;
}

std::vector<uint8_t> ScaleBytes(const PackedMatrix& matrix) {
  std::vector<uint8_t> bytes;
  if (matrix.scales.empty()) return bytes;
  if (matrix.format.scale == ScaleFormat::kFloat32) {
    bytes.resize(matrix.scales.size() * sizeof(float));
    std::memcpy(bytes.data(), matrix.scales.data(), bytes.size());
    return bytes;
  }
  const size_t blocks = matrix.format.BlocksOfColumns(Size(matrix.columns));
  const size_t row_bytes = Size(ScaleWords(matrix.format, matrix.columns)) * sizeof(uint32_t);
  bytes.resize(matrix.scales.size() / blocks * row_bytes);
  for (size_t i = 0; i < matrix.scales.size(); ++i) {
    bytes[i / blocks * row_bytes + i % blocks] = Ue8m0FromScale(matrix.scales[i]);
  }
  return bytes;
}

std::vector<float> PackVector(const HostTensor& row) {
  std::vector<float> values(Size(row.columns));
  for (int column = 0; column < row.columns; ++column) {
    values[Size(column)] = ElementOf(row, 0, column);
  }
  return values;
}

namespace {

// Appends all of both, eight rows of one and eight of the other in turn.
template <typename T>
void AppendAlternating(const std::vector<T>& gate, const std::vector<T>& up, size_t row_size,
                       std::vector<T>& both) {
  const size_t piece = kAlternating * row_size;
  both.reserve(2 * gate.size());
  for (size_t at = 0; at < gate.size(); at += piece) {
    const size_t end = std::min(at + piece, gate.size());
    for (const std::vector<T>* const from : {&gate, &up}) {
      both.insert(both.end(), from->begin() + static_cast<ptrdiff_t>(at),
                  from->begin() + static_cast<ptrdiff_t>(end));
    }
  }
}

}  // namespace

std::vector<float> PackGateUpBias(const MlpWeights& weights) {
  std::vector<float> both;
  AppendAlternating(PackVector(weights.gate_bias), PackVector(weights.up_bias), 1, both);
  return both;
}

PackedMatrix PackGateUp(const MlpWeights& weights, const WeightFormat& format) {
  const PackedMatrix gate = PackMatrix(weights.gate, format);
  const PackedMatrix up = PackMatrix(weights.up, format);
  PackedMatrix both = {.elements = {}, .scales = {}, .format = format, .columns = gate.columns};
  const size_t columns = Size(weights.gate.columns);
  AppendAlternating(gate.elements, up.elements, format.Bytes(columns), both.elements);
  if (format.block_rows == 1) {
    AppendAlternating(gate.scales, up.scales, format.BlocksOfColumns(columns), both.scales);
    return both;
  }
  both.scales = gate.scales;
  both.scales.insert(both.scales.end(), up.scales.begin(), up.scales.end());
  return both;
}

}  // namespace octet
