// The least that the links and launches cost: stores and nothing else, a clock and nothing else.
#include <hip/hip_runtime.h>

#include "device_ops.h"
#include "kernels/device/row_copy.h"
#include "tools/ceilings_kernels.h"

namespace octet {
namespace {

using device::Vec16;

// Some platforms have no use for launch bounds.
[[maybe_unused]] constexpr int kMaxThreads = 512;

__global__ void __launch_bounds__(kMaxThreads, 2) AllToAll(const AllToAllParams p) {
  const int waves = blockDim.x / device::kWaveSize;
  const int others = p.peers.num_ranks - 1;
  for (int i = blockIdx.x * waves + device::Wave(); i < p.rows_per_peer * others;
       i += gridDim.x * waves) {
    const int row = i / others;
    const int peer = (p.peers.rank + 1 + i - row * others) % p.peers.num_ranks;
    const size_t place = static_cast<size_t>(p.peers.rank) * p.rows_per_peer + row;
    device::WaveCopyRow(reinterpret_cast<Vec16*>(p.peers.base[peer]) + place * p.row_vecs,
                        static_cast<const Vec16*>(p.source) + static_cast<size_t>(row) * p.row_vecs,
                        {0, p.row_vecs});
  }
}

__global__ void ReadClock(uint64_t* clock) { *clock = device::Clock(); }

}  // namespace

hipError_t LaunchAllToAll(const AllToAllParams& params, const LaunchShape& shape,
                          hipStream_t stream) {
  AllToAllParams p = params;
  void* args[] = {&p};
  return hipLaunchKernel(AllToAll, dim3(static_cast<unsigned>(shape.blocks)),
                         dim3(static_cast<unsigned>(shape.threads)), args,
                         static_cast<unsigned>(shape.shared_bytes), stream);
}

hipError_t LaunchReadClock(uint64_t* clock, hipStream_t stream) {
  void* args[] = {&clock};
  return hipLaunchKernel(ReadClock, dim3(1), dim3(1), args, 0, stream);
}

}  // namespace octet
