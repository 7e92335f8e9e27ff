// The launch of kernels that only have to keep a GPU busy.
#ifndef OCTET_KERNELS_WHOLE_GPU_H_
#define OCTET_KERNELS_WHOLE_GPU_H_

#include <cstddef>

#include "octet/node.h"
#include "octet/topology.h"
#include "runtime/device/launch_shape.h"

namespace octet {

// Returns a launch in which each compute unit of the rank's GPU has some blocks.
inline LaunchShape WholeGpu(const Rank& rank) {
  constexpr int kBlocksPerUnit = 4;
  constexpr int kWavesPerBlock = 4;
  const GpuInfo& gpu = rank.node().topology().gpus[static_cast<size_t>(rank.rank())];
  return {.blocks = gpu.num_compute_units * kBlocksPerUnit,
          .threads = gpu.wave_size * kWavesPerBlock};
}

}  // namespace octet

#endif  // OCTET_KERNELS_WHOLE_GPU_H_
