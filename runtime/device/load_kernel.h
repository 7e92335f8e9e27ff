// Loading kernels before their first launch. The first launch of a kernel on a device would load
// it, which can wait until the device is idle, and so for kernels that wait for peers whose own
// launch is still to come: a deadlock. Whoever launches kernels that wait for peers, or between
// such kernels, loads them when it is created, on each rank.
#ifndef OCTET_RUNTIME_DEVICE_LOAD_KERNEL_H_
#define OCTET_RUNTIME_DEVICE_LOAD_KERNEL_H_

#include <hip/hip_runtime.h>

namespace octet::device {

// Loads `kernel` on the current device.
template <typename... Parameters>
hipError_t LoadKernel(void (*kernel)(Parameters...)) {
  hipFuncAttributes attributes;
  return hipFuncGetAttributes(&attributes, reinterpret_cast<const void*>(kernel));
}

// Loads them all; the first error.
template <typename First, typename... Others>
hipError_t LoadKernels(First first, Others... others) {
  const hipError_t error = LoadKernel(first);
  if constexpr (sizeof...(others) == 0) {
    return error;
  } else {
    return error != hipSuccess ? error : LoadKernels(others...);
  }
}

}  // namespace octet::device

#endif  // OCTET_RUNTIME_DEVICE_LOAD_KERNEL_H_
