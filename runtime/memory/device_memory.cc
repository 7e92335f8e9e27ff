#include "runtime/memory/device_memory.h"

#include <hip/hip_runtime.h>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "runtime/gpu/gpu_status.h"

namespace octet {

absl::StatusOr<void*> DeviceMemoryKind::Allocate(size_t bytes) {
  void* data = nullptr;
  const hipError_t error = hipMalloc(&data, bytes);
  if (error != hipSuccess) return GpuStatus(error, absl::StrCat("hipMalloc of ", bytes, " bytes"));
  return data;
}

void DeviceMemoryKind::Free(void* data) { static_cast<void>(hipFree(data)); }

}  // namespace octet
