#include "runtime/gpu_status.h"

#include <hip/hip_runtime.h>

#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace octet {
namespace {

absl::StatusCode CodeOf(hipError_t error) {
  switch (error) {
    case hipErrorNoDevice:
    case hipErrorInsufficientDriver:
      return absl::StatusCode::kUnavailable;
    case hipErrorOutOfMemory:
      return absl::StatusCode::kResourceExhausted;
    case hipErrorInvalidValue:
    case hipErrorInvalidDevice:
    case hipErrorCooperativeLaunchTooLarge:
      return absl::StatusCode::kInvalidArgument;
    case hipErrorNotReady:
      return absl::StatusCode::kFailedPrecondition;
    case hipErrorNotSupported:
      return absl::StatusCode::kUnimplemented;
    default:
      return absl::StatusCode::kInternal;
  }
}

}  // namespace

absl::Status GpuStatus(hipError_t error, absl::string_view call) {
  if (error == hipSuccess) return absl::OkStatus();
  const std::string what =
      absl::StrCat(call, ": ", hipGetErrorName(error), ": ", hipGetErrorString(error));
  int device = -1;
  const bool known = hipGetDevice(&device) == hipSuccess;
  (void)hipGetLastError();
  return absl::Status(CodeOf(error), known ? absl::StrCat(what, " (device ", device, ")") : what);
}

}  // namespace octet
