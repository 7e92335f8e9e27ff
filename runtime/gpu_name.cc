#include "runtime/gpu_name.h"

#include <hip/hip_runtime.h>

#include "runtime/gpu_status.h"
#include "runtime/status_macros.h"

namespace octet {

absl::StatusOr<std::string> CurrentGpuName() {
  int device = 0;
  hipDeviceProp_t properties;
  OCTET_RETURN_IF_GPU_ERROR(hipGetDevice(&device));
  OCTET_RETURN_IF_GPU_ERROR(hipGetDeviceProperties(&properties, device));
  return std::string(properties.name);
}

}  // namespace octet
