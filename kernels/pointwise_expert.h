// A stand-in for experts: every row times a factor of its expert, rounded to the dtype. What
// CombineArgs::expert_scale does on the way, as a kernel of its own.
#ifndef OCTET_KERNELS_POINTWISE_EXPERT_H_
#define OCTET_KERNELS_POINTWISE_EXPERT_H_

#include <hip/hip_runtime.h>

#include <cstdint>

#include "absl/status/status.h"
#include "kernels/ep_config.h"
#include "kernels/expert_parallel.h"
#include "runtime/node.h"

namespace octet {

// out[row] = received.x[row] · expert_scale[its local expert] for all rows received, in stream
// order on rank.stream(). `expert_scale`: [L], `out`: laid out as received.x, both this GPU's.
absl::Status PointwiseExpert(Rank& rank, const EpConfig& config, const Received& received,
                             const float* expert_scale, void* out);

}  // namespace octet

#endif  // OCTET_KERNELS_POINTWISE_EXPERT_H_
