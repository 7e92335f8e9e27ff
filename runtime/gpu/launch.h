// Checks whether a grid can be resident as a whole.
#ifndef OCTET_RUNTIME_GPU_LAUNCH_H_
#define OCTET_RUNTIME_GPU_LAUNCH_H_

#include <hip/hip_runtime.h>

#include <cstddef>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "runtime/device/launch_shape.h"
#include "runtime/gpu/gpu_status.h"

namespace octet {

// Returns OK if `shape.blocks` blocks can be resident at once on a GPU with `num_compute_units`,
// where `blocks_per_unit` comes from the occupancy API; otherwise kInvalidArgument with the
// numbers.
absl::Status CheckResident(absl::string_view kernel, const LaunchShape& shape, int blocks_per_unit,
                           int num_compute_units);

}  // namespace octet

#endif  // OCTET_RUNTIME_GPU_LAUNCH_H_
