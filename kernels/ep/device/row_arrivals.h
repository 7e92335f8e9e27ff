// Rows of a dispatch that arrive while its kernel already runs: parameters, shared by host and
// device. row_arrivals_device.h has the waits.
#ifndef OCTET_KERNELS_EP_DEVICE_ROW_ARRIVALS_H_
#define OCTET_KERNELS_EP_DEVICE_ROW_ARRIVALS_H_

#include <cstdint>

#include "runtime/device/failure_record.h"

namespace octet {

// Rows arrive in chunks, one after the other. The first has arrived before the kernel begins.
inline constexpr int kMaxRowChunks = 32;

struct RowArrivals {
  // The object that brings the rows reports the waits; `site` is in its numbering.
  device::FailurePort port = {};
  uint32_t site = 0;
  int num_chunks = 0;  // 0: all rows are there
  // In memory of the rank's GPU, for graphs.
  uint64_t* arrived = nullptr;  // [1] chunks that have arrived
  int32_t* ends = nullptr;      // [num_chunks] rows that are there with chunks 0 .. k
};

}  // namespace octet

#endif  // OCTET_KERNELS_EP_DEVICE_ROW_ARRIVALS_H_
