// What the kernels of `high_throughput` have in common.
#ifndef OCTET_KERNELS_HIGH_THROUGHPUT_PHASE_H_
#define OCTET_KERNELS_HIGH_THROUGHPUT_PHASE_H_

#include "device_ops.h"
#include "kernels/device/credits.h"
#include "kernels/device/routing_device.h"
#include "kernels/device/token_packet_device.h"
#include "kernels/device/work_queue_device.h"
#include "kernels/high_throughput/kernels.h"
#include "runtime/device/wait.h"

namespace octet::high_throughput {

using device::MakeSite;

// The waves of the grid that begin by sending, and those that begin by receiving. Neighbours are in
// different blocks, so that work in order is spread over all of them.
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

// The wave that records a trace of its block: the first, which sends; in every other block the
// first of those that only receive.
__device__ __forceinline__ int TracedWave(const CommonParams& c) {
  const int waves = static_cast<int>(blockDim.x) / device::kWaveSize;
  return blockIdx.x % 2 == 1 && c.send_waves < waves ? c.send_waves : 0;
}

// Where a wave's token goes, of the experts that its lanes hold, -1 in lanes that have none.
__device__ __forceinline__ device::Destinations DestinationsOf(const Layout& layout, int expert) {
  return device::Destinations(expert >= 0 ? layout.experts().RankOf(expert) : -1, layout.num_ranks);
}

}  // namespace octet::high_throughput

#endif  // OCTET_KERNELS_HIGH_THROUGHPUT_PHASE_H_
