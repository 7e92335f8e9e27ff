// A kernel that reads the clocks of compute units.
#ifndef OCTET_TOOLS_MEASURE_PROBE_CLOCK_KERNEL_H_
#define OCTET_TOOLS_MEASURE_PROBE_CLOCK_KERNEL_H_

#include <hip/hip_runtime.h>

#include <cstdint>

namespace octet {

// The readings of one block.
struct ClockSample {
  uint64_t ticks;   // device::Clock: ClockSampleHz() a second
  uint64_t cycles;  // device::CycleCount of the compute unit
  uint64_t unit;    // device::ComputeUnit; so wide that no bytes of a sample are left unwritten
};

uint64_t ClockSampleHz();

// Enqueues `blocks` blocks, each of which writes its element of `samples`.
hipError_t LaunchSampleClocks(ClockSample* samples, int blocks, hipStream_t stream);

}  // namespace octet

#endif  // OCTET_TOOLS_MEASURE_PROBE_CLOCK_KERNEL_H_
