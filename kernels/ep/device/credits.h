// Credits ("I have consumed what you sent me") and other arrays with one flag for each peer.
//
// A credit is given when the next sending kernel starts. All kernels before it in the stream, and
// so all readers of the buffers, are then done, and no block has to find out whether it was the
// last.
#ifndef OCTET_KERNELS_EP_DEVICE_CREDITS_H_
#define OCTET_KERNELS_EP_DEVICE_CREDITS_H_

#include <cstddef>
#include <cstdint>

#include "device_ops.h"
#include "kernels/ep/device/call_params.h"
#include "kernels/ep/device/rank_flags.h"
#include "runtime/device/wait.h"

namespace octet::device {

// `where`: one of a strategy's sites.
template <typename Enum>
__device__ __forceinline__ Site MakeSite(Enum where, int peer, uint32_t index,
                                         Awaited awaited = Awaited::kData) {
  return Site{static_cast<uint32_t>(where), peer, index, awaited};
}

// Gives a credit for all calls up to `epoch` to every peer that is not masked. Called by all
// threads of one block. `credits`: offset of the [R] words. `fence`: false directly after another
// credit, since a second fence would wait until that credit has reached the peer.
__device__ inline void GiveCredits(const CallParams& c, size_t credits, uint64_t epoch,
                                   bool fence = true) {
  const int peer = static_cast<int>(threadIdx.x);
  if (peer >= c.peers.num_ranks || IsMasked(c.failure, peer)) return;
  if (fence) FenceRelease<Scope::kSystem>();
  StoreRelaxed<Scope::kSystem>(FlagOf(c.peers.base[peer], credits, c.peers.rank), epoch);
}

// The default for AwaitFlags: accepts any flag that has arrived.
struct AcceptFlag {
  __device__ bool operator()(int /*peer*/, uint64_t /*flag*/) const { return true; }
};

// What AwaitFlags waits for: a flag of each peer, until it has reached `epoch`.
template <typename Enum>
struct PeerFlags {
  size_t offset;  // of this rank's [R] words
  uint64_t epoch;
  Enum site;
};
template <typename Enum>
PeerFlags(size_t, uint64_t, Enum) -> PeerFlags<Enum>;

// Waits until every peer's flag has come. Called by all threads of a block; one wave polls, since
// all wait for the same few words. Returns false if the flag of a rank that is not masked did not
// arrive, or if a flag was not accepted. `last`, if given, is set on the first wave to the peer
// that was missing last; it is unchanged if none was. `accept(peer, flag)` is called for each flag
// once all have arrived.
template <bool kMeasured = false, typename Enum, typename Accept = AcceptFlag>
__device__ bool AwaitFlags(const CallParams& c, const PeerFlags<Enum>& flags,
                           uint32_t* last = nullptr, Accept accept = {}) {
  __shared__ int32_t came;
  if (Wave() == 0) {
    const int peer = Lane();
    const uint32_t masked_ranks = MaskedRanks(c.failure);
    const bool waits = peer < c.peers.num_ranks && !HasRank(masked_ranks, peer);
    const uint64_t* flag = waits ? FlagOf(c.peers.base[c.peers.rank], flags.offset, peer) : nullptr;
    int last_lane = -1;
    bool masked = false;
    uint64_t seen = 0;
    const bool all = WaveWaitEpochs<kMeasured>(
        c.failure, flag, flags.epoch, MakeSite(flags.site, peer, 0), &last_lane, &masked, &seen);
    if (last != nullptr && last_lane >= 0) *last = static_cast<uint32_t>(last_lane);
    const bool refused = all && waits && !masked && !accept(peer, seen);
    const bool none_refused = Ballot(refused) == 0;
    if (peer == 0) came = all && none_refused ? 1 : 0;
  }
  __syncthreads();
  const bool all_came = came != 0;
  __syncthreads();  // the word may be used again
  return all_came;
}

// Tells which peers' buffers may be written again: those of the peers that have given their credit
// for an earlier call. The constructor reads the credits as early as possible, one lane of the
// block's last wave for each peer; the other waves continue meanwhile.
class Credits {
 public:
  // `credits`: offset of this rank's [R] credits.
  __device__ Credits(const CallParams& c, size_t credits)
      : mine_(threadIdx.x >= blockDim.x - static_cast<unsigned>(kWaveSize)),
        peer_(Lane() < c.peers.num_ranks ? Lane() : 0),
        credit_(FlagOf(c.peers.base[c.peers.rank], credits, peer_)),
        seen_(mine_ ? LoadRelaxed<Scope::kSystem>(credit_) : 0),
        masked_(mine_ && IsMasked(c.failure, peer_)) {}

  // Waits for the credits of call `epoch`. After the block's next barrier, `*granted` (shared
  // memory) holds the ranks that may be sent to, a bit each: all ranks that are not masked, or none
  // if one of their credits did not arrive.
  template <typename Enum>
  __device__ void Await(const CallParams& c, uint64_t epoch, Enum where, uint32_t* granted) const {
    if (!mine_) return;
    bool given = true;
    bool failed = false;
    if (masked_) {
      given = false;
    } else if (seen_ >= epoch) {
      AcquirePolled<Scope::kSystem>(credit_);
    } else {
      given = WaitEpoch(c.failure, credit_, epoch, MakeSite(where, peer_, 0, Awaited::kCredit));
      failed = !given && !IsMasked(c.failure, peer_);
    }
    const bool none = Ballot(failed) != 0;
    const auto all = static_cast<uint32_t>(Ballot(given && Lane() < c.peers.num_ranks));
    if (Lane() == 0) *granted = none ? 0 : all;
  }

 private:
  bool mine_;
  int peer_;
  const uint64_t* credit_;
  uint64_t seen_;
  bool masked_;
};

}  // namespace octet::device

#endif  // OCTET_KERNELS_EP_DEVICE_CREDITS_H_
