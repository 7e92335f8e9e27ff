// An even walk over the items of several sources that takes them by turns: first the first item of
// each, then the second, and so on, as they arrive when the sources send side by side.
#ifndef OCTET_KERNELS_DEVICE_INTERLEAVED_WALK_H_
#define OCTET_KERNELS_DEVICE_INTERLEAVED_WALK_H_

#include <hip/hip_runtime.h>

#include <cstdint>

#include "octet/peers.h"

namespace octet::device {

// In shared memory; the same for all threads of a block.
struct InterleavedWalk {
  int32_t count[kMaxRanks];   // items of the sources, most first
  int32_t source[kMaxRanks];  // whose they are

  // Called by all threads, of which there are at least kMaxRanks; a barrier of the block must
  // follow. `counts`: by source. `sources`, a bit each: whose items there are; of others none.
  __device__ void Init(const int32_t* counts, int num_sources, uint32_t sources = ~0U) {
    const int mine = static_cast<int>(threadIdx.x);
    if (mine >= num_sources) return;
    const auto items_of = [&](int s) { return ((sources >> s) & 1) != 0 ? counts[s] : 0; };
    const int32_t items = items_of(mine);
    int place = 0;
    for (int other = 0; other < num_sources; ++other) {
      const int32_t others = items_of(other);
      place += others > items || (others == items && other < mine) ? 1 : 0;
    }
    count[place] = items;
    source[place] = mine;
  }

  __device__ int Total(int num_sources) const {
    int total = 0;
    for (int s = 0; s < num_sources; ++s) total += count[s];
    return total;
  }

  struct Item {
    int source;
    int index;  // among the source's
  };
  // Item i of Total(). `turn`: which source comes first among equals.
  __device__ Item At(int i, int num_sources, int turn) const {
    int low = 0;  // items that every remaining source has given
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

#endif  // OCTET_KERNELS_DEVICE_INTERLEAVED_WALK_H_
