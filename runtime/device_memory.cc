#include "runtime/device_memory.h"

#include <hip/hip_runtime.h>

#include <algorithm>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "runtime/gpu_status.h"

namespace octet {

absl::StatusOr<DeviceMemory> DeviceMemory::Allocate(size_t bytes) {
  DeviceMemory memory;
  const hipError_t error = hipMalloc(&memory.data_, std::max<size_t>(bytes, 1));
  if (error != hipSuccess) {
    memory.data_ = nullptr;
    return GpuStatus(error, absl::StrCat("hipMalloc of ", bytes, " bytes"));
  }
  memory.bytes_ = bytes;
  return memory;
}

DeviceMemory::~DeviceMemory() {
  if (data_ != nullptr) static_cast<void>(hipFree(data_));
}

}  // namespace octet
