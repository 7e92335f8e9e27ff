// What the kernels of `high_throughput` have in common.
#ifndef OCTET_KERNELS_HIGH_THROUGHPUT_PHASE_H_
#define OCTET_KERNELS_HIGH_THROUGHPUT_PHASE_H_

#include "device_ops.h"
#include "kernels/device/credits.h"
#include "kernels/device/token_packet_device.h"
#include "kernels/high_throughput/kernels.h"
#include "runtime/device/wait.h"

namespace octet::high_throughput {

using device::MakeSite;

// The wave that records a trace of its block: the first, which sends; in every other block the first
// of those that only receive.
__device__ __forceinline__ int TracedWave(const CommonParams& c) {
  const int waves = static_cast<int>(blockDim.x) / device::kWaveSize;
  return blockIdx.x % 2 == 1 && c.send_waves < waves ? c.send_waves : 0;
}

// Where a wave's token goes, of the experts that its lanes hold, -1 in lanes that have none.
__device__ __forceinline__ device::Destinations DestinationsOf(const Layout& layout, int expert) {
  return device::Destinations(expert >= 0 ? expert / layout.num_local_experts : -1,
                              layout.num_ranks);
}

}  // namespace octet::high_throughput

#endif  // OCTET_KERNELS_HIGH_THROUGHPUT_PHASE_H_
