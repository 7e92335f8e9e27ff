// hipError_t as a Status that says which call failed where.
#ifndef OCTET_RUNTIME_GPU_STATUS_H_
#define OCTET_RUNTIME_GPU_STATUS_H_

#include <hip/hip_runtime.h>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "runtime/status_macros.h"

namespace octet {

// OK for hipSuccess. Otherwise "<call>: <hipErrorName>: <hipErrorString> (device d)", where d is
// the calling thread's current device (out of memory: and how much of its memory is free), and the
// thread's last HIP error is cleared, so that it does not come back from an innocent later call.
// What the platform knows beyond that (emulation: which lane of which kernel did what, or who waits
// for what) follows on lines of its own.
//   no GPU or no driver        kUnavailable
//   out of memory              kResourceExhausted
//   bad value, grid too large  kInvalidArgument
//   not ready, not supported   kFailedPrecondition, kUnimplemented
//   anything else              kInternal
absl::Status GpuStatus(hipError_t error, absl::string_view call);

}  // namespace octet

// The Status of one HIP call, with the call's own text in it: OCTET_GPU(hipSetDevice(3)).
#define OCTET_GPU(call) (::octet::GpuStatus((call), #call))
// Not by way of OCTET_GPU: where HIP's names are macros, they would be replaced before it sees
// them.
#define OCTET_RETURN_IF_GPU_ERROR(call) OCTET_RETURN_IF_ERROR(::octet::GpuStatus((call), #call))

#endif  // OCTET_RUNTIME_GPU_STATUS_H_
