#include "kernels/model/layer_tensors.h"

#include <algorithm>
#include <iterator>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/types/span.h"
#include "kernels/model/safetensors.h"
#include "runtime/base/status_macros.h"

namespace octet {
namespace {

constexpr absl::string_view kPrefix = "model.";  // of names; some folders do without
constexpr absl::string_view kScales = "_scale_inv";
constexpr uint64_t kScaleBlock = 128;  // rows, and columns, that a scale is for

uint64_t Unsigned(int n) { return static_cast<uint64_t>(n); }
uint64_t Blocks(uint64_t size) { return (size - 1) / kScaleBlock + 1; }

std::string ShapeText(absl::Span<const uint64_t> shape) {
  return absl::StrCat("[", absl::StrJoin(shape, ", "), "]");
}

// The dtypes of files that HostTensor has.
struct Dtype {
  absl::string_view name;
  TensorType type;
};
constexpr absl::string_view kFp8 = "F8_E4M3";
constexpr Dtype kDtypes[] = {{"F32", TensorType::kFloat32},
                             {"BF16", TensorType::kBFloat16},
                             {"F16", TensorType::kFloat16},
                             {kFp8, TensorType::kFloat8E4m3}};

std::vector<TensorType> PlainTypes() {
  return {TensorType::kFloat32, TensorType::kBFloat16, TensorType::kFloat16};
}

const Dtype* DtypeOf(const SafetensorsTensor& tensor) {
  for (const Dtype& dtype : kDtypes) {
    if (dtype.name == tensor.dtype) return &dtype;
  }
  return nullptr;
}

void AppendName(std::string* out, TensorType type) {
  const auto* const found = std::find_if(std::begin(kDtypes), std::end(kDtypes),
                                         [type](const Dtype& each) { return each.type == type; });
  absl::StrAppend(out, found->name);
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

  // Returns `count` rows of an expert's matrix, from `first` on. With scales, which a block of 128
  // has, `first` is a multiple of it.
  HostTensor Rows(size_t expert, int first, int count) const {
    const uint64_t width = transposed ? rows : columns;
    const uint64_t stride = transposed ? 1 : columns;  // from a row to the next
    HostTensor matrix = {.type = type, .rows = count, .columns = static_cast<int>(width)};
    if (transposed) matrix.column_pitch = columns;
    matrix.data = data + (expert * rows * columns + Unsigned(first) * stride) * BytesOf(type);
    if (scales != nullptr) {
      const uint64_t block_stride = transposed ? 1 : Blocks(columns);
      matrix.scales = scales + (expert * Blocks(rows) * Blocks(columns) +
                                Unsigned(first) / kScaleBlock * block_stride) *
                                   BytesOf(scale_type);
      matrix.scale_type = scale_type;
    }
    return matrix;
  }
};

}  // namespace

bool LayerTensors::IsFp8(absl::string_view name) const {
  const SafetensorsTensor* const tensor = Find(name).tensor;
  return tensor != nullptr && tensor->dtype == kFp8;
}

std::string LayerTensors::FullName(absl::string_view name) const {
  return absl::StrCat(block_, ".", name);
}

std::string LayerTensors::Quoted(absl::string_view name) const {
  const ModelTensors::Found found = Find(name);
  return found.tensor != nullptr ? QuotedName(found.tensor->name)
                                 : absl::StrCat("'", kPrefix, FullName(name), "'");
}

ModelTensors::Found LayerTensors::Find(absl::string_view name) const {
  const ModelTensors::Found found = tensors_.Find(absl::StrCat(kPrefix, FullName(name)));
  return found.tensor != nullptr ? found : tensors_.Find(FullName(name));
}

absl::Status LayerTensors::WhyMissing(absl::string_view name) const {
  for (const absl::string_view prefix : {kPrefix, absl::string_view()}) {
    OCTET_RETURN_IF_ERROR(tensors_.WhyMissing(absl::StrCat(prefix, FullName(name))));
  }
  return absl::OkStatus();
}

absl::Status LayerTensors::Missing(absl::string_view name) const {
  OCTET_RETURN_IF_ERROR(WhyMissing(name));
  return absl::NotFoundError(absl::StrCat(folder_, " has no tensor ", Quoted(name)));
}

absl::Status LayerTensors::CheckAllKnown(const std::set<const std::byte*>& known) const {
  for (const absl::string_view prefix : {kPrefix, absl::string_view()}) {
    for (const auto& [file, tensor] : tensors_.WithPrefix(absl::StrCat(prefix, FullName("")))) {
      if (known.contains(file->Data(*tensor))) continue;
      return absl::InvalidArgumentError(absl::StrCat(
          file->path(), ": tensor ", QuotedName(tensor->name),
          " is none of the layer's that Octet knows, and y might depend on it; take it out of the "
          "file if y does not"));
    }
  }
  return absl::OkStatus();
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
  const Dtype* const dtype = DtypeOf(*tensor);
  if (dtype == nullptr || std::count(wanted.types.begin(), wanted.types.end(), dtype->type) == 0) {
    return absl::InvalidArgumentError(
        absl::StrCat(where, " has the dtype ", tensor->dtype, ", and must have ",
                     absl::StrJoin(wanted.types, " or ", AppendName)));
  }
  return Stored{.type = dtype->type, .data = file->Data(*tensor)};
}

absl::StatusOr<HostTensor> LayerTensors::Plain(absl::string_view name, int rows,
                                               int columns) const {
  OCTET_ASSIGN_OR_RETURN(
      const Stored stored,
      Get(name, {.shape = {Unsigned(rows), Unsigned(columns)}, .types = PlainTypes()}));
  return HostTensor{.type = stored.type, .rows = rows, .columns = columns, .data = stored.data};
}

absl::StatusOr<HostTensor> LayerTensors::Vector(absl::string_view name, int columns) const {
  OCTET_ASSIGN_OR_RETURN(const Stored stored,
                         Get(name, {.shape = {Unsigned(columns)}, .types = PlainTypes()}));
  return HostTensor{.type = stored.type, .rows = 1, .columns = columns, .data = stored.data};
}

absl::StatusOr<LayerTensors::Stored> LayerTensors::Quantized(absl::string_view name,
                                                             Wanted wanted) const {
  const bool fp8 = IsFp8(name);
  wanted.types = fp8 ? std::vector<TensorType>{TensorType::kFloat8E4m3} : PlainTypes();
  OCTET_ASSIGN_OR_RETURN(Stored stored, Get(name, wanted));
  if (!fp8) return stored;
  Wanted scales = {.shape = wanted.shape, .types = PlainTypes()};
  std::for_each(scales.shape.end() - 2, scales.shape.end(),
                [](uint64_t& size) { size = Blocks(size); });
  OCTET_ASSIGN_OR_RETURN(const Stored found, Get(absl::StrCat(name, kScales), scales));
  stored.scales = found.data;
  stored.scale_type = found.type;
  return stored;
}

absl::StatusOr<HostTensor> LayerTensors::Matrix(absl::string_view name, int rows,
                                                int columns) const {
  OCTET_ASSIGN_OR_RETURN(
      const Stored stored,
      Quantized(name, {.shape = {Unsigned(rows), Unsigned(columns)}, .types = {}}));
  return HostTensor{.type = stored.type,
                    .rows = rows,
                    .columns = columns,
                    .data = stored.data,
                    .scales = stored.scales,
                    .scale_type = stored.scale_type};
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

LayerTensors::FusedShapes LayerTensors::ShapesOf(absl::string_view fused, int num_experts,
                                                 const MlpSizes& sizes) {
  const uint64_t experts = Unsigned(num_experts);
  const uint64_t hidden = Unsigned(sizes.hidden);
  const uint64_t intermediate = Unsigned(sizes.intermediate);
  const uint64_t rows = fused == kFusedGateUp ? 2 * intermediate : hidden;
  const uint64_t columns = fused == kFusedGateUp ? hidden : intermediate;
  return {.plain = {experts, rows, columns}, .transposed = {experts, columns, rows}};
}

absl::StatusOr<bool> LayerTensors::IsTransposed(int num_experts, const MlpSizes& sizes) const {
  const FusedShapes first = ShapesOf(kFusedGateUp, num_experts, sizes);
  const bool square = first.plain == first.transposed;
  const absl::string_view telling = square ? kFusedDown : kFusedGateUp;
  const FusedShapes shapes = ShapesOf(telling, num_experts, sizes);
  const ModelTensors::Found found = Find(telling);
  if (found.tensor == nullptr) return Missing(telling);
  if (found.tensor->shape == shapes.transposed) return true;
  const std::string why = absl::StrCat(" or, transposed, ", ShapeText(shapes.transposed));
  OCTET_RETURN_IF_ERROR(
      Quantized(telling, {.shape = shapes.plain, .types = {}, .why = why}).status());
  return false;
}

absl::StatusOr<std::vector<MlpWeights>> LayerTensors::RoutedExperts(int num_experts,
                                                                    const MlpSizes& sizes) const {
  OCTET_ASSIGN_OR_RETURN(const bool transposed, IsTransposed(num_experts, sizes));
  const auto stack = [&](absl::string_view name) -> absl::StatusOr<Stack> {
    const FusedShapes both = ShapesOf(name, num_experts, sizes);
    const Shape& shape = transposed ? both.transposed : both.plain;
    const std::string why =
        absl::StrCat(", since ", Quoted(name == kFusedDown ? kFusedGateUp : kFusedDown), " is ",
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
  OCTET_ASSIGN_OR_RETURN(const Stack gate_up, stack(kFusedGateUp));
  OCTET_ASSIGN_OR_RETURN(const Stack down, stack(kFusedDown));
  const int intermediate = sizes.intermediate;
  if (gate_up.scales != nullptr && Unsigned(intermediate) % kScaleBlock != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat(folder_, ": tensor ", Quoted(kFusedGateUp), " is FP8, and ", intermediate,
                     " rows of gate and of up share scales; they must be a multiple of 128"));
  }
  std::vector<MlpWeights> experts;
  for (size_t expert = 0; expert < static_cast<size_t>(num_experts); ++expert) {
    experts.push_back({.gate = gate_up.Rows(expert, 0, intermediate),
                       .up = gate_up.Rows(expert, intermediate, intermediate),
                       .down = down.Rows(expert, 0, sizes.hidden)});
  }
  return experts;
}

}  // namespace octet
