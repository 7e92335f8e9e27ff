// The weights of a Mixture-of-Experts layer in host memory, as checkpoints have them.
//
// Notation in the comments: E experts, H elements of a token's row, I elements between an expert's
// two products, S those of the shared experts.
#ifndef OCTET_MOE_WEIGHTS_H_
#define OCTET_MOE_WEIGHTS_H_

#include <cstddef>
#include <vector>

#include "absl/types/span.h"
#include "octet/enum_names.h"

namespace octet {

// The elements of a HostTensor.
enum class TensorType {
  kFloat32,
  kBFloat16,
  kFloat16,
  kFloat8E4m3,  // OCP E4M3 (torch.float8_e4m3fn), with HostTensor::scales
};
absl::Span<const EnumEntry<TensorType>> EnumTable(TensorType);  // names: octet/enum_names.h
size_t BytesOf(TensorType type);                                // of an element

// A matrix [rows][columns], in row-major order unless column_pitch is given. A view: it owns
// nothing. `data` and `scales` need not be aligned, since files do not promise it.
struct HostTensor {
  TensorType type = TensorType::kBFloat16;
  int rows = 0;
  int columns = 0;
  const std::byte* data = nullptr;  // nullptr: there is no such tensor
  // kFloat8E4m3: [ceil(rows / 128)][ceil(columns / 128)] of scale_type; an element stands for
  // itself times the scale of its block. nullptr otherwise.
  const std::byte* scales = nullptr;
  // Not 0: the matrix is in column-major order, and this is the number of elements from a column to
  // the next, at least `rows`. The scales are likewise in column-major order, and a column of
  // blocks is ceil(column_pitch / 128) scales behind the one before.
  size_t column_pitch = 0;
  TensorType scale_type = TensorType::kFloat32;  // of scales; not kFloat8E4m3

  bool empty() const { return data == nullptr; }
};

// Of a gated network: down · (silu(gate · x) ⊙ (up · x)).
struct MlpWeights {
  HostTensor gate;  // [I][H]
  HostTensor up;    // [I][H]
  HostTensor down;  // [H][I]
};

struct MoeLayerWeights {
  HostTensor router;                // [E][H]
  HostTensor router_bias;           // [1][E], added to scores for the choice alone; or empty
  std::vector<MlpWeights> experts;  // [E]; each rank reads those of its own experts only
  MlpWeights shared;                // S instead of I; empty without shared experts
  HostTensor shared_gate;           // [1][H]; empty unless MoeLayerConfig::shared_gate
};

}  // namespace octet

#endif  // OCTET_MOE_WEIGHTS_H_
