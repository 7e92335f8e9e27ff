// The kernel of kernels/types/row_quantizer.h.
#ifndef OCTET_KERNELS_TYPES_QUANTIZE_ROWS_H_
#define OCTET_KERNELS_TYPES_QUANTIZE_ROWS_H_

#include <hip/hip_runtime.h>

#include <cstdint>

#include "octet/fp8_scale.h"
#include "runtime/device/launch_shape.h"

namespace octet {

// The columns of a row that a lane quantizes at a time. A wave's are a part of the row.
inline constexpr int kQuantizeLaneColumns = 16;

struct QuantizeRowsParams {
  const void* x;            // [rows][columns] of 16-bit floats
  void* fp8;                // [rows][columns] of NativeFp8
  uint32_t* scales;         // [rows][scale_words]
  const int32_t* num_rows;  // one word on this GPU, cut to [0, max_rows]; nullptr: max_rows
  int32_t max_rows;
  int columns;  // a multiple of 16
  int scale_words;
  ScaleFormat scale_format;
};

// Loads the kernel on the current device. `fp16`: of fp16 instead of bf16.
hipError_t LoadQuantizeRows(bool fp16);
hipError_t LaunchQuantizeRows(const QuantizeRowsParams& params, bool fp16, const LaunchShape& shape,
                              hipStream_t stream);

}  // namespace octet

#endif  // OCTET_KERNELS_TYPES_QUANTIZE_ROWS_H_
