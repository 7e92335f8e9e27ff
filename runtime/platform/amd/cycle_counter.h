// The clock of a compute unit, by s_memtime and the hardware registers that place a wave.
// runtime/platform/README.md states the contract.
#ifndef OCTET_RUNTIME_PLATFORM_AMD_CYCLE_COUNTER_H_
#define OCTET_RUNTIME_PLATFORM_AMD_CYCLE_COUNTER_H_

#include <hip/hip_runtime.h>

#include <cstdint>

namespace octet::device {

__device__ __forceinline__ uint64_t CycleCount() { return __builtin_readcyclecounter(); }

__device__ __forceinline__ uint32_t ComputeUnit() { return __smid(); }

}  // namespace octet::device

#endif  // OCTET_RUNTIME_PLATFORM_AMD_CYCLE_COUNTER_H_
