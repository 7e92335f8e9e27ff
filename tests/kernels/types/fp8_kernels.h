// Kernels that convert and quantise; tests/kernels/types/fp8_quantize_test.cc says what is right.
#ifndef OCTET_TESTS_KERNELS_TYPES_FP8_KERNELS_H_
#define OCTET_TESTS_KERNELS_TYPES_FP8_KERNELS_H_

#include <hip/hip_runtime.h>

#include <cstdint>

#include "octet/fp8_scale.h"
#include "runtime/device/launch_shape.h"

namespace octet {

struct PackFp8Params {
  const float* floats;  // [4 * words]
  uint32_t* fn;         // [words] E4m3Fn
  uint32_t* fnuz;       // [words] E4m3Fnuz
  int words;
};
hipError_t LaunchPackFp8(const PackFp8Params& params, LaunchShape shape, hipStream_t stream);

// A block quantises a row.
struct QuantizeParams {
  const void* x;     // [rows][hidden] of 16-bit floats
  uint8_t* fp8;      // [rows][hidden]
  uint32_t* scales;  // [rows][scale_words]
  int hidden;
  int scale_words;
  int scale_group;
  ScaleFormat format;
};
// E4m3Fnuz instead of E4m3Fn, fp16 instead of bf16.
hipError_t LaunchQuantize(const QuantizeParams& params, bool fnuz, bool fp16, LaunchShape shape,
                          hipStream_t stream);

}  // namespace octet

#endif  // OCTET_TESTS_KERNELS_TYPES_FP8_KERNELS_H_
