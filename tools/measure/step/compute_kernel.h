// The kernel of tools/measure/step/compute_work.h.
#ifndef OCTET_TOOLS_MEASURE_STEP_COMPUTE_KERNEL_H_
#define OCTET_TOOLS_MEASURE_STEP_COMPUTE_KERNEL_H_

#include <hip/hip_runtime.h>

#include <cstdint>

#include "runtime/device/launch_shape.h"
#include "runtime/device/trace_event.h"

namespace octet {

// A thread's computation starts from its number among all threads.
inline constexpr uint32_t kComputeFactor = 1664525;
inline constexpr uint32_t kComputeSummand = 1013904223;

struct ComputeParams {
  uint32_t* out;  // one for each thread
  int rounds;
  device::TraceBuffer trace;  // without blocks, nothing is recorded
  uint32_t tag;
};

// Loads the kernel on the current device.
hipError_t LoadCompute();
hipError_t LaunchCompute(const ComputeParams& params, const LaunchShape& shape, hipStream_t stream);

}  // namespace octet

#endif  // OCTET_TOOLS_MEASURE_STEP_COMPUTE_KERNEL_H_
