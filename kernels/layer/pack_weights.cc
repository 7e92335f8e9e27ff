#include "kernels/layer/pack_weights.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <type_traits>

#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "octet/fp8.h"
#include "octet/fp8_format.h"
#include "octet/fp8_scale.h"
#include "octet/native_fp8.h"

namespace octet {
namespace {

constexpr int kBlock = kGemmScaleGroup;  // rows and columns that share a scale
constexpr int kAlternating = 8;          // rows of gate, then of up

size_t Size(int n) { return static_cast<size_t>(n); }
int Blocks(int n) { return (n + kBlock - 1) / kBlock; }

template <typename T>
T Load(const std::byte* bytes, size_t index) {
  T value;
  std::memcpy(&value, bytes + index * sizeof(T), sizeof(T));
  return value;
}

size_t Blocks(size_t n) { return (n + kBlock - 1) / kBlock; }

// Returns a number of any type but kFloat8E4m3, exactly.
float LoadFloat(TensorType type, const std::byte* bytes, size_t index) {
  switch (type) {
    case TensorType::kBFloat16:
      return FloatFromBits(DType::kBFloat16, Load<uint16_t>(bytes, index));
    case TensorType::kFloat16:
      return FloatFromBits(DType::kFloat16, Load<uint16_t>(bytes, index));
    case TensorType::kFloat32:
    case TensorType::kFloat8E4m3:
      break;
  }
  return Load<float>(bytes, index);
}

float ScaleOf(const HostTensor& tensor, int row, int column) {
  const size_t i = Size(row / kBlock);
  const size_t j = Size(column / kBlock);
  const size_t index = tensor.column_pitch == 0 ? i * Size(Blocks(tensor.columns)) + j
                                                : j * Blocks(tensor.column_pitch) + i;
  return LoadFloat(tensor.scale_type, tensor.scales, index);
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
          const T value = Load<T>(tensor.data, Size(column) * tensor.column_pitch + Size(row));
          std::memcpy(to + (Size(row) * Size(tensor.columns) + Size(column)) * sizeof(T), &value,
                      sizeof(T));
        }
      }
    }
  }
}

// A column-major matrix, row by row.
class RowMajor {
 public:
  explicit RowMajor(const HostTensor& tensor)
      : view_(tensor), data_(Size(tensor.rows) * Size(tensor.columns) * BytesOf(tensor.type)) {
    switch (BytesOf(tensor.type)) {
      case sizeof(uint8_t):
        Transpose<uint8_t>(tensor, data_.data());
        break;
      case sizeof(uint16_t):
        Transpose<uint16_t>(tensor, data_.data());
        break;
      default:
        Transpose<uint32_t>(tensor, data_.data());
    }
    view_.column_pitch = 0;
    view_.data = data_.data();
    if (tensor.scales == nullptr) return;
    for (int row = 0; row < tensor.rows; row += kBlock) {
      for (int column = 0; column < tensor.columns; column += kBlock) {
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

bool HasType(const HostTensor& tensor, DType dtype) {
  return tensor.type == (dtype == DType::kFloat16 ? TensorType::kFloat16 : TensorType::kBFloat16);
}

PackedMatrix PackDType(const HostTensor& tensor, DType dtype) {
  PackedMatrix packed;
  const size_t elements = Size(tensor.rows) * Size(tensor.columns);
  packed.elements.resize(elements * sizeof(uint16_t));
  if (HasType(tensor, dtype)) {
    std::memcpy(packed.elements.data(), tensor.data, packed.elements.size());
    return packed;
  }
  uint8_t* out = packed.elements.data();
  for (int row = 0; row < tensor.rows; ++row) {
    for (int column = 0; column < tensor.columns; ++column) {
      const uint16_t bits = BitsFromFloat(dtype, ElementOf(tensor, row, column));
      std::memcpy(out, &bits, sizeof(bits));
      out += sizeof(bits);
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

// Quantizes columns [first, end) of the rows that `values` holds, `tensor`'s from first_row on.
void QuantizeBlock(absl::Span<const float> values, const HostTensor& tensor, int first_row,
                   int first, PackedMatrix& packed) {
  const size_t columns = Size(tensor.columns);
  const size_t end = Size(std::min(first + kBlock, tensor.columns));
  const size_t rows = values.size() / columns;
  float largest = 0;
  for (size_t row = 0; row < rows; ++row) {
    for (size_t column = Size(first); column < end; ++column) {
      const float magnitude = std::abs(values[row * columns + column]);
      // Infinities and NaN make NaN of the scale, and so of the block.
      if (!(magnitude <= largest) && !std::isnan(largest)) largest = magnitude;
    }
  }
  const float scale = Fp8Scale<NativeFp8>(largest, ScaleFormat::kFloat32);
  for (size_t row = 0; row < rows; ++row) {
    uint8_t* const out = packed.elements.data() + (Size(first_row) + row) * columns;
    for (size_t column = Size(first); column < end; ++column) {
      out[column] = Fp8BitsFromFloat(Fp8Form::kNative, values[row * columns + column] / scale);
    }
  }
  packed.scales.push_back(scale);
}

PackedMatrix PackFp8(const HostTensor& tensor) {
  PackedMatrix packed;
  packed.elements.resize(Size(tensor.rows) * Size(tensor.columns));
  if (tensor.type != TensorType::kFloat8E4m3) {
    std::vector<float> values;
    for (int first = 0; first < tensor.rows; first += kBlock) {
      const int rows = std::min(kBlock, tensor.rows - first);
      values.resize(Size(rows) * Size(tensor.columns));
      for (int row = 0; row < rows; ++row) {
        ReadRow(
            tensor, first + row,
            absl::MakeSpan(values).subspan(Size(row) * Size(tensor.columns), Size(tensor.columns)));
      }
      for (int column = 0; column < tensor.columns; column += kBlock) {
        QuantizeBlock(values, tensor, first, column, packed);
      }
    }
    return packed;
  }
  std::transform(
      tensor.data, tensor.data + packed.elements.size(), packed.elements.begin(),
      [](std::byte bits) { return NativeFromE4m3Fn::Convert(std::to_integer<uint8_t>(bits)); });
  const size_t scales = Size(Blocks(tensor.rows)) * Size(Blocks(tensor.columns));
  for (size_t i = 0; i < scales; ++i) {
    packed.scales.push_back(LoadFloat(tensor.scale_type, tensor.scales, i) *
                            NativeFromE4m3Fn::kScale);
  }
  return packed;
}

}  // namespace

size_t WeightFormat::element_bytes() const {
  return format == GemmFormat::kFp8 ? 1 : InfoOf(dtype).bytes;
}

absl::Status CheckTensor(absl::string_view name, const HostTensor& tensor, int rows, int columns) {
  if (tensor.empty()) return absl::InvalidArgumentError(absl::StrCat(name, " is missing"));
  if (tensor.rows != rows || tensor.columns != columns) {
    return absl::InvalidArgumentError(absl::StrCat(name, " is ", tensor.rows, " x ", tensor.columns,
                                                   "; it must be ", rows, " x ", columns));
  }
  if (tensor.column_pitch != 0 && tensor.column_pitch < Size(rows)) {
    return absl::InvalidArgumentError(absl::StrCat(name, " has a column_pitch of ",
                                                   tensor.column_pitch, " and ", rows,
                                                   " rows; it must be 0 or at least as many"));
  }
  if (tensor.type == TensorType::kFloat8E4m3 && tensor.scales == nullptr) {
    return absl::InvalidArgumentError(absl::StrCat(name, " is of 8-bit floats without scales"));
  }
  if (tensor.scales != nullptr && tensor.scale_type == TensorType::kFloat8E4m3) {
    return absl::InvalidArgumentError(
        absl::StrCat(name, " has scales of 8-bit floats; they must be fp32, bf16 or fp16"));
  }
  return absl::OkStatus();
}

float ElementOf(const HostTensor& tensor, int row, int column) {
  const size_t index = tensor.column_pitch == 0 ? Size(row) * Size(tensor.columns) + Size(column)
                                                : Size(column) * tensor.column_pitch + Size(row);
  if (tensor.type != TensorType::kFloat8E4m3) return LoadFloat(tensor.type, tensor.data, index);
  return FloatFromFp8Bits(Fp8Form::kE4m3Fn, Load<uint8_t>(tensor.data, index)) *
         ScaleOf(tensor, row, column);
}

PackedMatrix PackMatrix(const HostTensor& tensor, const WeightFormat& format) {
  if (tensor.column_pitch != 0) return PackMatrix(RowMajor(tensor).view(), format);
  return format.format == GemmFormat::kFp8 ? PackFp8(tensor) : PackDType(tensor, format.dtype);
}

PackedMatrix PackGateUp(const MlpWeights& weights, const WeightFormat& format) {
  const PackedMatrix gate = PackMatrix(weights.gate, format);
  const PackedMatrix up = PackMatrix(weights.up, format);
  PackedMatrix both;
  const size_t piece = kAlternating * Size(weights.gate.columns) * format.element_bytes();
  both.elements.reserve(2 * gate.elements.size());
  for (size_t at = 0; at < gate.elements.size(); at += piece) {
    const size_t end = std::min(at + piece, gate.elements.size());
    for (const PackedMatrix* from : {&gate, &up}) {
      both.elements.insert(both.elements.end(), from->elements.begin() + static_cast<ptrdiff_t>(at),
                           from->elements.begin() + static_cast<ptrdiff_t>(end));
    }
  }
  both.scales = gate.scales;
  both.scales.insert(both.scales.end(), up.scales.begin(), up.scales.end());
  return both;
}

}  // namespace octet
