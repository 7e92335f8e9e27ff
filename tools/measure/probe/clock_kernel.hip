#include <hip/hip_runtime.h>

#include "cycle_counter.h"
#include "device_ops.h"
#include "tools/measure/probe/clock_kernel.h"

namespace octet {
namespace {

__global__ void SampleClocks(ClockSample* samples) {
  if (threadIdx.x != 0) return;
  const uint64_t ticks = device::Clock();
  const uint64_t cycles = device::CycleCount();
  samples[blockIdx.x] = {ticks, cycles, device::ComputeUnit()};
}

}  // namespace

uint64_t ClockSampleHz() { return device::HostClockHz(); }

hipError_t LaunchSampleClocks(ClockSample* samples, int blocks, hipStream_t stream) {
  constexpr unsigned kThreads = 64;
  void* args[] = {&samples};
  return hipLaunchKernel(SampleClocks, dim3(static_cast<unsigned>(blocks)), dim3(kThreads), args, 0,
                         stream);
}

}  // namespace octet
