// Step 1, an empty strategy: one kernel on each GPU, which moves the row for its own rank.
#include <hip/hip_runtime.h>

#include "docs/tutorial/rows.h"

namespace octet::tutorial {
namespace {

__global__ void Step1(Params p) {
  const int peer = PeerOfBlock();
  if (peer != p.peers.rank) return;
  StoreRow(p, peer, p.epoch);
  __syncthreads();
  TakeRow(p, peer);
}

}  // namespace

const Kernel kStep1 = {
    [] { return device::LoadKernel(Step1); },
    [](const Params& params, hipStream_t stream) { return Launch(Step1, params, stream); },
};

}  // namespace octet::tutorial
