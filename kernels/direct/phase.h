// What the phases of `direct` have in common: credits and the names of waits.
#ifndef OCTET_KERNELS_DIRECT_PHASE_H_
#define OCTET_KERNELS_DIRECT_PHASE_H_

#include "device_ops.h"
#include "kernels/direct/kernels.h"
#include "runtime/device/wait.h"

namespace octet::direct {

__device__ __forceinline__ device::Site MakeSite(Site site, int peer, uint32_t index) {
  return device::Site{static_cast<uint32_t>(site), peer, index};
}

// A block waits until every peer has consumed what it was sent in the call before `epoch`, so that
// the buffers may be written again. `credits`: offset of this rank's [R] credits. False if some did
// not come.
__device__ inline bool WaitCredits(const CommonParams& c, size_t credits, uint64_t epoch,
                                   Site site) {
  __shared__ int32_t missing;
  if (threadIdx.x == 0) missing = 0;
  __syncthreads();
  const int peer = static_cast<int>(threadIdx.x);
  if (peer < c.layout.num_ranks &&
      !device::WaitEpoch(c.failure, Layout::FlagOf(c.peers.base[c.peers.rank], credits, peer),
                         epoch - 1, MakeSite(site, peer, 0))) {
    device::StoreRelaxed<device::Scope::kBlock>(&missing, 1);
  }
  __syncthreads();
  const bool free = missing == 0;
  __syncthreads();  // `missing` may be written again by a next call
  return free;
}

// The last receiving block tells every peer that this rank has consumed what it sent.
__device__ inline void ReturnCredits(const CommonParams& c, size_t credits, uint64_t epoch) {
  const int peer = static_cast<int>(threadIdx.x);
  if (peer < c.layout.num_ranks) {
    device::StoreRelease<device::Scope::kSystem>(
        Layout::FlagOf(c.peers.base[peer], credits, c.peers.rank), epoch);
  }
}

}  // namespace octet::direct

#endif  // OCTET_KERNELS_DIRECT_PHASE_H_
