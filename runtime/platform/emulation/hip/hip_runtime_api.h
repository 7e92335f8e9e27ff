// The host half of HIP, as far as this project uses it, for emulated GPUs. Names, arguments and
// errors are HIP's; hip_*.cc implement it. Differences from a real GPU:
//   - Errors of kernels (a refused access, a stuck or divergent grid) are sticky per device, as in
//     HIP; octet::emulation::ClearErrors() in emulation.h clears them. LastReport() explains them.
//   - While a stream is captured, kernels, copies, fills, host functions, events and graph launches
//     go into the graph. Another stream of the device joins the capture when it waits for an event
//     recorded there. Of the calls that a capture may forbid on a GPU, those that allocate, or wait
//     for a stream or a whole device, are refused.
#ifndef OCTET_RUNTIME_PLATFORM_EMULATION_HIP_HIP_RUNTIME_API_H_
#define OCTET_RUNTIME_PLATFORM_EMULATION_HIP_HIP_RUNTIME_API_H_

#include <cstddef>
#include <cstdint>

#define __HIP_PLATFORM_EMULATION__ 1

// ---- types

enum hipError_t {
  hipSuccess = 0,
  hipErrorInvalidValue = 1,
  hipErrorOutOfMemory = 2,
  hipErrorNotInitialized = 3,
  hipErrorInvalidConfiguration = 9,
  hipErrorInvalidMemcpyDirection = 21,
  hipErrorInsufficientDriver = 35,
  hipErrorInvalidDeviceFunction = 98,
  hipErrorNoDevice = 100,
  hipErrorInvalidDevice = 101,
  hipErrorInvalidHandle = 400,
  hipErrorIllegalState = 401,
  hipErrorNotReady = 600,
  hipErrorIllegalAddress = 700,
  hipErrorLaunchOutOfResources = 701,
  hipErrorLaunchTimeOut = 702,
  hipErrorPeerAccessAlreadyEnabled = 704,
  hipErrorPeerAccessNotEnabled = 705,
  hipErrorLaunchFailure = 719,
  hipErrorCooperativeLaunchTooLarge = 720,
  hipErrorNotSupported = 801,
  hipErrorStreamCaptureUnsupported = 900,
  hipErrorStreamCaptureInvalidated = 901,
  hipErrorStreamCaptureMerge = 902,
  hipErrorStreamCaptureUnmatched = 903,
  hipErrorStreamCaptureUnjoined = 904,
  hipErrorStreamCaptureIsolation = 905,
  hipErrorCapturedEvent = 907,
  hipErrorPeerAccessUnsupported = 217,
  hipErrorUnknown = 999,
};

enum hipMemcpyKind {
  hipMemcpyHostToHost = 0,
  hipMemcpyHostToDevice = 1,
  hipMemcpyDeviceToHost = 2,
  hipMemcpyDeviceToDevice = 3,
  hipMemcpyDefault = 4,
};

enum hipDeviceAttribute_t {
  hipDeviceAttributeClockRate,  // kHz
  hipDeviceAttributeConcurrentKernels,
  hipDeviceAttributeCooperativeLaunch,
  hipDeviceAttributeMaxSharedMemoryPerBlock,
  hipDeviceAttributeMaxThreadsPerBlock,
  hipDeviceAttributeMaxThreadsPerMultiProcessor,
  hipDeviceAttributeMemoryBusWidth,   // bits; 0
  hipDeviceAttributeMemoryClockRate,  // kHz; 0
  hipDeviceAttributeMultiprocessorCount,
  hipDeviceAttributeWallClockRate,  // kHz
  hipDeviceAttributeWarpSize,
};

enum hipFuncAttribute { hipFuncAttributeMaxDynamicSharedMemorySize = 8 };

enum hipMemoryType {
  hipMemoryTypeUnregistered = 0,
  hipMemoryTypeHost = 1,
  hipMemoryTypeDevice = 2,
};

enum hipStreamCaptureMode {
  hipStreamCaptureModeGlobal,
  hipStreamCaptureModeThreadLocal,
  hipStreamCaptureModeRelaxed,
};
enum hipStreamCaptureStatus {
  hipStreamCaptureStatusNone,
  hipStreamCaptureStatusActive,
  hipStreamCaptureStatusInvalidated,
};

using hipStream_t = struct ihipStream_t*;
using hipEvent_t = struct ihipEvent_t*;
using hipGraph_t = struct ihipGraph*;
using hipGraphExec_t = struct hipGraphExec*;
using hipHostFn_t = void (*)(void* argument);

struct dim3 {
  constexpr dim3(unsigned x_ = 1, unsigned y_ = 1, unsigned z_ = 1) : x(x_), y(y_), z(z_) {}
  unsigned x;
  unsigned y;
  unsigned z;
};

struct hipDeviceProp_t {
  char name[256];
  size_t totalGlobalMem;
  size_t sharedMemPerBlock;
  int warpSize;
  int maxThreadsPerBlock;
  int maxThreadsPerMultiProcessor;
  int multiProcessorCount;
  int clockRate;  // kHz
  int major;
  int minor;
  int pciDomainID;
  int pciBusID;
  int pciDeviceID;
  int cooperativeLaunch;
  int concurrentKernels;
  char gcnArchName[256];
};

struct hipPointerAttribute_t {
  hipMemoryType type;
  int device;
  void* devicePointer;
  void* hostPointer;
  int isManaged;
  unsigned allocationFlags;
};

struct hipFuncAttributes {
  size_t sharedSizeBytes;  // static memory, as seen in the launches so far
  size_t localSizeBytes;
  int maxThreadsPerBlock;
  int maxDynamicSharedSizeBytes;
  int numRegs;
};

// ---- flags

inline constexpr unsigned hipStreamDefault = 0x0;
inline constexpr unsigned hipStreamNonBlocking = 0x1;
inline constexpr unsigned hipEventDefault = 0x0;
inline constexpr unsigned hipEventBlockingSync = 0x1;
inline constexpr unsigned hipEventDisableTiming = 0x2;
inline constexpr unsigned hipHostMallocDefault = 0x0;
inline constexpr unsigned hipHostMallocPortable = 0x1;
inline constexpr unsigned hipHostMallocMapped = 0x2;
inline constexpr unsigned hipHostMallocCoherent = 0x40000000;
inline constexpr unsigned hipDeviceMallocDefault = 0x0;
inline constexpr unsigned hipDeviceMallocFinegrained = 0x1;
inline constexpr unsigned hipDeviceMallocUncached = 0x3;

// ---- errors

hipError_t hipGetLastError();
hipError_t hipPeekAtLastError();
const char* hipGetErrorName(hipError_t error);
const char* hipGetErrorString(hipError_t error);

// ---- devices

hipError_t hipRuntimeGetVersion(int* version);
hipError_t hipDriverGetVersion(int* version);
hipError_t hipGetDeviceCount(int* count);
hipError_t hipSetDevice(int device);
hipError_t hipGetDevice(int* device);
hipError_t hipGetDeviceProperties(hipDeviceProp_t* properties, int device);
hipError_t hipDeviceGetAttribute(int* value, hipDeviceAttribute_t attribute, int device);
hipError_t hipDeviceGetPCIBusId(char* id, int length, int device);
hipError_t hipDeviceCanAccessPeer(int* can, int device, int peer);
hipError_t hipDeviceEnablePeerAccess(int peer, unsigned flags);
hipError_t hipDeviceDisablePeerAccess(int peer);
hipError_t hipDeviceSynchronize();

// ---- memory. hipFree waits until the owning device is idle, as it may on a real GPU.

hipError_t hipMalloc(void** pointer, size_t bytes);
hipError_t hipExtMallocWithFlags(void** pointer, size_t bytes, unsigned flags);
hipError_t hipFree(void* pointer);
hipError_t hipHostMalloc(void** pointer, size_t bytes, unsigned flags = hipHostMallocDefault);
hipError_t hipHostFree(void* pointer);
hipError_t hipHostGetDevicePointer(void** device_pointer, void* host_pointer, unsigned flags);
hipError_t hipMemGetInfo(size_t* free_bytes, size_t* total_bytes);
hipError_t hipPointerGetAttributes(hipPointerAttribute_t* attributes, const void* pointer);
hipError_t hipMemset(void* pointer, int value, size_t bytes);
hipError_t hipMemsetAsync(void* pointer, int value, size_t bytes, hipStream_t stream = nullptr);
hipError_t hipMemcpy(void* to, const void* from, size_t bytes, hipMemcpyKind kind);
hipError_t hipMemcpyAsync(void* to, const void* from, size_t bytes, hipMemcpyKind kind,
                          hipStream_t stream = nullptr);
hipError_t hipMemcpyPeer(void* to, int to_device, const void* from, int from_device, size_t bytes);
// NOLINTNEXTLINE(readability-function-size): HIP's parameters
hipError_t hipMemcpyPeerAsync(void* to, int to_device, const void* from, int from_device,
                              size_t bytes, hipStream_t stream = nullptr);

template <typename T>
hipError_t hipMalloc(T** pointer, size_t bytes) {
  return hipMalloc(reinterpret_cast<void**>(pointer), bytes);
}
template <typename T>
hipError_t hipExtMallocWithFlags(T** pointer, size_t bytes, unsigned flags) {
  return hipExtMallocWithFlags(reinterpret_cast<void**>(pointer), bytes, flags);
}
template <typename T>
hipError_t hipHostMalloc(T** pointer, size_t bytes, unsigned flags = hipHostMallocDefault) {
  return hipHostMalloc(reinterpret_cast<void**>(pointer), bytes, flags);
}

// ---- streams and events

hipError_t hipStreamCreate(hipStream_t* stream);
hipError_t hipStreamCreateWithFlags(hipStream_t* stream, unsigned flags);
hipError_t hipStreamDestroy(hipStream_t stream);
hipError_t hipStreamSynchronize(hipStream_t stream);
hipError_t hipStreamQuery(hipStream_t stream);
hipError_t hipStreamWaitEvent(hipStream_t stream, hipEvent_t event, unsigned flags = 0);
hipError_t hipLaunchHostFunc(hipStream_t stream, hipHostFn_t function, void* argument);

hipError_t hipEventCreate(hipEvent_t* event);
hipError_t hipEventCreateWithFlags(hipEvent_t* event, unsigned flags);
hipError_t hipEventDestroy(hipEvent_t event);
hipError_t hipEventRecord(hipEvent_t event, hipStream_t stream = nullptr);
hipError_t hipEventQuery(hipEvent_t event);
hipError_t hipEventSynchronize(hipEvent_t event);
hipError_t hipEventElapsedTime(float* milliseconds, hipEvent_t start, hipEvent_t stop);

// ---- capture and graphs. A graph can be launched only on streams of its device.

hipError_t hipStreamBeginCapture(hipStream_t stream, hipStreamCaptureMode mode);
hipError_t hipStreamEndCapture(hipStream_t stream, hipGraph_t* graph);
hipError_t hipStreamIsCapturing(hipStream_t stream, hipStreamCaptureStatus* status);
hipError_t hipGraphInstantiate(hipGraphExec_t* executable, hipGraph_t graph, hipGraph_t* error_node,
                               char* log, size_t log_bytes);
hipError_t hipGraphUpload(hipGraphExec_t executable, hipStream_t stream);
hipError_t hipGraphLaunch(hipGraphExec_t executable, hipStream_t stream);
hipError_t hipGraphDestroy(hipGraph_t graph);
hipError_t hipGraphExecDestroy(hipGraphExec_t executable);

// ---- functions. The templates in hip_runtime.h launch kernels.

hipError_t hipFuncGetAttributes(hipFuncAttributes* attributes, const void* function);
hipError_t hipFuncSetAttribute(const void* function, hipFuncAttribute attribute, int value);
hipError_t hipOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, const void* function,
                                                        int threads, size_t shared_bytes);

template <typename Result, typename... Parameters>
hipError_t hipFuncGetAttributes(hipFuncAttributes* attributes, Result (*function)(Parameters...)) {
  return hipFuncGetAttributes(attributes, reinterpret_cast<const void*>(function));
}
template <typename Result, typename... Parameters>
hipError_t hipFuncSetAttribute(Result (*function)(Parameters...), hipFuncAttribute attribute,
                               int value) {
  return hipFuncSetAttribute(reinterpret_cast<const void*>(function), attribute, value);
}
template <typename Result, typename... Parameters>
hipError_t hipOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks,
                                                        Result (*function)(Parameters...),
                                                        int threads, size_t shared_bytes) {
  return hipOccupancyMaxActiveBlocksPerMultiprocessor(
      blocks, reinterpret_cast<const void*>(function), threads, shared_bytes);
}

#endif  // OCTET_RUNTIME_PLATFORM_EMULATION_HIP_HIP_RUNTIME_API_H_
