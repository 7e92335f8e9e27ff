// cooperative_groups::this_grid(), under the name that HIP gives the header.
#ifndef OCTET_RUNTIME_PLATFORM_NVIDIA_HIP_HIP_COOPERATIVE_GROUPS_H_
#define OCTET_RUNTIME_PLATFORM_NVIDIA_HIP_HIP_COOPERATIVE_GROUPS_H_

#include <cooperative_groups.h>
#include <hip/hip_runtime.h>

#endif  // OCTET_RUNTIME_PLATFORM_NVIDIA_HIP_HIP_COOPERATIVE_GROUPS_H_
