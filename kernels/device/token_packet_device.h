// Sending a token once to each of its ranks, and waiting for one: the device's side of
// token_packet.h.
#ifndef OCTET_KERNELS_DEVICE_TOKEN_PACKET_DEVICE_H_
#define OCTET_KERNELS_DEVICE_TOKEN_PACKET_DEVICE_H_

#include <cstdint>

#include "device_ops.h"
#include "kernels/device/token_packet.h"
#include "runtime/device/wait.h"

namespace octet::device {

// Bits below bit n, which may be 32.
__device__ __forceinline__ uint32_t BitsBelow(int n) { return n < 32 ? (1U << n) - 1 : ~0U; }

// Position of the n-th bit that is set.
__device__ __forceinline__ int NthBit(uint32_t bits, int n) {
  for (; n > 0; --n) bits &= bits - 1;
  return __ffs(static_cast<int>(bits)) - 1;
}

// The ranks that a wave's token goes to, of the choices that its lanes hold.
struct Destinations {
  int rank;          // of this lane's choice
  uint32_t ranks;    // all of them, a bit each
  uint32_t choices;  // lanes with the same rank as this one
  uint32_t firsts;   // the first lane of each rank

  // `rank_of_lane`: -1 in lanes that have no choice; at most 32 lanes have one.
  __device__ Destinations(int rank_of_lane, int num_ranks)
      : rank(rank_of_lane), ranks(0), choices(0) {
    for (int r = 0; r < num_ranks; ++r) {
      const auto lanes = static_cast<uint32_t>(Ballot(rank == r));
      if (lanes != 0) ranks |= 1U << r;
      if (rank == r) choices = lanes;
    }
    firsts = static_cast<uint32_t>(Ballot(rank >= 0 && index() == 0));
  }

  // This lane's position among the choices of its rank, and its rank's among the token's.
  __device__ int index() const { return __popc(choices & BitsBelow(Lane() & 31)); }
  __device__ int slot() const { return __popc(ranks & BitsBelow(rank)); }
};

// The wave waits for a packet of call `epoch`; the number of its choices, 0 if it did not come.
template <bool kMeasured = false>
__device__ inline int WaveAwaitPacket(const FailurePort& port, const Packet* packet, uint64_t epoch,
                                      const Site& site) {
  int choices = 0;
  if (Lane() == 0) {
    uint64_t start = 0;
    const bool came =
        WaitUntil<kMeasured>(port, &packet->flag, site, PackEpochCount(epoch, 0), &start,
                             [epoch](uint64_t word) { return EpochOf(word) >= epoch; });
    if (came) choices = static_cast<int>(CountOf(LoadRelaxed<Scope::kSystem>(&packet->flag)));
  }
  SyncWave();
  return Shuffle(choices, 0);
}

}  // namespace octet::device

#endif  // OCTET_KERNELS_DEVICE_TOKEN_PACKET_DEVICE_H_
