#include "kernels/model/layer_tensors.h"

#include <algorithm>
#include <limits>
#include <optional>

#include "absl/algorithm/container.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/types/span.h"
#include "kernels/model/safetensors.h"
#include "runtime/base/status_macros.h"

namespace octet {
namespace {

// Most folders' names begin with the first, some with nothing; models that see images have the
// rest.
constexpr absl::string_view kPrefixes[] = {"model.", "", "language_model.model.",
                                           "model.language_model."};

// The tensors of a matrix that is not computed with, and of which none changes what the matrix is:
// its shape, and a scale that others quantize rows by, where Octet makes finer ones of the rows.
constexpr absl::string_view kBeside[] = {"weight_shape", "input_scale", "activation_scale"};
constexpr absl::string_view kBesides[] = {"weight", "weight_packed"};

uint64_t Unsigned(int n) { return static_cast<uint64_t>(n); }

std::string ShapeText(absl::Span<const uint64_t> shape) {
  return absl::StrCat("[", absl::StrJoin(shape, ", "), "]");
}

// Returns nullptr if HostTensor has no such type.
const WeightFormatInfo* FormatInfoOf(const SafetensorsTensor& tensor) {
  const absl::Span<const WeightFormatInfo> all = WeightFormats();
  const auto* const found = absl::c_find_if(
      all, [&](const WeightFormatInfo& info) { return info.file_dtype == tensor.dtype; });
  return found != all.end() ? found : nullptr;
}

// The rows and columns that share a scale.
struct Blocks {
  uint64_t rows;
  uint64_t columns;
};

// Returns the blocks that scales of the shape `scales` are for, of matrices of the shape `shape`;
// nothing if there are no such.
std::optional<Blocks> BlocksOf(const WeightFormat& format, absl::Span<const uint64_t> shape,
                               absl::Span<const uint64_t> scales) {
  if (shape.size() < 2) return std::nullopt;
  const uint64_t rows = shape[shape.size() - 2];
  const uint64_t columns = shape.back();
  const Blocks of_format = {Unsigned(format.block_rows), Unsigned(format.block_columns)};
  std::vector<uint64_t> wanted(shape.begin(), shape.end());
  wanted.back() = format.BlocksOfColumns(columns);
  wanted[wanted.size() - 2] = format.BlocksOfRows(rows);
  if (scales == absl::MakeConstSpan(wanted)) return of_format;
  if (shape.size() != 2) return std::nullopt;
  // Whole blocks of the format, so that one scale is that of several.
  const auto all = [](uint64_t size, uint64_t block) {
    return std::min((size + block - 1) / block * block, uint64_t{std::numeric_limits<int>::max()});
  };
  const uint64_t row = all(columns, of_format.columns);
  const bool one = absl::c_all_of(scales, [](uint64_t size) { return size == 1; });
  if (one && scales.size() <= 2) return Blocks{all(rows, of_format.rows), row};
  if (!scales.empty() && scales[0] == rows &&
      (scales.size() == 1 || (scales.size() == 2 && scales[1] == 1))) {
    return Blocks{1, row};
  }
  return std::nullopt;
}

void AppendName(std::string* out, TensorType type) {
  absl::StrAppend(out, InfoOf(type).file_dtype);
}

// The matrices of all experts in one tensor.
struct Stack {
  TensorType type = TensorType::kBFloat16;
  const std::byte* data = nullptr;
  const std::byte* scales = nullptr;
  TensorType scale_type = TensorType::kFloat32;
  uint64_t rows = 0;  // of each matrix as it is stored
  uint64_t columns = 0;
  bool transposed = false;

  // Returns `count` rows of an expert's matrix, from `first` on. With scales, `first` is a multiple
  // of a block's rows.
  HostTensor Rows(size_t expert, int first, int count) const {
    const uint64_t width = transposed ? rows : columns;
    const uint64_t stride = transposed ? 1 : columns;  // from a row to the next
    HostTensor matrix = {.type = type, .rows = count, .columns = static_cast<int>(width)};
    if (transposed) matrix.column_pitch = columns;
    const WeightFormat format = FormatOf(type);
    matrix.data = data + format.Bytes(expert * rows * columns + Unsigned(first) * stride);
    if (scales != nullptr) {
      const uint64_t block_columns = format.BlocksOfColumns(columns);
      const uint64_t block_stride = transposed ? 1 : block_columns;
      matrix.scales = scales + (expert * format.BlocksOfRows(rows) * block_columns +
                                Unsigned(first) / Unsigned(format.block_rows) * block_stride) *
                                   BytesOf(scale_type);
      matrix.scale_type = scale_type;
    }
    return matrix;
  }
};

}  // namespace

WeightFormat LayerTensors::Format(absl::string_view name) const {
  const SafetensorsTensor* const tensor = Find(name).tensor;
  if (tensor == nullptr && Has(absl::StrCat(name, kPacked))) return FormatOf(TensorType::kInt4);
  const WeightFormatInfo* const info = tensor != nullptr ? FormatInfoOf(*tensor) : nullptr;
  WeightFormat format = info != nullptr ? info->format : WeightFormat();
  const SafetensorsTensor* const scales = Find(ScalesOf(name)).tensor;
  if (!format.has_scales() || scales == nullptr) return format;
  if (const auto blocks = BlocksOf(format, tensor->shape, scales->shape)) {
    format.block_rows = static_cast<int>(blocks->rows);
    format.block_columns = static_cast<int>(blocks->columns);
  }
  return format;
}

std::string LayerTensors::ScalesOf(absl::string_view name) const {
  for (const absl::string_view suffix : kFp8Scales) {
    std::string scales = absl::StrCat(name, suffix);
    if (Has(scales)) return scales;
  }
  return absl::StrCat(name, kFp8Scales[0]);
}

std::string LayerTensors::FullName(absl::string_view name) const {
  return absl::StrCat(block_, ".", name);
}

std::string LayerTensors::Quoted(absl::string_view name) const {
  const ModelTensors::Found found = Find(name);
  return found.tensor != nullptr ? QuotedName(found.tensor->name)
                                 : absl::StrCat("'", kPrefixes[0], FullName(name), "'");
}

ModelTensors::Found LayerTensors::Find(absl::string_view name) const {
  ModelTensors::Found found = {};
  for (const absl::string_view prefix : kPrefixes) {
    found = tensors_.Find(absl::StrCat(prefix, FullName(name)));
    if (found.tensor != nullptr) break;
  }
  return found;
}

absl::Status LayerTensors::WhyMissing(absl::string_view name) const {
  for (const absl::string_view prefix : kPrefixes) {
    OCTET_RETURN_IF_ERROR(tensors_.WhyMissing(absl::StrCat(prefix, FullName(name))));
  }
  return absl::OkStatus();
}

absl::Status LayerTensors::Missing(absl::string_view name) const {
  OCTET_RETURN_IF_ERROR(WhyMissing(name));
  return absl::NotFoundError(absl::StrCat(folder_, " has no tensor ", Quoted(name)));
}

absl::Status LayerTensors::CheckAllKnown(const std::set<const std::byte*>& known) const {
  for (const absl::string_view prefix : kPrefixes) {
    for (const auto& [file, tensor] : tensors_.WithPrefix(absl::StrCat(prefix, FullName("")))) {
      if (known.contains(file->Data(*tensor)) || IsBeside(tensor->name, known)) continue;
      return absl::InvalidArgumentError(absl::StrCat(
          file->path(), ": tensor ", QuotedName(tensor->name),
          " is none of the layer's that Octet knows, and y might depend on it; take it out of the "
          "file if y does not"));
    }
  }
  return absl::OkStatus();
}

bool LayerTensors::IsBeside(absl::string_view full_name,
                            const std::set<const std::byte*>& known) const {
  const size_t stem = full_name.rfind('.') + 1;
  if (!absl::c_linear_search(kBeside, full_name.substr(stem))) return false;
  return absl::c_any_of(kBesides, [&](absl::string_view of) {
    const auto [file, tensor] = tensors_.Find(absl::StrCat(full_name.substr(0, stem), of));
    return tensor != nullptr && known.contains(file->Data(*tensor));
  });
}

absl::StatusOr<LayerTensors::Stored> LayerTensors::Get(absl::string_view name,
                                                       const Wanted& wanted) const {
  const auto [file, tensor] = Find(name);
  if (tensor == nullptr) return Missing(name);
  const std::string where = absl::StrCat(file->path(), ": tensor ", QuotedName(tensor->name));
  if (tensor->shape != wanted.shape) {
    return absl::InvalidArgumentError(absl::StrCat(where, " has the shape ",
                                                   ShapeText(tensor->shape), ", and must have ",
                                                   ShapeText(wanted.shape), wanted.why));
  }
  const WeightFormatInfo* const info = FormatInfoOf(*tensor);
  if (info == nullptr || !absl::c_linear_search(wanted.types, info->format.element)) {
    return absl::InvalidArgumentError(
        absl::StrCat(where, " has the dtype ", tensor->dtype, ", and must have ",
                     absl::StrJoin(wanted.types, " or ", AppendName)));
  }
  return Stored{.type = info->format.element, .data = file->Data(*tensor)};
}

absl::StatusOr<HostTensor> LayerTensors::Plain(absl::string_view name, int rows,
                                               int columns) const {
  OCTET_ASSIGN_OR_RETURN(
      const Stored stored,
      Get(name, {.shape = {Unsigned(rows), Unsigned(columns)}, .types = TypesWithinFloat32()}));
  return HostTensor{.type = stored.type, .rows = rows, .columns = columns, .data = stored.data};
}

absl::StatusOr<HostTensor> LayerTensors::Vector(absl::string_view name, int columns) const {
  Wanted wanted = {.shape = {Unsigned(columns)}, .types = TypesWithinFloat32()};
  const Shape of_one_row = {1, Unsigned(columns)};
  const SafetensorsTensor* const tensor = Find(name).tensor;
  if (tensor != nullptr && tensor->shape == of_one_row) wanted.shape = of_one_row;
  OCTET_ASSIGN_OR_RETURN(const Stored stored, Get(name, wanted));
  return HostTensor{.type = stored.type, .rows = 1, .columns = columns, .data = stored.data};
}

absl::StatusOr<LayerTensors::Stored> LayerTensors::Quantized(absl::string_view name,
                                                             Wanted wanted) const {
  const WeightFormat format = Format(name);
  wanted.types =
      format.has_scales() ? std::vector<TensorType>{format.element} : TypesWithinFloat32();
  OCTET_ASSIGN_OR_RETURN(Stored stored, Get(name, wanted));
  if (!format.has_scales()) return stored;
  const std::string of_scales = ScalesOf(name);
  const ModelTensors::Found there = Find(of_scales);
  Wanted scales = {.shape = wanted.shape, .types = TypesWithinFloat32()};
  if (there.tensor != nullptr &&
      BlocksOf(FormatOf(stored.type), wanted.shape, there.tensor->shape).has_value()) {
    scales.shape = there.tensor->shape;
    stored.scale_rows = format.block_rows;
    stored.scale_columns = format.block_columns;
  } else {
    scales.shape.back() = format.BlocksOfColumns(wanted.shape.back());
    *(scales.shape.end() - 2) = format.BlocksOfRows(*(wanted.shape.end() - 2));
    scales.why = wanted.shape.size() == 2 ? ", one for each row, or one for all" : "";
  }
  OCTET_ASSIGN_OR_RETURN(const Stored found, Get(of_scales, scales));
  stored.scales = found.data;
  stored.scale_type = found.type;
  return stored;
}

absl::StatusOr<LayerTensors::Stored> LayerTensors::Packed(absl::string_view name, uint64_t rows,
                                                          uint64_t columns) const {
  constexpr uint64_t kNumbersOfWord = 8;
  const std::string packed = absl::StrCat(name, kPacked);
  const WeightFormat format = FormatOf(TensorType::kInt4);
  OCTET_RETURN_IF_ERROR(CheckWhole(packed, columns, Unsigned(format.block_columns)));
  Stored stored = {.type = format.element};
  OCTET_ASSIGN_OR_RETURN(stored.data, Elements(packed, "I32", {rows, columns / kNumbersOfWord}));
  const std::string of_scales = absl::StrCat(name, kPackedScales);
  const ModelTensors::Found there = Find(of_scales);
  Wanted scales = {.shape = {rows, columns / Unsigned(format.block_columns)},
                   .types = TypesWithinFloat32(),
                   .why = absl::StrCat(", or fewer columns, of which each has a multiple of ",
                                       format.block_columns, " of the weights'")};
  if (there.tensor != nullptr && there.tensor->shape.size() == 2) {
    const uint64_t groups = there.tensor->shape[1];
    const bool whole = groups > 0 && columns % groups == 0;
    if (whole && columns / groups % Unsigned(format.block_columns) == 0) {
      scales.shape[1] = groups;
      stored.scale_rows = 1;
      stored.scale_columns = static_cast<int>(columns / groups);
    }
  }
  OCTET_ASSIGN_OR_RETURN(const Stored found, Get(of_scales, scales));
  stored.scales = found.data;
  stored.scale_type = found.type;
  return stored;
}

absl::StatusOr<HostTensor> LayerTensors::Matrix(absl::string_view name, int rows,
                                                int columns) const {
  const bool packed = !Has(name) && Has(absl::StrCat(name, kPacked));
  OCTET_ASSIGN_OR_RETURN(
      const Stored stored,
      packed ? Packed(name, Unsigned(rows), Unsigned(columns))
             : Quantized(name, {.shape = {Unsigned(rows), Unsigned(columns)}, .types = {}}));
  return HostTensor{.type = stored.type,
                    .rows = rows,
                    .columns = columns,
                    .data = stored.data,
                    .scales = stored.scales,
                    .scale_type = stored.scale_type,
                    .scale_rows = stored.scale_rows,
                    .scale_columns = stored.scale_columns};
}

absl::StatusOr<MlpWeights> LayerTensors::Mlp(absl::string_view prefix, const MlpNames& names,
                                             const MlpSizes& sizes) const {
  const auto matrix = [&](absl::string_view name, int rows, int columns) {
    return Matrix(absl::StrCat(prefix, ".", name, ".weight"), rows, columns);
  };
  MlpWeights mlp;
  OCTET_ASSIGN_OR_RETURN(mlp.gate, matrix(names.gate, sizes.intermediate, sizes.hidden));
  OCTET_ASSIGN_OR_RETURN(mlp.up, matrix(names.up, sizes.intermediate, sizes.hidden));
  OCTET_ASSIGN_OR_RETURN(mlp.down, matrix(names.down, sizes.hidden, sizes.intermediate));
  return mlp;
}

LayerTensors::FusedShapes LayerTensors::ShapesOf(bool gate_up, int num_experts,
                                                 const MlpSizes& sizes) {
  const uint64_t experts = Unsigned(num_experts);
  const uint64_t hidden = Unsigned(sizes.hidden);
  const uint64_t intermediate = Unsigned(sizes.intermediate);
  const uint64_t rows = gate_up ? 2 * intermediate : hidden;
  const uint64_t columns = gate_up ? hidden : intermediate;
  return {.plain = {experts, rows, columns}, .transposed = {experts, columns, rows}};
}

absl::StatusOr<bool> LayerTensors::IsTransposed(int num_experts, const MlpSizes& sizes,
                                                const FusedNames& names) const {
  const FusedShapes first = ShapesOf(/*gate_up=*/true, num_experts, sizes);
  const bool square = first.plain == first.transposed;
  const absl::string_view telling = square ? names.down : names.gate_up;
  const FusedShapes shapes = ShapesOf(!square, num_experts, sizes);
  const ModelTensors::Found found = Find(telling);
  if (found.tensor == nullptr) return Missing(telling);
  if (found.tensor->shape == shapes.transposed) return true;
  const std::string why = absl::StrCat(" or, transposed, ", ShapeText(shapes.transposed));
  OCTET_RETURN_IF_ERROR(
      Quantized(telling, {.shape = shapes.plain, .types = {}, .why = why}).status());
  return false;
}

absl::StatusOr<std::vector<MlpWeights>> LayerTensors::RoutedExperts(int num_experts,
                                                                    const MlpSizes& sizes,
                                                                    const FusedNames& names) const {
  OCTET_ASSIGN_OR_RETURN(const bool transposed, IsTransposed(num_experts, sizes, names));
  const auto stack = [&](bool of_gate_up) -> absl::StatusOr<Stack> {
    const absl::string_view name = of_gate_up ? names.gate_up : names.down;
    const FusedShapes both = ShapesOf(of_gate_up, num_experts, sizes);
    const Shape& shape = transposed ? both.transposed : both.plain;
    const std::string why =
        absl::StrCat(", since ", Quoted(of_gate_up ? names.down : names.gate_up), " is ",
                     transposed ? "" : "not ", "transposed");
    OCTET_ASSIGN_OR_RETURN(const Stored stored,
                           Quantized(name, {.shape = shape, .types = {}, .why = why}));
    return Stack{.type = stored.type,
                 .data = stored.data,
                 .scales = stored.scales,
                 .scale_type = stored.scale_type,
                 .rows = shape[1],
                 .columns = shape[2],
                 .transposed = transposed};
  };
  OCTET_ASSIGN_OR_RETURN(const Stack gate_up, stack(true));
  OCTET_ASSIGN_OR_RETURN(const Stack down, stack(false));
  const int intermediate = sizes.intermediate;
  const WeightFormatInfo& info = InfoOf(gate_up.type);
  if (gate_up.scales != nullptr && intermediate % info.format.block_rows != 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        folder_, ": tensor ", Quoted(names.gate_up), " is ", info.title, ", and ", intermediate,
        " rows of gate and of up share scales; they must be a multiple of ",
        info.format.block_rows));
  }
  std::vector<MlpWeights> experts;
  for (size_t expert = 0; expert < static_cast<size_t>(num_experts); ++expert) {
    experts.push_back({.gate = gate_up.Rows(expert, 0, intermediate),
                       .up = gate_up.Rows(expert, intermediate, intermediate),
                       .down = down.Rows(expert, 0, sizes.hidden)});
  }
  return experts;
}

absl::StatusOr<const std::byte*> LayerTensors::Elements(const std::string& name,
                                                        absl::string_view dtype,
                                                        const Shape& shape) const {
  const auto [file, tensor] = Find(name);
  if (tensor == nullptr) return Missing(name);
  if (tensor->dtype == dtype && tensor->shape == shape) return file->Data(*tensor);
  return absl::InvalidArgumentError(
      absl::StrCat(file->path(), ": tensor ", QuotedName(tensor->name), " is ", tensor->dtype, " ",
                   ShapeText(tensor->shape), ", and must be ", dtype, " ", ShapeText(shape)));
}

absl::Status LayerTensors::CheckWhole(absl::string_view name, uint64_t columns,
                                      uint64_t block) const {
  if (columns % block == 0) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(folder_, ": rows of ", Quoted(name), " are ",
                                                 columns, " numbers, and must be a multiple of ",
                                                 block));
}

absl::StatusOr<LayerTensors::Stored> LayerTensors::Matrices(absl::string_view name,
                                                            uint64_t num_experts, uint64_t rows,
                                                            uint64_t columns) const {
  const std::string blocks = absl::StrCat(name, kMxfp4Blocks);
  if (!Has(blocks)) {
    return Get(name, {.shape = {num_experts, columns, rows}, .types = TypesWithinFloat32()});
  }
  const WeightFormat format = FormatOf(TensorType::kFloat4E2m1);
  const auto block = static_cast<uint64_t>(format.block_columns);
  OCTET_RETURN_IF_ERROR(CheckWhole(blocks, columns, block));
  Stored stored = {.type = format.element, .scale_type = TensorType::kFloat8E8m0};
  OCTET_ASSIGN_OR_RETURN(
      stored.data,
      Elements(blocks, "U8", {num_experts, rows, columns / block, format.Bytes(block)}));
  OCTET_ASSIGN_OR_RETURN(stored.scales, Elements(absl::StrCat(name, kMxfp4Scales), "U8",
                                                 {num_experts, rows, columns / block}));
  return stored;
}

namespace {

// Every `step`-th number of a row, from `first` on.
HostTensor Row(TensorType type, const std::byte* data, uint64_t first, int columns, int step) {
  HostTensor row = {.type = type, .rows = 1, .columns = columns};
  row.data = data + FormatOf(type).Bytes(first);
  row.column_pitch = static_cast<size_t>(step);
  return row;
}

}  // namespace

absl::StatusOr<std::vector<MlpWeights>> LayerTensors::AlternatingExperts(
    int num_experts, const MlpSizes& sizes) const {
  constexpr int kTwo = 2;  // gate and up
  constexpr FusedNames kNames;
  const uint64_t count = Unsigned(num_experts);
  const uint64_t hidden = Unsigned(sizes.hidden);
  const uint64_t intermediate = Unsigned(sizes.intermediate);
  OCTET_ASSIGN_OR_RETURN(const Stored gate_up,
                         Matrices(kNames.gate_up, count, kTwo * intermediate, hidden));
  OCTET_ASSIGN_OR_RETURN(const Stored down, Matrices(kNames.down, count, hidden, intermediate));
  const auto get_bias = [&](absl::string_view name, uint64_t columns) {
    return Get(absl::StrCat(name, "_bias"),
               {.shape = {count, columns}, .types = TypesWithinFloat32()});
  };
  OCTET_ASSIGN_OR_RETURN(const Stored first_bias, get_bias(kNames.gate_up, kTwo * intermediate));
  OCTET_ASSIGN_OR_RETURN(const Stored second_bias, get_bias(kNames.down, hidden));
  // Returns the rows first, first + step, ... of an expert's matrix.
  const auto rows_of = [](const Stored& stored, size_t expert, int rows, int columns, int first,
                          int step) {
    const WeightFormat format = FormatOf(stored.type);
    const uint64_t all_rows = Unsigned(rows) * Unsigned(step);
    const uint64_t matrix = expert * all_rows * Unsigned(columns);
    HostTensor tensor = {.type = stored.type, .rows = rows, .columns = columns};
    tensor.row_step = step;
    if (stored.scales == nullptr) {
      tensor.data = stored.data + format.Bytes(matrix + Unsigned(first));
      tensor.column_pitch = all_rows;
      return tensor;
    }
    tensor.data = stored.data + format.Bytes(matrix + Unsigned(first) * Unsigned(columns));
    const uint64_t blocks = format.BlocksOfColumns(Unsigned(columns));
    tensor.scales = stored.scales + (expert * all_rows + Unsigned(first)) * blocks;
    tensor.scale_type = stored.scale_type;
    return tensor;
  };
  std::vector<MlpWeights> experts;
  for (size_t e = 0; e < static_cast<size_t>(num_experts); ++e) {
    const auto gate_or_up = [&](int first) {
      return rows_of(gate_up, e, sizes.intermediate, sizes.hidden, first, kTwo);
    };
    const uint64_t bias = e * kTwo * intermediate;
    experts.push_back(
        {.gate = gate_or_up(0),
         .up = gate_or_up(1),
         .down = rows_of(down, e, sizes.hidden, sizes.intermediate, 0, 1),
         .gate_bias = Row(first_bias.type, first_bias.data, bias, sizes.intermediate, kTwo),
         .up_bias = Row(first_bias.type, first_bias.data, bias + 1, sizes.intermediate, kTwo),
         .down_bias = Row(second_bias.type, second_bias.data, e * hidden, sizes.hidden, 1)});
  }
  return experts;
}

}  // namespace octet
