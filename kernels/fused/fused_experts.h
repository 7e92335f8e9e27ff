// FusedExperts around calls of any kind.
#ifndef OCTET_KERNELS_FUSED_FUSED_EXPERTS_H_
#define OCTET_KERNELS_FUSED_FUSED_EXPERTS_H_

#include <memory>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "kernels/ep/checked_ep.h"
#include "octet/fused_experts.h"
#include "octet/node.h"

namespace octet {

// The dispatch and combine that FusedExperts put products around.
struct CallsOfExperts {
  int num_ranks;  // all that calls go to: R of one node, P·R of several
  // Makes them. FusedExperts choose `ep` from FusedExpertsConfig::ep.
  absl::FunctionRef<absl::StatusOr<std::unique_ptr<CheckedEp>>(const EpConfig& ep)> make;
};

// FusedExperts::Create, with such calls. Only those of a single node can be fused with products.
absl::StatusOr<std::unique_ptr<FusedExperts>> MakeFusedExperts(Node& node,
                                                               const FusedExpertsConfig& config,
                                                               const ExpertParallelOptions& options,
                                                               const CallsOfExperts& calls);

}  // namespace octet

#endif  // OCTET_KERNELS_FUSED_FUSED_EXPERTS_H_
