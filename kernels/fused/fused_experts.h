// FusedExperts within objects that the nodes of a domain make together.
#ifndef OCTET_KERNELS_FUSED_FUSED_EXPERTS_H_
#define OCTET_KERNELS_FUSED_FUSED_EXPERTS_H_

#include <memory>

#include "absl/status/statusor.h"
#include "octet/domain.h"
#include "octet/expert_parallel.h"
#include "octet/fused_experts.h"

namespace octet {

// FusedExperts::Create, but not collective: all nodes of the domain must have agreed on the
// arguments.
absl::StatusOr<std::unique_ptr<FusedExperts>> MakeFusedExperts(
    Domain& domain, const FusedExpertsConfig& config, const ExpertParallelOptions& options);

}  // namespace octet

#endif  // OCTET_KERNELS_FUSED_FUSED_EXPERTS_H_
