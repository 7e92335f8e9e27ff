#include "tests/runtime/symmetric_heap_kernels.h"

#include <hip/hip_runtime.h>

#include <cstdint>

namespace octet {

__global__ void ScatterKernel(ScatterParams p) {
  const int from = p.peers.rank;
  uint32_t* mine = p.words.Mine(p.peers) + from * p.count;
  for (int to = 0; to < p.peers.num_ranks; ++to) {
    uint32_t* theirs = p.translate ? device::Translate(p.peers, mine, to)
                                   : p.words.On(p.peers, to) + from * p.count;
    for (int i = static_cast<int>(threadIdx.x); i < p.count; i += static_cast<int>(blockDim.x)) {
      theirs[i] = ScatterValue(from, to, i);
    }
  }
}

hipError_t LaunchScatter(const ScatterParams& params, hipStream_t stream) {
  ScatterParams copy = params;
  void* args[] = {&copy};
  return hipLaunchCooperativeKernel(ScatterKernel, dim3(1), dim3(64), args, 0, stream);
}

}  // namespace octet
