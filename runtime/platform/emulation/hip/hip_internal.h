// What the files that implement the HIP API share.
#ifndef OCTET_RUNTIME_PLATFORM_EMULATION_HIP_HIP_INTERNAL_H_
#define OCTET_RUNTIME_PLATFORM_EMULATION_HIP_HIP_INTERNAL_H_

#include <hip/hip_runtime_api.h>

#include "machine/machine.h"

namespace octet::emulation {

// What an API function returns: remembers an error for hipGetLastError.
hipError_t Return(hipError_t error);

// Counts the call; not hipSuccess if an error was injected for it (InjectError).
hipError_t EnterCall(const char* name);

// The first line of every function of the API that can fail; where one calls another, of the other
// only.
#define OCTET_API_CALL()                                                   \
  if (const hipError_t injected = ::octet::emulation::EnterCall(__func__); \
      injected != hipSuccess) {                                            \
    return ::octet::emulation::Return(injected);                           \
  }                                                                        \
  static_assert(true)

// The same for functions that wait for a stream, or can on a GPU: EnterWaitingCall.
#define OCTET_WAITING_CALL() \
  OCTET_API_CALL();          \
  ::octet::emulation::EnterWaitingCall(__func__)

// The same for functions that allocate or wait for all of a device. A capture forbids them, too.
#define OCTET_DEVICE_CALL()                                                  \
  OCTET_API_CALL();                                                          \
  if (const hipError_t refused = ::octet::emulation::RefuseWhileCapturing(); \
      refused != hipSuccess) {                                               \
    return ::octet::emulation::Return(refused);                              \
  }                                                                          \
  ::octet::emulation::EnterWaitingCall(__func__)

// Reports the call if the thread runs the body of a rank whose kernels may wait for others.
void EnterWaitingCall(const char* name);

// An error, and an invalid capture, if this thread captures a stream in any mode but the relaxed
// one, or any thread does in the global mode.
hipError_t RefuseWhileCapturing();

// The calling thread's.
Device& CurrentDevice();

// The device's null stream for nullptr; nullptr for a stream that does not exist.
Stream* ResolveStream(hipStream_t stream);

// What cannot be captured begins with it: an error, and an invalid capture, while the stream is
// captured.
hipError_t RefuseCapture(Stream* stream);

}  // namespace octet::emulation

#endif  // OCTET_RUNTIME_PLATFORM_EMULATION_HIP_HIP_INTERNAL_H_
