// Counters of the rows that come to a rank's experts, if the configuration asks for them. Shared by
// host and device.
#ifndef OCTET_KERNELS_EP_DEVICE_LOAD_COUNTERS_H_
#define OCTET_KERNELS_EP_DEVICE_LOAD_COUNTERS_H_

#include <cstdint>

namespace octet {

struct LoadCounters {
  // The columns of an expert's counters in the memory of the GPU, which one block of a call reads
  // and writes. From kCalls on, the rows of the last calls, a ring of `slots`.
  enum Column { kTotal, kWindow, kLastEpoch, kLastSlot, kCalls };

  uint64_t* columns;  // [kCalls + slots][L]
  // Pinned host memory, which the host may read at any time: totals [L], windows [L].
  uint64_t* published;
  int num_experts;  // L
  int slots;
};

}  // namespace octet

#endif  // OCTET_KERNELS_EP_DEVICE_LOAD_COUNTERS_H_
