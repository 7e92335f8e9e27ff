// Checks of what callers pass to dispatch and combine, within a node and over several.
#ifndef OCTET_KERNELS_EP_BASE_CHECK_TENSORS_H_
#define OCTET_KERNELS_EP_BASE_CHECK_TENSORS_H_

#include "absl/status/status.h"
#include "kernels/ep/ep_calls.h"
#include "octet/ep_config.h"
#include "octet/expert_parallel.h"
#include "octet/node.h"

namespace octet {

// Returns kInvalidArgument with the argument's name if one that is needed is null, or one is not
// aligned, not of the rank's GPU, or too small (check_pointers.h). args.num_tokens must be right.
absl::Status CheckDispatchTensors(const Rank& rank, const EpConfig& config,
                                  const DispatchArgs& args);
// The same of a combine, whose y must also overlap nothing else. `num_ranks`: of all nodes that
// `config` is of.
absl::Status CheckCombineTensors(const Rank& rank, const EpConfig& config, int num_ranks,
                                 const CombineRequest& request);

}  // namespace octet

#endif  // OCTET_KERNELS_EP_BASE_CHECK_TENSORS_H_
