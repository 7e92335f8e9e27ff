// The number of rows that a dispatch has delivered, as the caller's later kernels read it: 0 if
// some rows did not arrive.
//
// One receiving block writes the description (counts and offsets) as soon as it knows what will
// arrive. Any wave of any block may find, before or after that, that a row did not arrive. Both
// exchange one word, and the second of them empties the description. So the numbers of a failed
// dispatch never remain, in whatever order its blocks run, and no block waits for another.
#ifndef OCTET_KERNELS_EP_DEVICE_DELIVERY_H_
#define OCTET_KERNELS_EP_DEVICE_DELIVERY_H_

#include <cstdint>

#include "device_ops.h"

namespace octet::device {

// Exchanges `*word` and returns the old value. Called by a wave. Stores made before the old value
// was stored are visible afterwards.
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

// Withdraws the delivery of dispatch `call`. Called by a wave whose wait for the dispatch's data
// has failed. `word`: one for all dispatches, 0 before the first. `describe(ok, first, step)`
// writes the elements first, first + step, ... of the description; zeros unless `ok`.
template <typename Describe>
__device__ inline void WithdrawDelivery(uint64_t* word, uint64_t call, Describe describe) {
  if (ExchangeDelivery(word, WithdrawnIn(call)) == DescribedIn(call)) {
    describe(false, Lane(), static_cast<int>(kWaveSize));
  }
}

// Describes the delivery of dispatch `call`. Called by all threads of each receiving block when the
// block knows what will arrive or, with `ok` false, that it will not learn it. `describes`: true in
// exactly one block.
template <typename Describe>
__device__ inline void DescribeDelivery(uint64_t* word, uint64_t call, bool describes, bool ok,
                                        Describe describe) {
  if (describes) {
    describe(ok, static_cast<int>(threadIdx.x), static_cast<int>(blockDim.x));
    SyncBlockStores();
    // The last wave has the least other work.
    const int last = static_cast<int>(blockDim.x) / kWaveSize - 1;
    // If a wave has withdrawn the call, the word must say so again. If it already says so by then,
    // another wave has seen the description and empties it.
    if (Wave() == last && ExchangeDelivery(word, DescribedIn(call)) == WithdrawnIn(call) &&
        ExchangeDelivery(word, WithdrawnIn(call)) == DescribedIn(call)) {
      describe(false, Lane(), static_cast<int>(kWaveSize));
    }
  } else if (!ok && Wave() == 0) {
    WithdrawDelivery(word, call, describe);
  }
}

}  // namespace octet::device

#endif  // OCTET_KERNELS_EP_DEVICE_DELIVERY_H_
