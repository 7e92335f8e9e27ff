#include <hip/hip_runtime.h>

#include "tests/platform/emulation/emulation_kernels.h"

namespace octet {
namespace {

// Without any function of device_ops.h. The store that ends it is the host's, with which nothing
// orders these loads.
__attribute__((no_sanitize("thread"))) __global__ void EndlessKernel(
    const volatile uint32_t* word) {
  while (*word == 0) {
  }
}

}  // namespace

hipError_t LaunchEndless(uint32_t* word, hipStream_t stream) {
  const volatile uint32_t* read = word;
  void* arguments[] = {&read};
  return hipLaunchKernel(EndlessKernel, dim3(1), dim3(1), arguments, 0, stream);
}

}  // namespace octet
