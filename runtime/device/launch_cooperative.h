// Launches kernels whose blocks wait for each other, and tells how many of their blocks a GPU
// holds.
#ifndef OCTET_RUNTIME_DEVICE_LAUNCH_COOPERATIVE_H_
#define OCTET_RUNTIME_DEVICE_LAUNCH_COOPERATIVE_H_

#include <hip/hip_runtime.h>

#include "runtime/device/launch_shape.h"

namespace octet::device {

// Enqueues `kernel` on `stream` as a cooperative launch: either all blocks become resident at once
// or the call fails.
template <typename Params>
hipError_t LaunchCooperative(void (*kernel)(Params), Params params, const LaunchShape& shape,
                             hipStream_t stream) {
  void* args[] = {&params};
  return hipLaunchCooperativeKernel(kernel, dim3(static_cast<unsigned>(shape.blocks)),
                                    dim3(static_cast<unsigned>(shape.threads)), args,
                                    static_cast<unsigned>(shape.shared_bytes), stream);
}

// Sets `*blocks` to the number of blocks of `kernel` that one compute unit of the current device
// can hold. Ignores shape.blocks.
template <typename Params>
hipError_t BlocksPerUnit(void (*kernel)(Params), const LaunchShape& shape, int* blocks) {
  return hipOccupancyMaxActiveBlocksPerMultiprocessor(blocks, kernel, shape.threads,
                                                      shape.shared_bytes);
}

}  // namespace octet::device

#endif  // OCTET_RUNTIME_DEVICE_LAUNCH_COOPERATIVE_H_
