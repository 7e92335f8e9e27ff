// Declarations shared by the files that implement the HIP API.
#ifndef OCTET_RUNTIME_PLATFORM_EMULATION_HIP_HIP_INTERNAL_H_
#define OCTET_RUNTIME_PLATFORM_EMULATION_HIP_HIP_INTERNAL_H_

#include <hip/hip_runtime_api.h>

#include <memory>

#include "machine/machine.h"

namespace octet::emulation {

// The return value of an API function: remembers an error for hipGetLastError.
hipError_t Return(hipError_t error);

// Counts the call. Returns an error if one was injected for it (InjectError), or if the machine has
// no threads.
hipError_t EnterCall(const char* name);

// The first line of every API function that can fail. If one API function calls another, only the
// called one has it.
#define OCTET_API_CALL()                                                   \
  if (const hipError_t injected = ::octet::emulation::EnterCall(__func__); \
      injected != hipSuccess) {                                            \
    return ::octet::emulation::Return(injected);                           \
  }                                                                        \
  static_assert(true)

// Likewise for functions that wait for a stream, or can on a GPU: EnterWaitingCall.
#define OCTET_WAITING_CALL() \
  OCTET_API_CALL();          \
  ::octet::emulation::EnterWaitingCall(__func__)

// Likewise for functions that allocate or wait for a whole device. A capture forbids them, too.
#define OCTET_DEVICE_CALL()                                                  \
  OCTET_API_CALL();                                                          \
  if (const hipError_t refused = ::octet::emulation::RefuseWhileCapturing(); \
      refused != hipSuccess) {                                               \
    return ::octet::emulation::Return(refused);                              \
  }                                                                          \
  ::octet::emulation::EnterWaitingCall(__func__)

// Reports the call if the thread runs the body of a rank whose kernels may wait for other ranks.
void EnterWaitingCall(const char* name);

// Returns an error and invalidates the capture if this thread captures a stream in any mode except
// relaxed, or any thread captures one in global mode.
hipError_t RefuseWhileCapturing();

// The calling thread's current device.
Device& CurrentDevice();

// Returns the device's null stream for nullptr, and nullptr for a stream that does not exist.
Stream* ResolveStream(hipStream_t stream);

// Starts functions that cannot be captured: returns an error and invalidates the capture while the
// stream is captured.
hipError_t RefuseCapture(Stream* stream);

// Enqueues the recording of an event, or captures it. `recording` must be new.
void Record(Stream* stream, const std::shared_ptr<Completion>& recording);

// Enqueues a wait for the recording, or captures it.
hipError_t WaitFor(Stream* stream, std::shared_ptr<Completion> recording);

// The stream is about to be destroyed: invalidates its capture, if any. With the device's mutex.
void LeaveCapture(Stream* stream);

// Deletes the stream once everything enqueued on it is done.
void Close(Stream* stream);

}  // namespace octet::emulation

#endif  // OCTET_RUNTIME_PLATFORM_EMULATION_HIP_HIP_INTERNAL_H_
