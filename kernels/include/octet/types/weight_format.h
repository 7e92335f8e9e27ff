// The formats in which the numbers of weights are stored, from a checkpoint's tensor to a product's
// operand. One table describes them: their names, sizes and scales, and what a product needs beside
// them. Other code asks the table, and does not tell formats apart.
#ifndef OCTET_TYPES_WEIGHT_FORMAT_H_
#define OCTET_TYPES_WEIGHT_FORMAT_H_

#include <cstddef>
#include <optional>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "octet/dtype.h"
#include "octet/enum_names.h"
#include "octet/fp8_scale.h"

namespace octet {

// The numbers that a tensor stores.
enum class TensorType {
  kFloat32,
  kBFloat16,
  kFloat16,
  kFloat8E4m3,  // OCP E4M3 (torch.float8_e4m3fn), in blocks with a scale each
  kFloat4E2m1,  // OCP E2M1, two in a byte, in blocks with a scale each (octet/fp4_format.h)
  kFloat8E8m0,  // OCP E8M0 (torch.float8_e8m0fnu): powers of two, which scales are stored as
  kInt4,        // -8 to 7 as 0 to 15, two in a byte, the first in the lower half; with scales
};

// The operands of a product as a configuration names them: those of FormatOf(dtype, format).
enum class GemmFormat {
  kSame,  // the configuration's dtype
  // 8-bit floats in the platform's form (Fp8Form::kNative, octet/fp8.h) with scales: one for each
  // row of a and 128 columns of K, as EpConfig::scale_group = 128 delivers them, and one for each
  // 128 rows and 128 columns of an expert's b. An element stands for itself times its scale. With
  // kSwiGlu, gate and up have scales of their own, as checkpoints have them
  // (GroupedGemmArgs::b_scales).
  kFp8,
  // b in MXFP4 (octet/fp4_format.h): 4-bit floats, two in a byte, with an 8-bit exponent for each
  // 32 columns of K; a of the dtype. An element of b, times its scale, is a number of the dtype.
  kMxfp4,
};

struct WeightFormat {
  TensorType element = TensorType::kBFloat16;
  // Elements [block_rows][block_columns] share a scale, and stand for themselves times it. Blocks
  // at the end of a row or a column may be smaller. 0: elements stand for themselves.
  int block_rows = 0;
  int block_columns = 0;
  ScaleFormat scale = ScaleFormat::kFloat32;  // of the scales that a product reads

  bool operator==(const WeightFormat&) const = default;

  bool has_scales() const { return block_columns > 0; }
  // Returns the bytes of `elements` elements, a whole number of them.
  size_t Bytes(size_t elements) const;
  // Return the number of blocks that `rows` rows and `columns` columns have; only with scales.
  size_t BlocksOfRows(size_t rows) const { return DivideUp(rows, block_rows); }
  size_t BlocksOfColumns(size_t columns) const { return DivideUp(columns, block_columns); }

 private:
  static size_t DivideUp(size_t size, int block) {
    return (size + static_cast<size_t>(block) - 1) / static_cast<size_t>(block);
  }
};

// A type's finite numbers: multiples of 2^least with so many significant binary digits, whose
// magnitudes are below 2^greatest.
struct NumberRange {
  int digits;
  int least;
  int greatest;
};

// A row of the table.
struct WeightFormatInfo {
  WeightFormat format;           // as checkpoints have it
  absl::string_view name;        // in flags, files and messages: "fp8"
  absl::string_view title;       // in sentences: "FP8"
  absl::string_view file_dtype;  // of a tensor in a safetensors file: "F8_E4M3"
  int bits;                      // of an element
  NumberRange numbers;           // of an element, without its scale
  // What a configuration calls products with such weights; kSame if they must be converted.
  GemmFormat word;
  // Rows that are multiplied by such weights are quantized to the same elements, a scale for each
  // block_columns of them. false: they are of the dtype, and rows of scales have a multiple of 16
  // bytes.
  bool quantizes_rows;
  std::optional<DType> dtype;  // the dtype that a configuration must have beside it; nullopt: any

  // The elements of 16 bytes, of which a row of an operand has a multiple.
  int unit() const {
    constexpr int kBits = 128;
    return kBits / bits;
  }
};

absl::Span<const WeightFormatInfo> WeightFormats();  // the table
const WeightFormatInfo& InfoOf(TensorType type);
inline const WeightFormatInfo& InfoOf(const WeightFormat& format) { return InfoOf(format.element); }

inline WeightFormat FormatOf(TensorType type) { return InfoOf(type).format; }
TensorType TypeOf(DType dtype);
// Returns the format of the weights of a configuration: of its dtype with kSame.
WeightFormat FormatOf(DType dtype, GemmFormat format = GemmFormat::kSame);

// The effect of storing a matrix in another format.
enum class Conversion {
  kExact,      // all numbers stay what they are; always allowed
  kRounded,    // each is rounded to the nearest that the other format has
  kQuantized,  // blocks get new scales, and their numbers are rounded to multiples of them
};
Conversion ConversionOf(const WeightFormat& from, const WeightFormat& to);
// Returns what a configuration calls products that take such weights as they are; kSame if they
// must be converted to the dtype.
GemmFormat ProductsOf(const WeightFormat& format);
// Returns the types that float32 holds exactly: those of routers, of biases and of scales.
std::vector<TensorType> TypesWithinFloat32();

// Read and write number `index` of those at `data`, without its scale. Reading is exact; writing
// rounds to the nearest even number, and to kFloat8E8m0 the nearest power of two, NaN for a number
// that is not positive. `data` need not be aligned.
float LoadNumber(TensorType type, const std::byte* data, size_t index);
void StoreNumber(TensorType type, float value, std::byte* data, size_t index);

absl::Span<const EnumEntry<TensorType>> EnumTable(TensorType);  // names: octet/enum_names.h
absl::Span<const EnumEntry<GemmFormat>> EnumTable(GemmFormat);
// Returns the bytes of an element, which must have whole bytes.
size_t BytesOf(TensorType type);

}  // namespace octet

#endif  // OCTET_TYPES_WEIGHT_FORMAT_H_
