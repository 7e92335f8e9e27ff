// Combines whose kernels also are the experts: they multiply each row by a factor of its expert and
// round it to the dtype, as PointwiseExpert does. And memory that shows what has not been written.
#ifndef OCTET_KERNELS_ORACLE_STAND_IN_H_
#define OCTET_KERNELS_ORACLE_STAND_IN_H_

#include "absl/status/status.h"
#include "octet/expert_parallel.h"
#include "octet/node.h"
#include "octet/received.h"

namespace octet {

struct ScaledCombineArgs : CombineArgs {
  // [L] factors, memory of the rank's GPU; nullptr: rows are used unchanged. Not with
  // Output::kDeduplicated.
  const float* expert_scale = nullptr;
};

// ExpertParallel::Combine, CombineSend and CombineReceive.
absl::Status ScaledCombine(ExpertParallel& ep, Rank& rank, const DispatchHandle& handle,
                           const ScaledCombineArgs& args);
absl::Status ScaledCombineSend(ExpertParallel& ep, Rank& rank, const DispatchHandle& handle,
                               const ScaledCombineArgs& args);
absl::Status ScaledCombineReceive(ExpertParallel& ep, Rank& rank, const DispatchHandle& handle,
                                  const ScaledCombineArgs& args);

// Fills the memory that a dispatch of `num_rows` rows will write with 0xFF bytes (NaNs), in stream
// order.
absl::Status PoisonReceived(ExpertParallel& ep, Rank& rank, int num_rows);

}  // namespace octet

#endif  // OCTET_KERNELS_ORACLE_STAND_IN_H_
