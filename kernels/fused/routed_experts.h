// RoutedExperts within objects that the nodes of a domain make together.
#ifndef OCTET_KERNELS_FUSED_ROUTED_EXPERTS_H_
#define OCTET_KERNELS_FUSED_ROUTED_EXPERTS_H_

#include <memory>

#include "absl/status/statusor.h"
#include "octet/domain.h"
#include "octet/expert_parallel.h"
#include "octet/routed_experts.h"

namespace octet {

// RoutedExperts::Create, but not collective: all nodes of the domain must have agreed on the
// arguments.
absl::StatusOr<std::unique_ptr<RoutedExperts>> MakeRoutedExperts(
    Domain& domain, const RoutedExpertsConfig& config, const ExpertParallelOptions& options);

}  // namespace octet

#endif  // OCTET_KERNELS_FUSED_ROUTED_EXPERTS_H_
