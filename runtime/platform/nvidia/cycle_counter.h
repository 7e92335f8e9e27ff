// The clock of a compute unit, by %clock64 and %smid.
// runtime/platform/README.md states the contract.
#ifndef OCTET_RUNTIME_PLATFORM_NVIDIA_CYCLE_COUNTER_H_
#define OCTET_RUNTIME_PLATFORM_NVIDIA_CYCLE_COUNTER_H_

#include <hip/hip_runtime.h>

#include <cstdint>

namespace octet::device {

__device__ __forceinline__ uint64_t CycleCount() {
  uint64_t cycles;
  asm volatile("mov.u64 %0, %%clock64;" : "=l"(cycles)::"memory");
  return cycles;
}

__device__ __forceinline__ uint32_t ComputeUnit() {
  uint32_t unit;
  asm volatile("mov.u32 %0, %%smid;" : "=r"(unit));
  return unit;
}

}  // namespace octet::device

#endif  // OCTET_RUNTIME_PLATFORM_NVIDIA_CYCLE_COUNTER_H_
