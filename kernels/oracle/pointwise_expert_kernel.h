// The kernel of kernels/oracle/pointwise_expert.h.
#ifndef OCTET_KERNELS_ORACLE_POINTWISE_EXPERT_KERNEL_H_
#define OCTET_KERNELS_ORACLE_POINTWISE_EXPERT_KERNEL_H_

#include <hip/hip_runtime.h>

#include <cstdint>

#include "octet/fp8_scale.h"
#include "octet/row_source.h"
#include "runtime/device/launch_shape.h"

namespace octet {

struct PointwiseExpertParams {
  const void* x;            // rows as they were received
  const uint32_t* scales;   // [scale_words] of each row, if rows are 8-bit floats
  const int32_t* num_rows;  // of out; one word on this GPU. Ignored if there are ranges
  const RowRange* ranges;   // [num_ranges] the rows of out, if they lie apart; else nullptr
  int num_ranges;
  const RowSource* sources;  // of each row of out; unused with topk_idx
  const int32_t* row_index;  // the row of x for each row of out; nullptr: the same row
  // If each row of out is a sum over its token's local experts, [rows][topk]; else nullptr.
  const int32_t* topk_idx;
  const float* topk_weights;
  const float* expert_scale;  // [num_local_experts]
  int num_local_experts;
  int topk;
  int row_vecs;    // 16-byte vectors of a row of out
  int group_vecs;  // vectors that share a scale
  int scale_words;
  ScaleFormat scale_format;
  void* out;  // [rows][H]
};

// The format of the rows of x.
enum class ExpertInput { kDtype, kE4m3Fn, kE4m3Fnuz };

struct PointwiseExpertVariant {
  bool fp16;
  ExpertInput input;
};

// Loads the kernel on the current device.
hipError_t LoadPointwiseExpert(const PointwiseExpertVariant& variant);
hipError_t LaunchPointwiseExpert(const PointwiseExpertParams& params,
                                 const PointwiseExpertVariant& variant, const LaunchShape& shape,
                                 hipStream_t stream);

}  // namespace octet

#endif  // OCTET_KERNELS_ORACLE_POINTWISE_EXPERT_KERNEL_H_
