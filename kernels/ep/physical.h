// The calls beneath a placement take the slots of all ranks for experts.
#ifndef OCTET_KERNELS_EP_PHYSICAL_H_
#define OCTET_KERNELS_EP_PHYSICAL_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "octet/ep_config.h"
#include "octet/expert_parallel.h"
#include "octet/placement.h"

namespace octet {

// Returns kInvalidArgument unless the placement of `config` is one of its experts on `num_ranks`
// ranks. OK without a placement.
absl::Status CheckPlacement(const EpConfig& config, int num_ranks);

// Returns the configuration of physical experts, R · S of them and without a placement. Returns
// `config` itself if it has no placement.
EpConfig PhysicalConfig(const EpConfig& config);

// Returns a text that is the same for equal placements and, most likely, for no others.
std::string DigestOf(const Placement& placement);

// Returns the physical ids of the choices of a rank's tokens, [T][K], from token `first_token` of
// its dispatch on. Ids that name no expert stay.
std::vector<int32_t> PhysicalIds(const Placement& placement, int source_rank,
                                 absl::Span<const int32_t> topk_idx, int topk, int first_token = 0);

// Returns the loads of logical experts: those of their replicas together.
ExpertLoads LogicalLoads(const Placement& placement, const ExpertLoads& physical);

}  // namespace octet

#endif  // OCTET_KERNELS_EP_PHYSICAL_H_
