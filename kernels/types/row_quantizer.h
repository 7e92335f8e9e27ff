// Rows quantized to the platform's 8-bit floats by a kernel of their own: what a product of FP8
// operands takes as GroupedGemmArgs::a and a_scales, and a dispatch with DispatchFormat::kFp8 as x
// and x_scales.
#ifndef OCTET_KERNELS_TYPES_ROW_QUANTIZER_H_
#define OCTET_KERNELS_TYPES_ROW_QUANTIZER_H_

#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "octet/dtype.h"
#include "octet/fp8_scale.h"
#include "octet/gpu.h"

namespace octet {

struct RowQuantizerConfig {
  DType dtype = DType::kBFloat16;  // of the rows
  int columns = 0;                 // a positive multiple of 16
  ScaleFormat scale_format = ScaleFormat::kFloat32;
  int32_t max_rows = 0;  // the most rows of a call
};

// Memory of the GPU that was current at Create; x and fp8 16-byte aligned, the others 4-byte.
struct QuantizeRowsArgs {
  const void* x = nullptr;  // [rows][columns] of the dtype
  void* fp8 = nullptr;      // [rows][columns], a byte each, in the form Fp8Form::kNative
  void* scales = nullptr;   // [rows][scale_words()] 4-byte words, one scale for 128 columns
  // The number of rows: a value, or, if not null, a word in GPU memory that is read in stream
  // order, like Received::expert_offsets[L]. More than max_rows are cut to it.
  int32_t rows = 0;
  const int32_t* num_rows = nullptr;
};

class RowQuantizer {
 public:
  // Loads the kernel on the current GPU, so that Run does not. kInvalidArgument, naming the member,
  // for a config that the comments above exclude; the GPU's errors.
  static absl::StatusOr<RowQuantizer> Create(const RowQuantizerConfig& config);

  // Enqueues at most one kernel, which may be captured into a graph. Its output is that of
  // ReferenceQuantize (kernels/types/fp8_rows.h), to the bit; nothing behind the last row is
  // written.
  absl::Status Run(const QuantizeRowsArgs& args, GpuStream stream) const;

  int scale_words() const;    // of a row
  size_t Fp8Bytes() const;    // of max_rows rows
  size_t ScaleBytes() const;  // of theirs

 private:
  RowQuantizer(const RowQuantizerConfig& config, int compute_units, int wave_size)
      : config_(config), compute_units_(compute_units), wave_size_(wave_size) {}

  RowQuantizerConfig config_;
  int compute_units_;
  int wave_size_;
};

}  // namespace octet

#endif  // OCTET_KERNELS_TYPES_ROW_QUANTIZER_H_
