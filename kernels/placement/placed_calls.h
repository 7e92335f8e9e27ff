// Dispatch and combine with a placement: the calls of any strategy, or over several nodes, on
// physical experts, ahead of which a small kernel turns logical experts into physical ones.
//
// The table lies in GPU memory, and a combine takes the physical ids that its dispatch was given.
// The kernels of strategies know nothing of placements.
#ifndef OCTET_KERNELS_PLACEMENT_PLACED_CALLS_H_
#define OCTET_KERNELS_PLACEMENT_PLACED_CALLS_H_

#include <memory>

#include "absl/status/statusor.h"
#include "kernels/ep/ep_calls.h"
#include "octet/domain.h"
#include "octet/ep_config.h"
#include "octet/expert_parallel.h"

namespace octet {

// Makes the calls of `config`, which has a placement. See MakeCalls.
absl::StatusOr<std::unique_ptr<EpCalls>> MakePlaced(Domain& domain, const EpConfig& config,
                                                    const ExpertParallelOptions& options);

}  // namespace octet

#endif  // OCTET_KERNELS_PLACEMENT_PLACED_CALLS_H_
