// Whole vectors to a GPU and back, with a wait.
#ifndef OCTET_TESTS_SUPPORT_HOST_COPY_H_
#define OCTET_TESTS_SUPPORT_HOST_COPY_H_

#include <hip/hip_runtime.h>

#include <cstddef>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "runtime/base/status_macros.h"
#include "runtime/gpu/gpu_status.h"
#include "runtime/memory/device_memory.h"

namespace octet {

template <typename T>
absl::StatusOr<std::vector<T>> ToHost(const void* device, size_t count) {
  std::vector<T> host(count);
  OCTET_RETURN_IF_GPU_ERROR(
      hipMemcpy(host.data(), device, count * sizeof(T), hipMemcpyDeviceToHost));
  return host;
}

template <typename T>
absl::Status ToDevice(const DeviceMemory& memory, const std::vector<T>& host) {
  if (host.empty()) return absl::OkStatus();
  return OCTET_GPU(
      hipMemcpy(memory.as<void>(), host.data(), host.size() * sizeof(T), hipMemcpyHostToDevice));
}

}  // namespace octet

#endif  // OCTET_TESTS_SUPPORT_HOST_COPY_H_
