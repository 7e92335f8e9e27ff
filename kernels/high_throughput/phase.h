// What the kernels of `high_throughput` have in common: who sends and who receives, and
// where a token goes.
#ifndef OCTET_KERNELS_HIGH_THROUGHPUT_PHASE_H_
#define OCTET_KERNELS_HIGH_THROUGHPUT_PHASE_H_

#include "device_ops.h"
#include "kernels/device/credits.h"
#include "kernels/high_throughput/kernels.h"
#include "runtime/device/wait.h"

namespace octet::high_throughput {

using device::MakeSite;

// The position of this wave among all waves of the grid that send, or that receive. Neighbouring
// positions lie in different blocks, so that work in order is spread over all of them.
struct Share {
  int first;  // this wave's first item; -1: it has no part
  int step;
};
__device__ __forceinline__ Share SendShare(const CommonParams& c) {
  const int blocks = static_cast<int>(gridDim.x);
  if (device::Wave() >= c.send_waves) return Share{-1, 1};
  return Share{device::Wave() * blocks + static_cast<int>(blockIdx.x), c.send_waves * blocks};
}
__device__ __forceinline__ Share ReceiveShare(const CommonParams& c) {
  const int blocks = static_cast<int>(gridDim.x);
  const int waves = static_cast<int>(blockDim.x) / device::kWaveSize - c.first_receive_wave;
  const int wave = device::Wave() - c.first_receive_wave;
  if (wave < 0 || waves <= 0) return Share{-1, 1};
  return Share{wave * blocks + static_cast<int>(blockIdx.x), waves * blocks};
}

// Bits below bit n.
__device__ __forceinline__ uint32_t BitsBelow(int n) { return (1U << n) - 1; }

// Position of the n-th bit that is set.
__device__ __forceinline__ int NthBit(uint32_t bits, int n) {
  for (; n > 0; --n) bits &= bits - 1;
  return __ffs(static_cast<int>(bits)) - 1;
}

// The ranks that a wave's token goes to, of the experts that its lanes hold.
struct Destinations {
  int rank;          // of this lane's expert
  uint32_t ranks;    // all of them, a bit each
  uint32_t choices;  // lanes with the same rank as this one
  uint32_t firsts;   // the first lane of each rank

  // `expert`: -1 in lanes that have none; at most 32 lanes have one.
  __device__ Destinations(const Layout& layout, int expert)
      : rank(expert >= 0 ? expert / layout.num_local_experts : -1), ranks(0), choices(0) {
    for (int r = 0; r < layout.num_ranks; ++r) {
      const auto lanes = static_cast<uint32_t>(device::Ballot(rank == r));
      if (lanes != 0) ranks |= 1U << r;
      if (rank == r) choices = lanes;
    }
    firsts = static_cast<uint32_t>(device::Ballot(rank >= 0 && index() == 0));
  }

  // This lane's position among the choices of its rank, and its rank's among the token's.
  __device__ int index() const { return __popc(choices & BitsBelow(device::Lane() & 31)); }
  __device__ int slot() const { return __popc(ranks & BitsBelow(rank)); }
};

}  // namespace octet::high_throughput

#endif  // OCTET_KERNELS_HIGH_THROUGHPUT_PHASE_H_
