// Kernels that try the device primitives one by one.
#ifndef OCTET_TESTS_RUNTIME_PRIMITIVES_KERNELS_H_
#define OCTET_TESTS_RUNTIME_PRIMITIVES_KERNELS_H_

#include <hip/hip_runtime.h>

#include <cstdint>

#include "runtime/device/call_epoch.h"
#include "runtime/device/failure_record.h"
#include "runtime/device/launch_shape.h"

namespace octet {

// Each block writes the epoch that it got: epochs[block]. Of the port only `claimed` is looked at.
hipError_t LaunchBeginCall(const device::FailurePort& port, device::CallEpoch* call,
                           uint64_t* epochs, const LaunchShape& shape, hipStream_t stream);
hipError_t LaunchBegunCall(const device::FailurePort& port, device::CallEpoch* call,
                           uint64_t* epochs, const LaunchShape& shape, hipStream_t stream);

// Each block adds its number + 1 to *sum, then the last block, and only it, writes to seen[block]
// what it then sees.
hipError_t LaunchLastBlock(uint32_t* counter, uint32_t* sum, uint32_t* seen,
                           const LaunchShape& shape, hipStream_t stream);

// Call `call` of two blocks: the first describes a delivery of 1, 2, ... in `description`, the
// second finds that it does not come. `late`: the block (0, 1) that does its part when the other
// has begun, -1: the second does nothing.
struct DeliveryParams {
  uint64_t* word;
  uint64_t call;
  int32_t* description;
  int size;
  int late;
};
hipError_t LaunchDelivery(const DeliveryParams& params, int threads, hipStream_t stream);

// values[0 .. n-1] scanned in place by one wave; *total.
hipError_t LaunchScan(int32_t* values, int n, int32_t* total, int wave_size, hipStream_t stream);

// hits[i] is how often vector i of a row of `row_vecs` belongs to one of its `parts` parts.
hipError_t LaunchParts(int parts, int row_vecs, uint32_t* hits, int wave_size, hipStream_t stream);

// One wave waits for two flags at once; another block sets the first of them to 1 after `ticks`,
// and nobody sets the second.
hipError_t LaunchWaitForTwo(const device::FailurePort& port, uint64_t* flags, uint64_t ticks,
                            int wave_size, hipStream_t stream);

}  // namespace octet

#endif  // OCTET_TESTS_RUNTIME_PRIMITIVES_KERNELS_H_
