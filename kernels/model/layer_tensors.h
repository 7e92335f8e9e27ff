// The tensors of one layer with experts, found by their names and checked.
#ifndef OCTET_KERNELS_MODEL_LAYER_TENSORS_H_
#define OCTET_KERNELS_MODEL_LAYER_TENSORS_H_

#include <cstddef>
#include <cstdint>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "kernels/model/model_tensors.h"
#include "octet/moe_weights.h"
#include "octet/types/weight_format.h"

namespace octet {

// How a family calls the matrices of a gated network.
struct MlpNames {
  absl::string_view gate = "gate_proj";
  absl::string_view up = "up_proj";
  absl::string_view down = "down_proj";
};

struct MlpSizes {
  int hidden = 0;
  int intermediate = 0;
};

// The tensors that hold the matrices of all experts, one behind the other. `transformers` writes
//
//   gate_up_proj  [E][2 I][H]   the rows of gate, then those of up
//   down_proj     [E][H][I]
//
// and others write the transposed matrices, [E][H][2 I] and [E][I][H]. Both tensors are either the
// one or the other. The shape of one whose matrices are not square tells which; they cannot both be
// square.
struct FusedNames {
  absl::string_view gate_up = "experts.gate_up_proj";
  absl::string_view down = "experts.down_proj";
};

// gpt_oss writes tensors of all experts, with biases:
//
//   gate_up_proj_bias  [E][2 I]   down_proj_bias  [E][H]
//
// where gate and up alternate: gate is 0, 2, 4 ..., up 1, 3, 5 .... Matrices are the transposed
// ones, [E][H][2 I] and [E][I][H], or in MXFP4, where each has two tensors of bytes: two numbers in
// each byte of *_blocks, and the exponents of blocks of 32 in *_scales:
//
//   gate_up_proj_blocks  [E][2 I][H / 32][16]   gate_up_proj_scales  [E][2 I][H / 32]
//   down_proj_blocks     [E][H][I / 32][16]     down_proj_scales     [E][H][I / 32]
inline constexpr absl::string_view kMxfp4Blocks = "_blocks";
inline constexpr absl::string_view kMxfp4Scales = "_scales";

// A matrix of FP8 has its scales in a tensor of its name with one of these behind it, and one of
// INT4, as compressed-tensors writes it, three tensors:
//
//   weight_packed  [rows][columns / 8]  numbers of 32 bits, of eight each, the first the lowest
//   weight_scale   [rows][groups]       of columns / groups columns each
//   weight_shape   [2]                  rows, columns
inline constexpr absl::string_view kFp8Scales[] = {"_scale_inv", "_scale"};
inline constexpr absl::string_view kPacked = "_packed";
inline constexpr absl::string_view kPackedScales = "_scale";
inline constexpr absl::string_view kPackedShape = "_shape";

// Errors of all functions are kNotFound or kInvalidArgument, with the file and the tensor.
class LayerTensors {
 public:
  // `block` is how names of the layer begin: "layers.3.mlp". The names in files may have "model."
  // or the like in front of it. `tensors` and `folder`, for messages, must live as long.
  LayerTensors(const ModelTensors& tensors, absl::string_view folder, std::string block)
      : tensors_(tensors), folder_(folder), block_(std::move(block)) {}

  // In the following, `name` is what follows the block and a point.
  bool Has(absl::string_view name) const { return Find(name).tensor != nullptr; }
  // Whether there is such a matrix, in any form.
  bool HasMatrix(absl::string_view name) const {
    return Has(name) || Has(absl::StrCat(name, kPacked));
  }
  // Returns the format of such a matrix, with the blocks that its scales are for; one without
  // scales if there is none, or none that HostTensor has.
  WeightFormat Format(absl::string_view name) const;
  // Returns ModelTensors::WhyMissing().
  absl::Status WhyMissing(absl::string_view name) const;
  // Returns kInvalidArgument, naming it, if the block has a tensor whose elements are not in
  // `known`, a set of all that has been read.
  absl::Status CheckAllKnown(const std::set<const std::byte*>& known) const;
  // Returns the whole name, in quotes, for messages.
  std::string Quoted(absl::string_view name) const;

  // Returns a matrix of floating-point numbers.
  absl::StatusOr<HostTensor> Plain(absl::string_view name, int rows, int columns) const;

  // Returns a vector of floating-point numbers, or a matrix of one row, as one row.
  absl::StatusOr<HostTensor> Vector(absl::string_view name, int columns) const;

  // Returns a network, whose matrices are floating-point numbers or blocks with scales.
  absl::StatusOr<MlpWeights> Mlp(absl::string_view prefix, const MlpNames& names,
                                 const MlpSizes& sizes) const;

  // Returns the networks of all experts from these two tensors. With scales, I must be a multiple
  // of a block's rows, since gate and up would otherwise share scales.
  absl::StatusOr<std::vector<MlpWeights>> RoutedExperts(int num_experts, const MlpSizes& sizes,
                                                        const FusedNames& names) const;

  // Returns the networks of all experts of gpt_oss, with their biases.
  absl::StatusOr<std::vector<MlpWeights>> AlternatingExperts(int num_experts,
                                                             const MlpSizes& sizes) const;

 private:
  using Shape = std::vector<uint64_t>;

  // What a tensor must be like.
  struct Wanted {
    Shape shape;
    std::vector<TensorType> types;
    std::string why = {};  // it must have this shape, for the message
  };

  // The elements of a tensor.
  struct Stored {
    TensorType type = TensorType::kBFloat16;
    const std::byte* data = nullptr;
    const std::byte* scales = nullptr;
    TensorType scale_type = TensorType::kFloat32;
    int scale_rows = 0;  // as HostTensor has them
    int scale_columns = 0;
  };

  std::string FullName(absl::string_view name) const;
  ModelTensors::Found Find(absl::string_view name) const;
  // Returns the tensor if it is as it must be.
  absl::StatusOr<Stored> Get(absl::string_view name, const Wanted& wanted) const;
  // Returns floating-point numbers, or a format with its scales: one for each block of a matrix,
  // which the last two dimensions are; or, if there is one matrix, for each row or for all of it.
  absl::StatusOr<Stored> Quantized(absl::string_view name, Wanted wanted) const;
  // Returns the matrix of numbers of four bits that belongs to the name.
  absl::StatusOr<Stored> Packed(absl::string_view name, uint64_t rows, uint64_t columns) const;
  // A row of the tensor has a multiple of `block` numbers.
  absl::Status CheckWhole(absl::string_view name, uint64_t columns, uint64_t block) const;
  // Returns the name of a matrix's scales.
  std::string ScalesOf(absl::string_view name) const;
  // Whether it is a tensor beside one of `known` that is not computed with.
  bool IsBeside(absl::string_view full_name, const std::set<const std::byte*>& known) const;
  // Returns the elements of a tensor of this dtype and shape.
  absl::StatusOr<const std::byte*> Elements(const std::string& name, absl::string_view dtype,
                                            const Shape& shape) const;
  // Returns the tensor of all experts' matrices [rows][columns], as gpt_oss writes it.
  absl::StatusOr<Stored> Matrices(absl::string_view name, uint64_t num_experts, uint64_t rows,
                                  uint64_t columns) const;
  absl::StatusOr<HostTensor> Matrix(absl::string_view name, int rows, int columns) const;
  absl::Status Missing(absl::string_view name) const;

  // Both forms of a tensor of all experts.
  struct FusedShapes {
    Shape plain;
    Shape transposed;
  };
  static FusedShapes ShapesOf(bool gate_up, int num_experts, const MlpSizes& sizes);
  absl::StatusOr<bool> IsTransposed(int num_experts, const MlpSizes& sizes,
                                    const FusedNames& names) const;

  const ModelTensors& tensors_;
  const absl::string_view folder_;
  const std::string block_;
};

}  // namespace octet

#endif  // OCTET_KERNELS_MODEL_LAYER_TENSORS_H_
