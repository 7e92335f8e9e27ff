#include "runtime/gpu/gpu_name.h"

#include <hip/hip_runtime.h>

#include "runtime/base/status_macros.h"
#include "runtime/gpu/gpu_status.h"

namespace octet {

absl::StatusOr<std::string> CurrentGpuName() {
  int device = 0;
  hipDeviceProp_t properties;
  OCTET_RETURN_IF_GPU_ERROR(hipGetDevice(&device));
  OCTET_RETURN_IF_GPU_ERROR(hipGetDeviceProperties(&properties, device));
  return std::string(properties.name);
}

}  // namespace octet
