// The kernel that multiplies tokens by their weights (MoeLayerConfig::weighs_input).
#ifndef OCTET_KERNELS_LAYER_WEIGH_INPUT_H_
#define OCTET_KERNELS_LAYER_WEIGH_INPUT_H_

#include <hip/hip_runtime.h>

#include "runtime/device/launch_shape.h"

namespace octet {

// out[t] = x[t] · weights[t] in float32, rounded to the dtype, and ones[t] = 1.
struct WeighInputParams {
  const void* x;  // [num_tokens][H]
  const float* weights;
  void* out;    // [num_tokens][H]
  float* ones;  // [num_tokens]
  int num_tokens;
  int row_vecs;  // 16-byte vectors of a row
};

// Load the kernel on the current device, and enqueue it, for rows of fp16 or of bf16.
hipError_t LoadWeighInput(bool fp16);
hipError_t LaunchWeighInput(const WeighInputParams& params, bool fp16, const LaunchShape& shape,
                            hipStream_t stream);

}  // namespace octet

#endif  // OCTET_KERNELS_LAYER_WEIGH_INPUT_H_
