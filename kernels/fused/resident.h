// How many blocks of a kernel with a product a GPU holds at once.
#ifndef OCTET_KERNELS_FUSED_RESIDENT_H_
#define OCTET_KERNELS_FUSED_RESIDENT_H_

#include <hip/hip_runtime.h>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "kernels/gemm/kernels.h"
#include "runtime/device/launch_shape.h"

namespace octet::fused {

// Returns how many blocks of this shape a compute unit of the current GPU holds. `loaded`: what
// loading the kernel, and allowing it its shared memory, came to. kUnimplemented, with the bytes,
// if there is not enough shared memory for one; no error of the GPU's API is left then.
absl::StatusOr<int> BlocksOfUnit(absl::string_view call, const LaunchShape& shape,
                                 hipError_t loaded,
                                 absl::FunctionRef<hipError_t(int*)> blocks_per_unit);

// Returns the number of blocks of a launch: `blocks`, but not more than the current GPU holds, in
// whole clusters.
absl::StatusOr<int> ResidentBlocks(int blocks, int blocks_of_unit,
                                   const GroupedGemmTileShape& tile);

}  // namespace octet::fused

#endif  // OCTET_KERNELS_FUSED_RESIDENT_H_
