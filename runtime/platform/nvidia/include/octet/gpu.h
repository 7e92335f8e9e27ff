// The GPU types of Octet's interface, equal to CUDA's. Includes no CUDA header, so that programs
// without kernels need none; programs that include <cuda_runtime.h> can pass cudaStream_t and
// cudaEvent_t directly.
#ifndef OCTET_GPU_H_
#define OCTET_GPU_H_

struct CUstream_st;
struct CUevent_st;

namespace octet {

using GpuStream = CUstream_st*;  // cudaStream_t
using GpuEvent = CUevent_st*;    // cudaEvent_t

}  // namespace octet

// Marks functions that kernels may call as well.
#ifdef __CUDACC__
#define OCTET_HOST_DEVICE __host__ __device__
#else
#define OCTET_HOST_DEVICE
#endif

#endif  // OCTET_GPU_H_
