// The kernel behind kernels/pointwise_expert.h.
#ifndef OCTET_KERNELS_DEVICE_POINTWISE_EXPERT_H_
#define OCTET_KERNELS_DEVICE_POINTWISE_EXPERT_H_

#include <hip/hip_runtime.h>

#include <cstdint>

#include "kernels/device/row_source.h"
#include "runtime/device/launch_shape.h"

namespace octet {

struct PointwiseExpertParams {
  const void* x;              // [rows][H]
  const RowSource* sources;   // [rows]
  const int32_t* total_rows;  // one word on this GPU
  const float* expert_scale;  // [num_local_experts]
  int num_local_experts;
  int row_vecs;  // 16-byte vectors of a row
  void* out;     // [rows][H]
};

hipError_t LaunchPointwiseExpert(const PointwiseExpertParams& params, bool fp16,
                                 const LaunchShape& shape, hipStream_t stream);

}  // namespace octet

#endif  // OCTET_KERNELS_DEVICE_POINTWISE_EXPERT_H_
