// A kernel that counts the rows of one call (kernels/ep/device/load_counters_device.h).
#ifndef OCTET_TESTS_KERNELS_LOADS_LOAD_COUNTERS_KERNELS_H_
#define OCTET_TESTS_KERNELS_LOADS_LOAD_COUNTERS_KERNELS_H_

#include <hip/hip_runtime.h>

#include <cstdint>

#include "kernels/ep/device/load_counters.h"

namespace octet {

struct CountCallParams {
  LoadCounters counters;
  uint64_t epoch;
  const int32_t* rows;  // of local experts
};
// One block.
hipError_t LaunchCountCall(const CountCallParams& params, hipStream_t stream);

}  // namespace octet

#endif  // OCTET_TESTS_KERNELS_LOADS_LOAD_COUNTERS_KERNELS_H_
