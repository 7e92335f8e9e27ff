// Converts a checkpoint's matrices to what the products of a layer take.
#ifndef OCTET_KERNELS_LAYER_PACK_WEIGHTS_H_
#define OCTET_KERNELS_LAYER_PACK_WEIGHTS_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "octet/moe_weights.h"
#include "octet/types/weight_format.h"

namespace octet {

// A matrix [rows][columns] as GroupedGemmArgs::b has it.
struct PackedMatrix {
  std::vector<uint8_t> elements;
  std::vector<float> scales;  // one for each block of the format, row by row; empty without scales
  WeightFormat format;
  int columns = 0;
};

// Returns the scales as GroupedGemmArgs::b_scales has them.
std::vector<uint8_t> ScaleBytes(const PackedMatrix& matrix);

// Returns kInvalidArgument, naming `name` and both shapes, if `tensor` has not this shape, or no
// scales though its type has some, or scales that are no float32 numbers.
absl::Status CheckTensor(absl::string_view name, const HostTensor& tensor, int rows, int columns);

// Returns element [row][column], times its scale if it has one.
float ElementOf(const HostTensor& tensor, int row, int column);

// Returns the elements of a row.
std::vector<float> PackVector(const HostTensor& row);

// Converts each element. A number that the format does not have is rounded to the nearest. A format
// with scales is kept exactly (8-bit floats in the platform's form); from others, its blocks are
// quantized: their scale is the largest magnitude / the largest number of the element's type, or
// where scales are powers of two, the one by which that magnitude becomes 4 to 8, of which what is
// above 6 is rounded to it.
PackedMatrix PackMatrix(const HostTensor& tensor, const WeightFormat& format);

// The same for gate and up, which must have one shape: rows of both alternate, eight at a time, as
// GemmActivation::kSwiGlu wants them, and so do their scales if each row has its own; otherwise the
// scales of gate precede those of up.
PackedMatrix PackGateUp(const MlpWeights& weights, const WeightFormat& format);

// The same for gate_bias and up_bias.
std::vector<float> PackGateUpBias(const MlpWeights& weights);

}  // namespace octet

#endif  // OCTET_KERNELS_LAYER_PACK_WEIGHTS_H_
