// RCCL has NCCL's interface, with the same names.
#ifndef OCTET_RUNTIME_PLATFORM_NVIDIA_RCCL_RCCL_H_
#define OCTET_RUNTIME_PLATFORM_NVIDIA_RCCL_RCCL_H_

#include <nccl.h>

#endif  // OCTET_RUNTIME_PLATFORM_NVIDIA_RCCL_RCCL_H_
