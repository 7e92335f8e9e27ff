#include "tests/support/fake_nccl/fake_nccl_kernels.h"

#include <hip/hip_runtime.h>

#include <cstdint>

#include "device_ops.h"

namespace octet {

__global__ void WaitForWord(const uint32_t* word) {
  for (uint32_t polls = 1; device::LoadAcquire<device::Scope::kSystem>(word) == 0; ++polls) {
    device::Pause(polls);
  }
}

hipError_t LaunchWaitForWord(const uint32_t* word, hipStream_t stream) {
  void* args[] = {&word};
  return hipLaunchKernel(WaitForWord, dim3(1), dim3(1), args, 0, stream);
}

}  // namespace octet
