// An even walk over the items of several sources in turn: the first item of each source, then the
// second of each, and so on. Items arrive in this order when the sources send concurrently.
#ifndef OCTET_KERNELS_EP_DEVICE_INTERLEAVED_WALK_H_
#define OCTET_KERNELS_EP_DEVICE_INTERLEAVED_WALK_H_

#include <hip/hip_runtime.h>

#include <cstdint>

#include "octet/peers.h"

namespace octet::device {

// In shared memory; the same for all threads of a block.
struct InterleavedWalk {
  int32_t count[kMaxRanks];   // items of each source, in descending order
  int32_t source[kMaxRanks];  // the source of each count

  // Called by all threads of a block of at least kMaxRanks threads; a barrier of the block must
  // follow. `counts`: items by source. `sources`: the sources whose items are walked over, a bit
  // each.
  __device__ void Init(const int32_t* counts, int num_sources, uint32_t sources = ~0U) {
    const int mine = static_cast<int>(threadIdx.x);
    if (mine >= num_sources) return;
    const auto items_of = [&](int s) { return ((sources >> s) & 1) != 0 ? counts[s] : 0; };
    const int32_t items = items_of(mine);
    int position = 0;
    for (int other = 0; other < num_sources; ++other) {
      const int32_t others = items_of(other);
      position += others > items || (others == items && other < mine) ? 1 : 0;
    }
    count[position] = items;
    source[position] = mine;
  }

  __device__ int Total(int num_sources) const {
    int total = 0;
    for (int s = 0; s < num_sources; ++s) total += count[s];
    return total;
  }

  struct Item {
    int source;
    int index;  // among the source's items
  };
  // Returns item i of Total(). `turn`: the source that comes first among equals.
  __device__ Item At(int i, int num_sources, int turn) const {
    int low = 0;  // items that every remaining source has contributed
    for (int active = num_sources; active > 1; --active) {
      const int items = (count[active - 1] - low) * active;
      if (i < items) {
        const int row = i / active;
        return Item{source[(i - row * active + turn) % active], low + row};
      }
      i -= items;
      low = count[active - 1];
    }
    return Item{source[0], low + i};
  }
};

}  // namespace octet::device

#endif  // OCTET_KERNELS_EP_DEVICE_INTERLEAVED_WALK_H_
