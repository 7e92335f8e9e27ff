// What the kernels of `high_throughput` have in common: who sends and who receives, and
// where a token goes.
#ifndef OCTET_KERNELS_HIGH_THROUGHPUT_PHASE_H_
#define OCTET_KERNELS_HIGH_THROUGHPUT_PHASE_H_

#include "device_ops.h"
#include "kernels/device/credits.h"
#include "kernels/device/token_packet_device.h"
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

// Where a wave's token goes, of the experts that its lanes hold, -1 in lanes that have none.
__device__ __forceinline__ device::Destinations DestinationsOf(const Layout& layout, int expert) {
  return device::Destinations(expert >= 0 ? expert / layout.num_local_experts : -1,
                              layout.num_ranks);
}

}  // namespace octet::high_throughput

#endif  // OCTET_KERNELS_HIGH_THROUGHPUT_PHASE_H_
