// What a RoutedExpertsConfig may be.
#ifndef OCTET_KERNELS_FUSED_FUSED_CONFIG_H_
#define OCTET_KERNELS_FUSED_FUSED_CONFIG_H_

#include <string>

#include "absl/status/status.h"
#include "octet/expert_parallel.h"
#include "octet/routed_experts.h"

namespace octet {

// Whether a call is one kernel: not kAuto or kNone.
bool IsOneKernel(Fusion fusion);

// Returns kInvalidArgument with the member, its value and what it must be, or OK. Config.ep is
// checked for what is particular to calls with products; Validate checks the rest.
absl::Status CheckFusedConfig(const RoutedExpertsConfig& config);

// Makes both fusions kNone, as they are over several nodes: a kernel that moves rows of one node
// cannot wait for those of others. kInvalidArgument for a fusion that is named.
absl::Status ChooseNoFusion(RoutedExpertsConfig& config);

// Returns what all nodes must agree about, in words.
std::string TextOf(const RoutedExpertsConfig& config, const RailOptions& rails);

}  // namespace octet

#endif  // OCTET_KERNELS_FUSED_FUSED_CONFIG_H_
