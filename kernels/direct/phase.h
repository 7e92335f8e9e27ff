// What the phases of `direct` have in common: credits and the names of waits.
//
// A credit is given when the next kernel of the stream starts: then all kernels before it, and so
// all readers of the buffers, are done, and no block has to find out whether it was the last.
#ifndef OCTET_KERNELS_DIRECT_PHASE_H_
#define OCTET_KERNELS_DIRECT_PHASE_H_

#include "device_ops.h"
#include "kernels/direct/kernels.h"
#include "runtime/device/wait.h"

namespace octet::direct {

__device__ __forceinline__ device::Site MakeSite(Site site, int peer, uint32_t index) {
  return device::Site{static_cast<uint32_t>(site), peer, index};
}

// One block tells every peer that this rank has consumed all that it was sent in dispatches and
// combines up to these.
__device__ inline void ReturnCredits(const CommonParams& c, uint64_t dispatches,
                                     uint64_t combines) {
  const int peer = static_cast<int>(threadIdx.x);
  if (peer >= c.layout.num_ranks) return;
  char* base = c.peers.base[peer];
  device::StoreRelease<device::Scope::kSystem>(Layout::FlagOf(base, c.layout.credits, c.peers.rank),
                                               dispatches);
  device::StoreRelease<device::Scope::kSystem>(
      Layout::FlagOf(base, c.layout.combine_credits, c.peers.rank), combines);
}

// The last wave of a block waits until every peer has consumed what it was sent in the call before
// `epoch`, so that the buffers may be written again. `credits`: offset of this rank's [R] credits.
// Whether all came is known to the block in `*granted` (shared memory) after its next barrier.
__device__ inline void AwaitCredits(const CommonParams& c, size_t credits, uint64_t epoch,
                                    Site site, int32_t* granted) {
  if (threadIdx.x < blockDim.x - static_cast<unsigned>(device::kWaveSize)) return;
  const int peer = device::Lane();
  const bool missing =
      peer < c.layout.num_ranks &&
      !device::WaitEpoch(c.failure, Layout::FlagOf(c.peers.base[c.peers.rank], credits, peer),
                         epoch - 1, MakeSite(site, peer, 0));
  const bool all = device::Ballot(missing) == 0;
  if (peer == 0) *granted = all ? 1 : 0;
}

}  // namespace octet::direct

#endif  // OCTET_KERNELS_DIRECT_PHASE_H_
