// Loads kernels before their first launch. Otherwise the first launch on a device loads the kernel,
// which can wait until the device is idle, and thus for kernels that wait for peers which have not
// launched theirs yet: a deadlock. Objects that launch kernels which wait for peers, or launch
// between such kernels, must load them at creation, on each rank.
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

// Loads all kernels; returns the first error.
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
