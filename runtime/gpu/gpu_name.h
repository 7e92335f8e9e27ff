// The name of the GPU that a thread works on.
#ifndef OCTET_RUNTIME_GPU_GPU_NAME_H_
#define OCTET_RUNTIME_GPU_GPU_NAME_H_

#include <string>

#include "absl/status/statusor.h"

namespace octet {

// Returns the driver's name of the calling thread's current GPU: GpuInfo::name of a GPU that ranks
// do not share. kUnavailable without a GPU.
absl::StatusOr<std::string> CurrentGpuName();

}  // namespace octet

#endif  // OCTET_RUNTIME_GPU_GPU_NAME_H_
