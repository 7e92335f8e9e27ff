// The GPU types of Octet's interface, equal to the emulated HIP's. Includes no HIP header, so that
// programs without kernels need none.
#ifndef OCTET_GPU_H_
#define OCTET_GPU_H_

struct ihipStream_t;
struct ihipEvent_t;

namespace octet {

using GpuStream = ihipStream_t*;  // hipStream_t
using GpuEvent = ihipEvent_t*;    // hipEvent_t

}  // namespace octet

// Marks functions that kernels may call as well. Emulated kernels are host code.
#define OCTET_HOST_DEVICE

#endif  // OCTET_GPU_H_
