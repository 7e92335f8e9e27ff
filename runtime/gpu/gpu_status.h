// Converts hipError_t to a Status that names the failed call and the device.
#ifndef OCTET_RUNTIME_GPU_GPU_STATUS_H_
#define OCTET_RUNTIME_GPU_GPU_STATUS_H_

#include <hip/hip_runtime.h>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "runtime/base/status_macros.h"

namespace octet {

// Returns OK for hipSuccess. Otherwise returns "<call>: <hipErrorName>: <hipErrorString> (device
// d)", without the arguments of a call that is not HIP's own, where d is the calling thread's
// current device; if out of memory, also how much of its memory is free. Clears the thread's last
// HIP error, so that no later, unrelated call returns it. Details that the platform knows
// (emulation: which lane of which kernel did what, or who waits for what) follow on lines of their
// own.
//   no GPU or no driver        kUnavailable
//   out of memory              kResourceExhausted
//   bad value, grid too large  kInvalidArgument
//   not ready, not supported   kFailedPrecondition, kUnimplemented
//   anything else              kInternal
absl::Status GpuStatus(hipError_t error, absl::string_view call);

}  // namespace octet

// The Status of one HIP call, with the text of the call: OCTET_GPU(hipSetDevice(3)).
#define OCTET_GPU(call) (::octet::GpuStatus((call), #call))
// Does not use OCTET_GPU: where HIP's names are macros, they would be expanded before OCTET_GPU
// turns the call into text.
#define OCTET_RETURN_IF_GPU_ERROR(call) OCTET_RETURN_IF_ERROR(::octet::GpuStatus((call), #call))

#endif  // OCTET_RUNTIME_GPU_GPU_STATUS_H_
