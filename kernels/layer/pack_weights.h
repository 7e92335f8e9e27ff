// Converts a checkpoint's matrices to what the products of a layer take.
#ifndef OCTET_KERNELS_LAYER_PACK_WEIGHTS_H_
#define OCTET_KERNELS_LAYER_PACK_WEIGHTS_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "octet/dtype.h"
#include "octet/grouped_gemm.h"
#include "octet/moe_weights.h"

namespace octet {

// The elements of packed weights.
struct WeightFormat {
  DType dtype = DType::kBFloat16;
  GemmFormat format = GemmFormat::kSame;  // kFp8: the platform's form

  size_t element_bytes() const;
};

// A matrix [rows][columns] as GroupedGemmArgs::b has it.
struct PackedMatrix {
  std::vector<uint8_t> elements;
  std::vector<float> scales;  // kFp8: [ceil(rows / 128)][ceil(columns / 128)]; otherwise empty
};

// Returns kInvalidArgument, naming `name` and both shapes, if `tensor` has not this shape or, as
// FP8, no scales of another type.
absl::Status CheckTensor(absl::string_view name, const HostTensor& tensor, int rows, int columns);

// Returns element [row][column], an FP8 element times its scale.
float ElementOf(const HostTensor& tensor, int row, int column);

// Converts each element. A number that the type does not have is rounded to the nearest; FP8 from
// FP8 is exact. Into FP8 from other types, blocks of 128 × 128 elements are quantized: their scale
// is the largest magnitude / the largest FP8 number.
PackedMatrix PackMatrix(const HostTensor& tensor, const WeightFormat& format);

// The same for gate and up, which must have one shape: rows of both alternate, eight at a time, as
// GemmActivation::kSwiGlu wants them, and the scales of gate precede those of up.
PackedMatrix PackGateUp(const MlpWeights& weights, const WeightFormat& format);

}  // namespace octet

#endif  // OCTET_KERNELS_LAYER_PACK_WEIGHTS_H_
