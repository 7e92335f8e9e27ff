// A barrier between the GPUs of a node, for use inside kernels.
#ifndef OCTET_RUNTIME_DEVICE_NODE_BARRIER_DEVICE_H_
#define OCTET_RUNTIME_DEVICE_NODE_BARRIER_DEVICE_H_

#include <hip/hip_runtime.h>

#include <cstdint>

#include "device_ops.h"
#include "runtime/device/node_barrier.h"
#include "runtime/device/wait.h"

namespace octet::device {

// Called by all threads of one block per GPU, of at least num_ranks threads. Returns true in all of
// them once every GPU's block is here: what those blocks did before is then visible to this one.
// False when the wait failed. Only one NodeBarrierState may be in use by one kernel per GPU at a
// time.
__device__ inline bool NodeBarrier(const NodeBarrierParams& params) {
  __shared__ uint32_t failed;
  NodeBarrierState* mine = params.state[params.rank];
  if (threadIdx.x == 0) failed = 0;
  SyncBlockStores();  // a few threads publish what all waves have stored

  // The round lives in memory, not in the launch: a captured graph goes on counting.
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
