// The HIP names that this project uses, in terms of CUDA 13's runtime. HIP's own headers for NVIDIA
// GPUs do not compile with CUDA 13.
//
// Everything takes the same arguments as in HIP. Differences:
//   - hipExtMallocWithFlags ignores its flags: peers never cache device memory here.
//   - hipDeviceProp_t has CUDA's fields; use only name, major, minor, multiProcessorCount,
//   warpSize,
//     totalGlobalMem, sharedMemPerBlock, pciDomainID, pciBusID and pciDeviceID, which HIP has too.
//   - hipDeviceAttributeMaxSharedMemoryPerBlock includes what a kernel must be allowed first.
//   - A machine without a driver returns hipErrorInsufficientDriver, not hipErrorNoDevice.
#ifndef OCTET_RUNTIME_PLATFORM_NVIDIA_HIP_HIP_RUNTIME_H_
#define OCTET_RUNTIME_PLATFORM_NVIDIA_HIP_HIP_RUNTIME_H_

#include <cuda_runtime.h>

#define __HIP_PLATFORM_NVIDIA__ 1

// ---- types

using hipDeviceAttribute_t = cudaDeviceAttr;
using hipDeviceProp_t = cudaDeviceProp;
using hipError_t = cudaError_t;
using hipEvent_t = cudaEvent_t;
using hipFuncAttributes = cudaFuncAttributes;
using hipGraphExec_t = cudaGraphExec_t;
using hipGraph_t = cudaGraph_t;
using hipMemcpyKind = cudaMemcpyKind;
using hipStreamCaptureStatus = cudaStreamCaptureStatus;
using hipStream_t = cudaStream_t;

// ---- values

#define hipSuccess cudaSuccess
#define hipErrorCooperativeLaunchTooLarge cudaErrorCooperativeLaunchTooLarge
#define hipErrorIllegalAddress cudaErrorIllegalAddress
#define hipErrorInsufficientDriver cudaErrorInsufficientDriver
#define hipErrorInvalidDevice cudaErrorInvalidDevice
#define hipErrorInvalidValue cudaErrorInvalidValue
#define hipErrorNoDevice cudaErrorNoDevice
#define hipErrorNotReady cudaErrorNotReady
#define hipErrorNotSupported cudaErrorNotSupported
#define hipErrorOutOfMemory cudaErrorMemoryAllocation
#define hipErrorPeerAccessAlreadyEnabled cudaErrorPeerAccessAlreadyEnabled

#define hipDeviceAttributeClockRate cudaDevAttrClockRate
#define hipDeviceAttributeCooperativeLaunch cudaDevAttrCooperativeLaunch
#define hipDeviceAttributeMaxSharedMemoryPerBlock cudaDevAttrMaxSharedMemoryPerBlockOptin
#define hipDeviceAttributeMemoryBusWidth cudaDevAttrGlobalMemoryBusWidth
#define hipDeviceAttributeMemoryClockRate cudaDevAttrMemoryClockRate
#define hipDeviceAttributeMultiprocessorCount cudaDevAttrMultiProcessorCount
#define hipDeviceAttributeWarpSize cudaDevAttrWarpSize

#define hipEventDefault cudaEventDefault
#define hipEventDisableTiming cudaEventDisableTiming
#define hipFuncAttributeMaxDynamicSharedMemorySize cudaFuncAttributeMaxDynamicSharedMemorySize
#define hipHostMallocDefault cudaHostAllocDefault
#define hipHostMallocMapped cudaHostAllocMapped
#define hipHostMallocPortable cudaHostAllocPortable
#define hipHostMallocCoherent 0U  // CUDA's pinned memory is always coherent
#define hipMemcpyDefault cudaMemcpyDefault
#define hipMemcpyDeviceToDevice cudaMemcpyDeviceToDevice
#define hipMemcpyDeviceToHost cudaMemcpyDeviceToHost
#define hipMemcpyHostToDevice cudaMemcpyHostToDevice
#define hipStreamCaptureModeGlobal cudaStreamCaptureModeGlobal
#define hipStreamCaptureModeRelaxed cudaStreamCaptureModeRelaxed
#define hipStreamCaptureModeThreadLocal cudaStreamCaptureModeThreadLocal
#define hipStreamCaptureStatusActive cudaStreamCaptureStatusActive
#define hipStreamCaptureStatusNone cudaStreamCaptureStatusNone
#define hipStreamDefault cudaStreamDefault
#define hipStreamNonBlocking cudaStreamNonBlocking

#define hipDeviceMallocDefault 0U
#define hipDeviceMallocUncached 3U

// ---- host functions with the same arguments

#define hipDeviceCanAccessPeer cudaDeviceCanAccessPeer
#define hipDeviceEnablePeerAccess cudaDeviceEnablePeerAccess
#define hipDeviceGetAttribute cudaDeviceGetAttribute
#define hipDeviceGetPCIBusId cudaDeviceGetPCIBusId
#define hipDeviceSynchronize cudaDeviceSynchronize
#define hipDriverGetVersion cudaDriverGetVersion
#define hipEventCreate cudaEventCreate
#define hipEventCreateWithFlags cudaEventCreateWithFlags
#define hipEventDestroy cudaEventDestroy
#define hipEventElapsedTime cudaEventElapsedTime
#define hipEventQuery cudaEventQuery
#define hipLaunchHostFunc cudaLaunchHostFunc
#define hipEventRecord cudaEventRecord
#define hipEventSynchronize cudaEventSynchronize
#define hipFree cudaFree
#define hipFuncGetAttributes cudaFuncGetAttributes
#define hipFuncSetAttribute cudaFuncSetAttribute
#define hipGetDevice cudaGetDevice
#define hipGetDeviceCount cudaGetDeviceCount
#define hipGetDeviceProperties cudaGetDeviceProperties
#define hipGetErrorName cudaGetErrorName
#define hipGetErrorString cudaGetErrorString
#define hipGetLastError cudaGetLastError
#define hipGraphDestroy cudaGraphDestroy
#define hipGraphExecDestroy cudaGraphExecDestroy
#define hipGraphLaunch cudaGraphLaunch
#define hipGraphUpload cudaGraphUpload
#define hipHostFree cudaFreeHost
#define hipHostGetDevicePointer cudaHostGetDevicePointer
#define hipLaunchCooperativeKernel cudaLaunchCooperativeKernel
#define hipLaunchKernel cudaLaunchKernel
#define hipMalloc cudaMalloc
#define hipMemGetInfo cudaMemGetInfo
#define hipMemcpy cudaMemcpy
#define hipMemcpyAsync cudaMemcpyAsync
#define hipMemcpyPeerAsync cudaMemcpyPeerAsync
#define hipMemset cudaMemset
#define hipMemsetAsync cudaMemsetAsync
#define hipOccupancyMaxActiveBlocksPerMultiprocessor cudaOccupancyMaxActiveBlocksPerMultiprocessor
#define hipPeekAtLastError cudaPeekAtLastError
#define hipRuntimeGetVersion cudaRuntimeGetVersion
#define hipSetDevice cudaSetDevice
#define hipStreamBeginCapture cudaStreamBeginCapture
#define hipStreamCreate cudaStreamCreate
#define hipStreamCreateWithFlags cudaStreamCreateWithFlags
#define hipStreamDestroy cudaStreamDestroy
#define hipStreamEndCapture cudaStreamEndCapture
#define hipStreamIsCapturing cudaStreamIsCapturing
#define hipStreamQuery cudaStreamQuery
#define hipStreamSynchronize cudaStreamSynchronize
#define hipStreamWaitEvent cudaStreamWaitEvent

// ---- host functions that differ

template <typename T>
inline hipError_t hipHostMalloc(T** pointer, size_t bytes, unsigned flags = hipHostMallocDefault) {
  return cudaHostAlloc(pointer, bytes, flags);
}

inline hipError_t hipExtMallocWithFlags(void** pointer, size_t bytes, unsigned /*flags*/) {
  return cudaMalloc(pointer, bytes);
}

inline hipError_t hipGraphInstantiate(hipGraphExec_t* executable, hipGraph_t graph,
                                      hipGraph_t* /*error_node*/, char* /*log*/,
                                      size_t /*log_bytes*/) {
  return cudaGraphInstantiate(executable, graph, 0);
}

// ---- device

#define HIP_DYNAMIC_SHARED(type, var) extern __shared__ type var[];

#endif  // OCTET_RUNTIME_PLATFORM_NVIDIA_HIP_HIP_RUNTIME_H_
