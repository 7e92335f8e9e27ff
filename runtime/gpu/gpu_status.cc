#include "runtime/gpu/gpu_status.h"

#include <hip/hip_runtime.h>

#include <algorithm>
#include <cstddef>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/match.h"
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

// The free memory of the current device, if `error` says that memory ran out.
std::string FreeMemoryText(hipError_t error) {
  size_t free = 0;
  size_t all = 0;
  if (error != hipErrorOutOfMemory || hipMemGetInfo(&free, &all) != hipSuccess) return "";
  return absl::StrCat(": ", free, " of ", all, " bytes are free");
}

// Returns a call as users know it: HIP's with their arguments, Octet's own launchers without.
absl::string_view NameOf(absl::string_view call) {
  return absl::StartsWith(call, "hip") ? call : call.substr(0, call.find('('));
}

// Returns what the user can do about an error, if its name does not say it; or nothing.
absl::string_view HintOf(hipError_t error) {
  if (error != hipErrorIllegalAddress) return "";
  return "; a kernel has used memory that it may not: are all arguments as large as their call "
         "needs? compute-sanitizer or emulated GPUs name the access";
}

}  // namespace

absl::Status GpuStatus(hipError_t error, absl::string_view call) {
  if (error == hipSuccess) return absl::OkStatus();
  // The sentence; on some platforms further lines follow.
  const std::string text = hipGetErrorString(error);
  const size_t end = std::min(text.find('\n'), text.size());
  std::string what = absl::StrCat(NameOf(call), ": ", hipGetErrorName(error), ": ",
                                  absl::string_view(text).substr(0, end));
  int device = -1;
  if (hipGetDevice(&device) == hipSuccess) {
    absl::StrAppend(&what, " (device ", device, FreeMemoryText(error), ")");
  }
  absl::StrAppend(&what, HintOf(error));
  (void)hipGetLastError();
  return absl::Status(CodeOf(error), absl::StrCat(what, absl::string_view(text).substr(end)));
}

}  // namespace octet
