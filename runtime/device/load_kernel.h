// Loads kernels before their first launch. Otherwise the first launch on a device loads the kernel,
// which can wait until the device is idle, and thus for kernels that wait for peers which have not
// launched theirs yet: a deadlock. Objects that launch kernels which wait for peers, or launch
// between such kernels, must load them at creation, on each rank.
#ifndef OCTET_RUNTIME_DEVICE_LOAD_KERNEL_H_
#define OCTET_RUNTIME_DEVICE_LOAD_KERNEL_H_

#include <hip/hip_runtime.h>

#include <cstddef>

namespace octet::device {

// Loads `kernel` on the current device.
template <typename... Parameters>
hipError_t LoadKernel(void (*kernel)(Parameters...)) {
  hipFuncAttributes attributes;
  return hipFuncGetAttributes(&attributes, reinterpret_cast<const void*>(kernel));
}

// Loads `kernel` on the current device, and lets its launches have as much dynamic shared memory as
// a block can have there; hipErrorInvalidValue if that is less than `bytes`. NVIDIA GPUs allow more
// than 48 KiB only where this has been set, for a kernel and a device and so for all objects that
// launch it: each would otherwise take from the others what it does not need itself. Nothing else
// may set it.
template <typename... Parameters>
hipError_t LoadKernelWithShared(void (*kernel)(Parameters...), size_t bytes) {
  hipFuncAttributes attributes;
  const auto* const function = reinterpret_cast<const void*>(kernel);
  hipError_t error = hipFuncGetAttributes(&attributes, function);
  if (error != hipSuccess) return error;
  int device = 0;
  error = hipGetDevice(&device);
  if (error != hipSuccess) return error;
  int of_block = 0;
  error = hipDeviceGetAttribute(&of_block, hipDeviceAttributeMaxSharedMemoryPerBlock, device);
  if (error != hipSuccess) return error;
  const int most = of_block - static_cast<int>(attributes.sharedSizeBytes);
  if (most < 0 || bytes > static_cast<size_t>(most)) return hipErrorInvalidValue;
  if (most <= attributes.maxDynamicSharedSizeBytes) return hipSuccess;
  return hipFuncSetAttribute(function, hipFuncAttributeMaxDynamicSharedMemorySize, most);
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
