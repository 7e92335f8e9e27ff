// The GPU types of Octet's interface, equal to HIP's. Includes no HIP header, so that programs
// without kernels need none; programs that include <hip/hip_runtime.h> can pass hipStream_t and
// hipEvent_t directly.
#ifndef OCTET_GPU_H_
#define OCTET_GPU_H_

struct ihipStream_t;
struct ihipEvent_t;

namespace octet {

using GpuStream = ihipStream_t*;  // hipStream_t
using GpuEvent = ihipEvent_t*;    // hipEvent_t

}  // namespace octet

// Marks functions that kernels may call as well.
#ifdef __HIP__
#define OCTET_HOST_DEVICE __host__ __device__
#else
#define OCTET_HOST_DEVICE
#endif

#endif  // OCTET_GPU_H_
