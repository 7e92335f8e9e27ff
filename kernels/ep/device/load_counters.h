// Counters of the rows that come to a rank's experts, if the configuration asks for them. Shared by
// host and device.
#ifndef OCTET_KERNELS_EP_DEVICE_LOAD_COUNTERS_H_
#define OCTET_KERNELS_EP_DEVICE_LOAD_COUNTERS_H_

#include <cstdint>

namespace octet {

// The arrays are in the memory of the GPU, where one block of a call reads and writes them.
struct LoadCounters {
  struct alignas(16) Window {
    uint64_t rows;        // of the last calls, up to and including last_epoch
    uint64_t last_epoch;  // of the last call that counted; 0: none
  };

  uint64_t* totals;  // [L]; null: nothing is counted
  Window* windows;   // [L]
  // The rows of the last calls, by epoch modulo slots.
  uint32_t* calls;  // [slots][L]
  // Pinned host memory, which the host may read at any time: totals [L], windows [L].
  uint64_t* published;
  int num_experts;  // L
  int window;       // calls, at least 1
  int slots;        // a power of two, at least `window`
};

}  // namespace octet

#endif  // OCTET_KERNELS_EP_DEVICE_LOAD_COUNTERS_H_
