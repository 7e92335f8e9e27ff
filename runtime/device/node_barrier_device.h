// A barrier between the GPUs of a node, for use inside kernels.
#ifndef OCTET_RUNTIME_DEVICE_NODE_BARRIER_DEVICE_H_
#define OCTET_RUNTIME_DEVICE_NODE_BARRIER_DEVICE_H_

#include <hip/hip_runtime.h>

#include <cstdint>

#include "device_ops.h"
#include "runtime/device/node_barrier.h"
#include "runtime/device/wait.h"

namespace octet::device {

// Returns true once every GPU's block has arrived: what those blocks did before is then visible to
// this one. Returns false if a wait failed. All threads of one block per GPU must call it, and the
// block must have at least num_ranks threads. On each GPU only one kernel at a time may use a
// NodeBarrierState.
__device__ inline bool NodeBarrier(const NodeBarrierParams& params) {
  __shared__ uint32_t failed;
  NodeBarrierState* mine = params.state[params.rank];
  if (threadIdx.x == 0) failed = 0;
  SyncBlockStores();  // a few threads publish what all waves have stored

  // The round lies in memory, not in the launch parameters, so that a replayed graph keeps
  // counting.
  const uint64_t round = mine->round + 1;
  const int peer = static_cast<int>(threadIdx.x);
  if (peer < params.num_ranks) {
    StoreRelease<Scope::kSystem>(&params.state[peer]->arrived[params.rank], round);
    const Site site = {params.site, peer, static_cast<uint32_t>(params.rank)};
    if (!WaitEpoch(params.port, &mine->arrived[peer], round, site)) {
      StoreRelaxed<Scope::kBlock>(&failed, 1U);
    }
  }
  __syncthreads();
  const bool passed = failed == 0;
  __syncthreads();  // `failed` and the round may be written again
  if (threadIdx.x == 0) mine->round = round;
  return passed;
}

}  // namespace octet::device

#endif  // OCTET_RUNTIME_DEVICE_NODE_BARRIER_DEVICE_H_
