// A kernel that reads LoadCounters beside calls that count. Shared by host and device.
#ifndef OCTET_KERNELS_EP_BASE_LOAD_READING_H_
#define OCTET_KERNELS_EP_BASE_LOAD_READING_H_

#include <hip/hip_runtime.h>

#include <cstdint>

#include "kernels/ep/device/load_counters.h"

namespace octet {

struct ReadLoadsParams {
  LoadCounters counters;
  uint64_t* read;  // host memory: totals [N], windows [N]
};

// Load the kernel on the current device, and enqueue it. Each number is one that its counter has
// had since the kernel began, whatever calls run on other streams.
// Its blocks are small, since they wait for room beside the blocks of calls.
hipError_t LoadReadLoads();
hipError_t LaunchReadLoads(const ReadLoadsParams& params, hipStream_t stream);

}  // namespace octet

#endif  // OCTET_KERNELS_EP_BASE_LOAD_READING_H_
