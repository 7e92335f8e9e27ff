// The launch of kernels that share their work evenly among all waves, and only have to keep a GPU
// busy.
#ifndef OCTET_KERNELS_EP_BASE_WHOLE_GPU_H_
#define OCTET_KERNELS_EP_BASE_WHOLE_GPU_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "octet/node.h"
#include "octet/topology.h"
#include "runtime/device/launch_shape.h"

namespace octet {

// Returns a launch in which each compute unit of the rank's GPU has some blocks, or fewer if so
// many waves would have nothing to do: `waves` is how many can have work. There is a block at
// least.
inline LaunchShape WholeGpuForWaves(const Rank& rank, int64_t waves) {
  constexpr int kBlocksPerUnit = 4;
  constexpr int kWavesPerBlock = 4;
  const GpuInfo& gpu = rank.node().topology().gpus[static_cast<size_t>(rank.rank())];
  const int64_t with_work = (waves + kWavesPerBlock - 1) / kWavesPerBlock;
  const int64_t all = int64_t{gpu.num_compute_units} * kBlocksPerUnit;
  return {.blocks = static_cast<int>(std::clamp(with_work, int64_t{1}, all)),
          .threads = gpu.wave_size * kWavesPerBlock};
}

// The same for `threads` threads with work.
inline LaunchShape WholeGpuForThreads(const Rank& rank, int64_t threads) {
  const int wave_size = rank.node().topology().gpus[static_cast<size_t>(rank.rank())].wave_size;
  return WholeGpuForWaves(rank, (threads + wave_size - 1) / wave_size);
}

}  // namespace octet

#endif  // OCTET_KERNELS_EP_BASE_WHOLE_GPU_H_
