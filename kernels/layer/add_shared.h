// The kernel that adds the output of shared experts to that of the others.
#ifndef OCTET_KERNELS_LAYER_ADD_SHARED_H_
#define OCTET_KERNELS_LAYER_ADD_SHARED_H_

#include <hip/hip_runtime.h>

#include "runtime/device/launch_shape.h"

namespace octet {

// y[t] = y[t] + sigmoid(gate[t]) · shared[t] in float32, each operation rounded, then to the dtype.
struct AddSharedParams {
  void* y;             // [num_tokens][H]
  const void* shared;  // [num_tokens][H]
  const float* gate;   // the gate of token t is element t · gate_stride; nullptr: factors of 1
  int gate_stride;
  int num_tokens;
  int row_vecs;  // 16-byte vectors of a row
};

// Load the kernel on the current device, and enqueue it, for rows of fp16 or of bf16.
hipError_t LoadAddShared(bool fp16);
hipError_t LaunchAddShared(const AddSharedParams& params, bool fp16, const LaunchShape& shape,
                           hipStream_t stream);

}  // namespace octet

#endif  // OCTET_KERNELS_LAYER_ADD_SHARED_H_
