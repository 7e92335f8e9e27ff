// The host half of HIP. CUDA does not split its runtime this way.
#ifndef OCTET_RUNTIME_PLATFORM_NVIDIA_HIP_HIP_RUNTIME_API_H_
#define OCTET_RUNTIME_PLATFORM_NVIDIA_HIP_HIP_RUNTIME_API_H_

#include <hip/hip_runtime.h>

#endif  // OCTET_RUNTIME_PLATFORM_NVIDIA_HIP_HIP_RUNTIME_API_H_
