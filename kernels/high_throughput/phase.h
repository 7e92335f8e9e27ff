// What the kernels of `high_throughput` have in common.
#ifndef OCTET_KERNELS_HIGH_THROUGHPUT_PHASE_H_
#define OCTET_KERNELS_HIGH_THROUGHPUT_PHASE_H_

#include "device_ops.h"
#include "kernels/ep/device/credits.h"
#include "kernels/ep/device/routing_device.h"
#include "kernels/ep/device/token_packet_device.h"
#include "kernels/ep/device/work_queue_device.h"
#include "kernels/high_throughput/kernels.h"
#include "runtime/device/wait.h"

namespace octet::high_throughput {

using device::MakeSite;

// SendTeam has the waves of the grid that begin by sending, ReceiveTeam those that begin by
// receiving. Neighbouring members are in different blocks, so that ordered work is spread over all
// blocks.
__device__ __forceinline__ int SendWaves(const CommonParams& c) {
  const int waves = static_cast<int>(blockDim.x) / device::kWaveSize;
  return c.send_waves < waves ? c.send_waves : waves;
}
__device__ __forceinline__ device::WorkTeam SendTeam(const CommonParams& c) {
  const int blocks = static_cast<int>(gridDim.x);
  return {SendWaves(c) * blocks, device::Wave() * blocks + static_cast<int>(blockIdx.x)};
}
__device__ __forceinline__ device::WorkTeam ReceiveTeam(const CommonParams& c) {
  const int blocks = static_cast<int>(gridDim.x);
  const int waves = static_cast<int>(blockDim.x) / device::kWaveSize;
  const int wave = device::Wave() - SendWaves(c);
  return {(waves - SendWaves(c)) * blocks,
          wave < 0 ? -1 : wave * blocks + static_cast<int>(blockIdx.x)};
}

// Returns the wave that records the trace of its block: the first wave, which sends, or in every
// other block the first wave that only receives.
__device__ __forceinline__ int TracedWave(const CommonParams& c) {
  const int waves = static_cast<int>(blockDim.x) / device::kWaveSize;
  return blockIdx.x % 2 == 1 && c.send_waves < waves ? c.send_waves : 0;
}

// How much of pass `part` of the product that a combine is fused with is done: how many of those
// who multiply have stored their tiles of it. Combines use two sets of words in turn, and each
// clears the next one's.
__device__ __forceinline__ uint64_t* PassWord(const CommonParams& c, uint64_t epoch, int part) {
  return WordsAfter(c.state) + (epoch & 1) * static_cast<uint64_t>(c.layout.combine_parts) + part;
}

// Returns the destinations of a wave's token. `expert`: of each lane's choice; -1 in lanes without
// one.
__device__ __forceinline__ device::Destinations DestinationsOf(const Layout& layout, int expert) {
  return device::Destinations(expert >= 0 ? layout.experts().RankOf(expert) : -1, layout.num_ranks);
}

}  // namespace octet::high_throughput

#endif  // OCTET_KERNELS_HIGH_THROUGHPUT_PHASE_H_
