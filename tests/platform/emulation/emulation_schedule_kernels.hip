#include <hip/hip_runtime.h>

#include "device_ops.h"
#include "tests/platform/emulation/emulation_kernels.h"

namespace octet {
namespace {

using device::Scope;

__global__ void Tickets(uint32_t* counter, uint32_t* order) {
  const uint32_t thread = blockIdx.x * blockDim.x + threadIdx.x;
  for (int round = 0; round < 4; ++round) {
    order[device::FetchAddRelaxed<Scope::kDevice>(counter, 1U)] = thread;
    if (round % 2 == 0) device::SyncWave();
  }
}

__device__ void WaitAtLeast(const uint32_t* flag, uint32_t value) {
  while (device::LoadRelaxed<Scope::kSystem>(flag) < value) device::Pause();
  device::FenceAcquire<Scope::kSystem>();
}

__global__ void Producer(PassParams p) {
  if (threadIdx.x != 0) return;
  for (uint32_t round = 1; round <= static_cast<uint32_t>(p.rounds); ++round) {
    if (p.wait_for_consumer) WaitAtLeast(p.consumed, round - 1);
    device::StoreRelaxed<Scope::kSystem>(p.slot, round * 3);
    device::StoreRelease<Scope::kSystem>(p.produced, round);
  }
}

__global__ void Consumer(PassParams p) {
  if (threadIdx.x != 0) return;
  for (uint32_t round = 1; round <= static_cast<uint32_t>(p.rounds); ++round) {
    WaitAtLeast(p.produced, round);
    if (device::LoadRelaxed<Scope::kSystem>(p.slot) != round * 3) {
      device::FetchAddRelaxed<Scope::kDevice>(p.errors, 1U);
    }
    device::StoreRelease<Scope::kSystem>(p.consumed, round);
  }
}

}  // namespace

hipError_t LaunchTickets(uint32_t* counter, uint32_t* order, LaunchShape shape,
                         hipStream_t stream) {
  void* arguments[] = {&counter, &order};
  return hipLaunchKernel(Tickets, dim3(static_cast<unsigned>(shape.blocks)),
                         dim3(static_cast<unsigned>(shape.threads)), arguments, 0, stream);
}

hipError_t LaunchProducer(const PassParams& params, hipStream_t stream) {
  PassParams copy = params;
  void* arguments[] = {&copy};
  return hipLaunchKernel(Producer, dim3(1), dim3(32), arguments, 0, stream);
}

hipError_t LaunchConsumer(const PassParams& params, hipStream_t stream) {
  PassParams copy = params;
  void* arguments[] = {&copy};
  return hipLaunchKernel(Consumer, dim3(1), dim3(32), arguments, 0, stream);
}

}  // namespace octet
