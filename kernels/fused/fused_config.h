// What a FusedExpertsConfig may be.
#ifndef OCTET_KERNELS_FUSED_FUSED_CONFIG_H_
#define OCTET_KERNELS_FUSED_FUSED_CONFIG_H_

#include "absl/status/status.h"
#include "octet/fused_experts.h"

namespace octet {

// Whether a call is one kernel: not kAuto or kNone.
bool IsOneKernel(Fusion fusion);

// Returns kInvalidArgument with the member, its value and what it must be, or OK. Config.ep is
// checked for what is particular to calls with products; Validate checks the rest.
absl::Status CheckFusedConfig(const FusedExpertsConfig& config);

}  // namespace octet

#endif  // OCTET_KERNELS_FUSED_FUSED_CONFIG_H_
