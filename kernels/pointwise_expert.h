// A stand-in for experts: every row times a factor of its expert, rounded to the dtype. What
// CombineArgs::expert_scale does on the way, as a kernel of its own, for everything that can be
// received.
#ifndef OCTET_KERNELS_POINTWISE_EXPERT_H_
#define OCTET_KERNELS_POINTWISE_EXPERT_H_

#include <hip/hip_runtime.h>

#include <cstdint>

#include "absl/status/status.h"
#include "octet/ep_config.h"
#include "octet/expert_parallel.h"
#include "octet/node.h"

namespace octet {

// What Combine is given for `received`, in stream order on rank.stream(). `expert_scale`: [L],
// `out`: rows of config.dtype, both this GPU's.
//   kPackedExperts  out[row] = x · expert_scale[its local expert], for rows in expert order; those
//                   of padding are not written. kExpertMajor, kRankMajor: likewise, of those that
//                   Received::ranges names
//   kDeduplicated   out[row] = Σ weight · (x · expert_scale[expert]) over the token's experts here,
//                   in float32 by ascending k
// with the row of received.x, or of 8-bit floats what Dequantize makes of it. Each product in
// parentheses and each result is rounded to the dtype. kInvalidArgument for rows of
// DispatchFormat::kBytes, and for scales of a number of columns that is no multiple of 8.
absl::Status PointwiseExpert(Rank& rank, const EpConfig& config, const Received& received,
                             const float* expert_scale, void* out);

// Loads the kernel for `config` on the calling thread's GPU, if there is one: whoever is to call
// PointwiseExpert while other ranks' kernels wait does so before. ExpertParallel::Create does for
// its own configuration.
absl::Status LoadPointwiseExpert(const EpConfig& config);

}  // namespace octet

#endif  // OCTET_KERNELS_POINTWISE_EXPERT_H_
