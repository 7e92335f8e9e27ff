// Another current device for a while.
#ifndef OCTET_RUNTIME_GPU_ON_DEVICE_H_
#define OCTET_RUNTIME_GPU_ON_DEVICE_H_

#include <hip/hip_runtime.h>

#include <memory>

#include "absl/memory/memory.h"
#include "absl/status/statusor.h"
#include "runtime/base/status_macros.h"
#include "runtime/gpu/gpu_status.h"

namespace octet {

// Makes a device current on this thread while it lives.
class OnDevice {
 public:
  static absl::StatusOr<std::unique_ptr<OnDevice>> Of(int device) {
    int before = 0;
    OCTET_RETURN_IF_GPU_ERROR(hipGetDevice(&before));
    OCTET_RETURN_IF_GPU_ERROR(hipSetDevice(device));
    return absl::WrapUnique(new OnDevice(before));
  }
  ~OnDevice() { (void)hipSetDevice(before_); }
  OnDevice(const OnDevice&) = delete;
  OnDevice& operator=(const OnDevice&) = delete;

 private:
  explicit OnDevice(int before) : before_(before) {}
  const int before_;
};

}  // namespace octet

#endif  // OCTET_RUNTIME_GPU_ON_DEVICE_H_
