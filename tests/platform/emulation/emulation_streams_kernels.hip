#include <hip/hip_runtime.h>

#include "device_ops.h"
#include "tests/platform/emulation/emulation_kernels.h"

namespace octet {
namespace {

using device::Scope;

__global__ void Increment(const uint32_t* in, uint32_t* out, int count) {
  const int step = static_cast<int>(gridDim.x * blockDim.x);
  for (int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x); i < count; i += step) {
    out[i] = in[i] + 1;
  }
}

__global__ void Handshake(uint32_t* mine, uint32_t* theirs, uint32_t value) {
  if (threadIdx.x == 0) {
    device::StoreRelease<Scope::kSystem>(theirs, value);
    while (device::LoadRelaxed<Scope::kSystem>(mine) < value) device::Pause();
    device::FenceAcquire<Scope::kSystem>();
  }
  __syncthreads();
}

__global__ void WaitFor(const uint32_t* flag, const uint32_t* other, uint32_t value) {
  while (device::LoadRelaxed<Scope::kSystem>(flag) < value) {
    if (other != nullptr && device::LoadRelaxed<Scope::kSystem>(other) == 12345) break;
    device::Pause();
  }
  device::FenceAcquire<Scope::kSystem>();
}

__global__ void StoreFlag(uint32_t* flag, uint32_t value) {
  if (threadIdx.x == 0) device::StoreRelease<Scope::kSystem>(flag, value);
}

// Each block but the last one waits for the next one.
__global__ void AwaitNextBlock(uint32_t* flags) {
  if (threadIdx.x != 0) return;
  const unsigned next = blockIdx.x + 1;
  while (next < gridDim.x && device::LoadRelaxed<Scope::kDevice>(flags + next) == 0) {
    device::Pause();
  }
  device::StoreRelaxed<Scope::kDevice>(flags + blockIdx.x, 1U);
}

__global__ void WaitWithDeadline(const uint32_t* flag, uint64_t ticks, int64_t* waited,
                                 int polls_per_clock) {
  const uint64_t start = device::Clock();
  int polls = 0;
  while (device::LoadRelaxed<Scope::kSystem>(flag) == 0) {
    if (++polls % polls_per_clock == 0 && device::Clock() - start > ticks) {
      *waited = static_cast<int64_t>(device::Clock() - start);
      return;
    }
    device::Pause();
  }
  *waited = -static_cast<int64_t>(device::Clock() - start);
}

}  // namespace

hipError_t LaunchIncrement(const uint32_t* in, uint32_t* out, int count, hipStream_t stream) {
  void* arguments[] = {&in, &out, &count};
  return hipLaunchKernel(Increment, dim3(2), dim3(64), arguments, 0, stream);
}

hipError_t LaunchAwaitNextBlock(uint32_t* flags, int blocks, int threads, hipStream_t stream) {
  void* arguments[] = {&flags};
  return hipLaunchKernel(AwaitNextBlock, dim3(static_cast<unsigned>(blocks)),
                         dim3(static_cast<unsigned>(threads)), arguments, 0, stream);
}

hipError_t LaunchHandshake(uint32_t* mine, uint32_t* theirs, uint32_t value, hipStream_t stream) {
  void* arguments[] = {&mine, &theirs, &value};
  return hipLaunchKernel(Handshake, dim3(1), dim3(64), arguments, 0, stream);
}

hipError_t LaunchWaitFor(const uint32_t* flag, const uint32_t* other, uint32_t value,
                         hipStream_t stream, LaunchShape shape) {
  void* arguments[] = {&flag, &other, &value};
  return hipLaunchKernel(WaitFor, dim3(static_cast<unsigned>(shape.blocks)),
                         dim3(static_cast<unsigned>(shape.threads)), arguments, 0, stream);
}

hipError_t LaunchStoreFlag(uint32_t* flag, uint32_t value, hipStream_t stream) {
  void* arguments[] = {&flag, &value};
  return hipLaunchKernel(StoreFlag, dim3(1), dim3(32), arguments, 0, stream);
}

hipError_t LaunchWaitWithDeadline(const uint32_t* flag, uint64_t ticks, int64_t* waited,
                                  int polls_per_clock, hipStream_t stream) {
  void* arguments[] = {&flag, &ticks, &waited, &polls_per_clock};
  return hipLaunchKernel(WaitWithDeadline, dim3(1), dim3(1), arguments, 0, stream);
}

}  // namespace octet
