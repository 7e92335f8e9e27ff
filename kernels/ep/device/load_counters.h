// Counters of the rows that come to a rank's experts, if the configuration asks for them. Shared by
// host and device.
#ifndef OCTET_KERNELS_EP_DEVICE_LOAD_COUNTERS_H_
#define OCTET_KERNELS_EP_DEVICE_LOAD_COUNTERS_H_

#include <cstdint>

namespace octet {

// The arrays are in the memory of the GPU. One block of each call writes them, and whoever reads
// them (load_reading.h) may do so meanwhile.
struct LoadCounters {
  uint64_t* totals;  // [N]; null: nothing is counted
  // [slots][N] The rows of the last calls, by epoch modulo slots: the epoch's low half above the
  // rows. 0: none yet.
  uint64_t* calls;
  // [N] The local expert whose rows a counter counts, or -1 if the rank has not that expert; null:
  // its own number.
  const int32_t* locals;
  int num_counters;  // N
  int window;        // calls, at least 1
  int slots;         // a power of two, more than `window`
};

}  // namespace octet

#endif  // OCTET_KERNELS_EP_DEVICE_LOAD_COUNTERS_H_
