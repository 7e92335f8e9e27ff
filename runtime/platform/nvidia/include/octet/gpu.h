// The GPU types of Octet's interface, as CUDA has them. Includes nothing of CUDA, so that programs
// without kernels need no CUDA headers; those that include <cuda_runtime.h> pass cudaStream_t and
// cudaEvent_t as they are.
#ifndef OCTET_GPU_H_
#define OCTET_GPU_H_

struct CUstream_st;
struct CUevent_st;

namespace octet {

using GpuStream = CUstream_st*;  // cudaStream_t
using GpuEvent = CUevent_st*;    // cudaEvent_t

}  // namespace octet

// In front of functions that kernels may call as well.
#ifdef __CUDACC__
#define OCTET_HOST_DEVICE __host__ __device__
#else
#define OCTET_HOST_DEVICE
#endif

#endif  // OCTET_GPU_H_
