// What the files that implement the HIP API share.
#ifndef OCTET_RUNTIME_PLATFORM_EMULATION_HIP_INTERNAL_H_
#define OCTET_RUNTIME_PLATFORM_EMULATION_HIP_INTERNAL_H_

#include <hip/hip_runtime_api.h>

#include "machine.h"

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

// The calling thread's.
Device& CurrentDevice();

// The device's null stream for nullptr; nullptr for a stream that does not exist.
Stream* ResolveStream(hipStream_t stream);

// What cannot be captured begins with it: an error, and an invalid capture, while the stream is
// captured.
hipError_t RefuseCapture(Stream* stream);

}  // namespace octet::emulation

#endif  // OCTET_RUNTIME_PLATFORM_EMULATION_HIP_INTERNAL_H_
