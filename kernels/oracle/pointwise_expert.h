// A stand-in for experts: multiplies every row by a factor of its expert and rounds to the dtype.
// This is what ScaledCombine does during combine, as a separate kernel that takes every output
// layout.
#ifndef OCTET_KERNELS_ORACLE_POINTWISE_EXPERT_H_
#define OCTET_KERNELS_ORACLE_POINTWISE_EXPERT_H_

#include <hip/hip_runtime.h>

#include <cstdint>

#include "absl/status/status.h"
#include "octet/ep_config.h"
#include "octet/expert_parallel.h"
#include "octet/node.h"

namespace octet {

// Computes the input of Combine for `received`, in stream order on rank.stream(). `expert_scale`
// [L] and `out`, rows of config.dtype, are in this GPU's memory.
//   kPackedExperts  out[row] = x · expert_scale[its local expert], for rows in expert order; rows
//                   of padding are not written. kExpertMajor, kRankMajor: likewise, for the rows
//                   in Received::ranges
//   kDeduplicated   out[row] = Σ weight · (x · expert_scale[expert]) over the token's experts here,
//                   in float32 by ascending k
// x is the row of received.x, or its Dequantize result if the rows are 8-bit floats. Each product
// in parentheses and each result is rounded to the dtype. Returns kInvalidArgument for rows of
// DispatchFormat::kBytes, and for scale groups whose number of columns is not a multiple of 8.
absl::Status PointwiseExpert(Rank& rank, const EpConfig& config, const Received& received,
                             const float* expert_scale, void* out);

// Loads the kernel for `config` on the calling thread's GPU, if there is one. Callers that use
// PointwiseExpert while other ranks' kernels wait must call this first.
absl::Status LoadPointwiseExpert(const EpConfig& config);

}  // namespace octet

#endif  // OCTET_KERNELS_ORACLE_POINTWISE_EXPERT_H_
