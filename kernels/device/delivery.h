// How many rows a dispatch has delivered, as the caller's kernels behind it read it: none if some
// did not come.
//
// One receiving block writes the description (counts and offsets) as soon as it knows what will
// come. Any wave of any block may find later, or earlier, that it does not. Both exchange one word:
// whoever comes second empties the description, so that the numbers of a dispatch that has failed
// never stay, in whatever order its blocks run, and nobody waits.
#ifndef OCTET_KERNELS_DEVICE_DELIVERY_H_
#define OCTET_KERNELS_DEVICE_DELIVERY_H_

#include <cstdint>

#include "device_ops.h"

namespace octet::device {

// Called by a wave. `*word` as it was; what happened before it was stored is visible.
__device__ inline uint64_t ExchangeDelivery(uint64_t* word, uint64_t value) {
  uint64_t before = 0;
  if (Lane() == 0) {
    FenceRelease<Scope::kDevice>();
    before = ExchangeRelaxed<Scope::kDevice>(word, value);
    FenceAcquire<Scope::kDevice>();
  }
  SyncWave();
  return Shuffle(before, 0);
}

__device__ __forceinline__ uint64_t DescribedIn(uint64_t call) { return 2 * call; }
__device__ __forceinline__ uint64_t WithdrawnIn(uint64_t call) { return 2 * call + 1; }

// Called by a wave that has waited in vain for something that dispatch `call` was to deliver.
// `word`: one for all dispatches, 0 before the first. `describe(ok, first, step)` writes the
// elements first, first + step, ... of the description; zeros unless `ok`.
template <typename Describe>
__device__ inline void WithdrawDelivery(uint64_t* word, uint64_t call, Describe describe) {
  if (ExchangeDelivery(word, WithdrawnIn(call)) == DescribedIn(call)) {
    describe(false, Lane(), static_cast<int>(kWaveSize));
  }
}

// Called by all threads of each receiving block when it knows what will come, or (not `ok`) that it
// will not know. `describes`: true in one of the blocks.
template <typename Describe>
__device__ inline void DescribeDelivery(uint64_t* word, uint64_t call, bool describes, bool ok,
                                        Describe describe) {
  if (describes) {
    describe(ok, static_cast<int>(threadIdx.x), static_cast<int>(blockDim.x));
    SyncBlockStores();
    // The last wave is the one that has least to do otherwise.
    const int last = static_cast<int>(blockDim.x) / kWaveSize - 1;
    // A wave has withdrawn the call: the word must go on saying so. If it says so again by then,
    // another wave has found the description, and empties it.
    if (Wave() == last && ExchangeDelivery(word, DescribedIn(call)) == WithdrawnIn(call) &&
        ExchangeDelivery(word, WithdrawnIn(call)) == DescribedIn(call)) {
      describe(false, Lane(), static_cast<int>(kWaveSize));
    }
  } else if (!ok && Wave() == 0) {
    WithdrawDelivery(word, call, describe);
  }
}

}  // namespace octet::device

#endif  // OCTET_KERNELS_DEVICE_DELIVERY_H_
