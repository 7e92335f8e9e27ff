// Emulated compute units have no clock: nothing counts.
// runtime/platform/README.md states the contract.
#ifndef OCTET_RUNTIME_PLATFORM_EMULATION_CYCLE_COUNTER_H_
#define OCTET_RUNTIME_PLATFORM_EMULATION_CYCLE_COUNTER_H_

#include <hip/hip_runtime.h>

#include <cstdint>

namespace octet::device {

__device__ inline uint64_t CycleCount() { return 0; }

__device__ inline uint32_t ComputeUnit() { return 0; }

}  // namespace octet::device

#endif  // OCTET_RUNTIME_PLATFORM_EMULATION_CYCLE_COUNTER_H_
