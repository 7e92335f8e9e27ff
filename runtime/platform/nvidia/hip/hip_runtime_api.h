// The host half of HIP. CUDA does not divide its runtime in that way.
#ifndef OCTET_RUNTIME_PLATFORM_NVIDIA_HIP_HIP_RUNTIME_API_H_
#define OCTET_RUNTIME_PLATFORM_NVIDIA_HIP_HIP_RUNTIME_API_H_

#include <hip/hip_runtime.h>

#endif  // OCTET_RUNTIME_PLATFORM_NVIDIA_HIP_HIP_RUNTIME_API_H_
