// What the phases of `direct` have in common: credits and the names of waits.
//
// A credit is given when the next sending kernel starts: then all kernels before it in the stream,
// and so all readers of the buffers, are done, and no block has to find out whether it was the
// last.
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
// combines up to these. One fence for both: a second release would wait until the first store has
// come to the peer.
__device__ inline void ReturnCredits(const CommonParams& c, uint64_t dispatches,
                                     uint64_t combines) {
  using device::Scope;
  const int peer = static_cast<int>(threadIdx.x);
  if (peer >= c.layout.num_ranks) return;
  char* base = c.peers.base[peer];
  device::FenceRelease<Scope::kSystem>();
  device::StoreRelaxed<Scope::kSystem>(Layout::FlagOf(base, c.layout.credits, c.peers.rank),
                                       dispatches);
  device::StoreRelaxed<Scope::kSystem>(Layout::FlagOf(base, c.layout.combine_credits, c.peers.rank),
                                       combines);
}

// Whether the buffers of the call before may be written again: every peer has given its credit.
// One lane of the block's last wave looks at each peer's, as early as possible (the constructor);
// the others go on meanwhile.
class Credits {
 public:
  // `credits`: offset of this rank's [R] credits.
  __device__ Credits(const CommonParams& c, size_t credits)
      : mine_(threadIdx.x >= blockDim.x - static_cast<unsigned>(device::kWaveSize)),
        peer_(device::Lane() < c.layout.num_ranks ? device::Lane() : 0),
        credit_(Layout::FlagOf(c.peers.base[c.peers.rank], credits, peer_)),
        seen_(mine_ ? device::LoadRelaxed<device::Scope::kSystem>(credit_) : 0) {}

  // Waits for those of call `epoch` - 1. Whether all came is known to the block in `*granted`
  // (shared memory) after its next barrier.
  __device__ void Await(const CommonParams& c, uint64_t epoch, Site site, int32_t* granted) const {
    if (!mine_) return;
    bool given = true;
    if (seen_ >= epoch - 1) {
      device::AcquirePolled<device::Scope::kSystem>(credit_);
    } else {
      given = device::WaitEpoch(c.failure, credit_, epoch - 1, MakeSite(site, peer_, 0));
    }
    const bool all = device::Ballot(!given) == 0;
    if (device::Lane() == 0) *granted = all ? 1 : 0;
  }

 private:
  bool mine_;
  int peer_;
  const uint64_t* credit_;
  uint64_t seen_;
};

// Flags::kSource: the block waits until every source has sent all its rows. `flags`: offset of this
// rank's [R] source flags. One wave a block polls, since all wait for the same few words. False if
// some did not come. `last`: on the first wave, the source that was missing last; as it was
// if none was.
__device__ inline bool AwaitSources(const CommonParams& c, size_t flags, uint64_t epoch, Site site,
                                    uint32_t* last) {
  __shared__ int32_t came;
  if (device::Wave() == 0) {
    const int source = device::Lane();
    const uint64_t* flag = source < c.layout.num_ranks
                               ? Layout::FlagOf(c.peers.base[c.peers.rank], flags, source)
                               : nullptr;
    int last_lane = -1;
    const bool all =
        device::WaveWaitEpochs(c.failure, flag, epoch, MakeSite(site, source, 0), &last_lane);
    if (last_lane >= 0) *last = static_cast<uint32_t>(last_lane);
    if (source == 0) came = all ? 1 : 0;
  }
  __syncthreads();
  return came != 0;
}

}  // namespace octet::direct

#endif  // OCTET_KERNELS_DIRECT_PHASE_H_
