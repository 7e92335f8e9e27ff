// The weights of a Mixture-of-Experts layer in host memory, as checkpoints have them.
//
// Notation in the comments: E experts, H elements of a token's row, I elements between an expert's
// two products, S those of the shared experts.
#ifndef OCTET_MOE_WEIGHTS_H_
#define OCTET_MOE_WEIGHTS_H_

#include <cstddef>
#include <vector>

#include "octet/types/weight_format.h"

namespace octet {

// A matrix [rows][columns], in row-major order unless column_pitch is given. A view: it owns
// nothing. `data` and `scales` need not be aligned, since files do not promise it.
struct HostTensor {
  TensorType type = TensorType::kBFloat16;
  int rows = 0;
  int columns = 0;
  const std::byte* data = nullptr;  // nullptr: there is no such tensor
  // A type with scales has one for each block of its WeightFormat: kFloat8E4m3 has
  // [ceil(rows / 128)][ceil(columns / 128)] of scale_type, kFloat4E2m1 and kInt4
  // [rows][columns / 32], where columns must be a multiple of 32; or what scale_rows and
  // scale_columns say. nullptr otherwise.
  const std::byte* scales = nullptr;
  // Not 0: the matrix, whose elements have whole bytes, is in column-major order, and this is the
  // number of elements from a column to the next, at least `rows`. The scales are likewise in
  // column-major order, and a column of blocks is ceil(column_pitch / 128) scales behind the one
  // before.
  size_t column_pitch = 0;
  TensorType scale_type = TensorType::kFloat32;  // of scales; a type without scales itself
  // Row r is row r · row_step of what `data` and, if a block has one row, `scales` hold: 2 for one
  // of two matrices whose rows alternate. Otherwise a type with scales must have 1.
  int row_step = 1;
  // The rows and columns that share a scale, where that is not what the type's WeightFormat says;
  // 0: it is. There are [ceil(rows / scale_rows)][ceil(columns / scale_columns)] scales.
  int scale_rows = 0;
  int scale_columns = 0;

  // Returns the type's format, with the blocks that the scales are for.
  WeightFormat format() const {
    WeightFormat format = FormatOf(type);
    if (scale_rows > 0) format.block_rows = scale_rows;
    if (scale_columns > 0) format.block_columns = scale_columns;
    return format;
  }
  bool empty() const { return data == nullptr; }
  bool operator==(const HostTensor&) const = default;
};

// Of a gated network: down · (silu(gate · x) ⊙ (up · x)), with biases added to all three products
// where MoeLayerConfig::expert_biases says so.
struct MlpWeights {
  HostTensor gate;            // [I][H]
  HostTensor up;              // [I][H]
  HostTensor down;            // [H][I]
  HostTensor gate_bias = {};  // [1][I]; these are empty without biases
  HostTensor up_bias = {};    // [1][I]
  HostTensor down_bias = {};  // [1][H]
};

struct MoeLayerWeights {
  HostTensor router;  // [E][H]
  // [1][E], added to scores for the choice alone; or empty, as with RouterScores::kSparsemixer.
  HostTensor router_bias;
  HostTensor logit_bias;            // [1][E]; empty unless MoeLayerConfig::logit_bias
  std::vector<MlpWeights> experts;  // [E]; each rank reads those of its own experts only
  MlpWeights shared;                // S instead of I; empty without shared experts
  HostTensor shared_gate;           // [1][H]; empty unless MoeLayerConfig::shared_gate
};

}  // namespace octet

#endif  // OCTET_MOE_WEIGHTS_H_
