// Rows of a combine that leave while its kernel still runs: parameters, shared by host and device.
// row_departures_device.h says what the kernel does.
#ifndef OCTET_KERNELS_EP_DEVICE_ROW_DEPARTURES_H_
#define OCTET_KERNELS_EP_DEVICE_ROW_DEPARTURES_H_

#include <cstdint>

namespace octet {

// Rows of y leave in chunks, the last one first, so that the kernel makes the last rows first. The
// first rows stay.
struct RowDepartures {
  int num_chunks = 0;  // 0: no row leaves before the kernel ends
  // In memory of the rank's GPU, for graphs.
  const int32_t* begin = nullptr;  // [1] rows that stay
  const int32_t* ends = nullptr;   // [num_chunks] rows that stay and those of chunks 0 .. k
  uint64_t* stored = nullptr;      // [num_chunks] 16-byte vectors of the chunk that are complete
};

}  // namespace octet

#endif  // OCTET_KERNELS_EP_DEVICE_ROW_DEPARTURES_H_
