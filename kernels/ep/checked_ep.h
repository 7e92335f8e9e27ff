// An ExpertParallel whose calls can be checked before anything is enqueued, for calls that enqueue
// something else before them.
#ifndef OCTET_KERNELS_EP_CHECKED_EP_H_
#define OCTET_KERNELS_EP_CHECKED_EP_H_

#include "absl/status/status.h"
#include "octet/expert_parallel.h"
#include "octet/node.h"

namespace octet {

class CheckedEp : public ExpertParallel {
 public:
  // Checks all that Combine checks, without enqueuing anything.
  virtual absl::Status CheckCombine(const Rank& rank, const DispatchHandle& handle,
                                    const CombineArgs& args) const = 0;
  // Checks that this object made the handle for this rank, and that no dispatch since overwrites
  // what that one has received.
  virtual absl::Status CheckReceivedIsValid(const Rank& rank,
                                            const DispatchHandle& handle) const = 0;
};

}  // namespace octet

#endif  // OCTET_KERNELS_EP_CHECKED_EP_H_
