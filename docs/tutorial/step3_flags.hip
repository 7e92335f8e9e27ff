// Step 3, flags: one kernel sends and receives. Each row has a flag, which the receiver waits for.
//
// A flag holds the number of the call, the epoch, and is never reset: with 0 and 1 a receiver could
// take the flag of the last call for that of this one.
//
// The store that sets a flag is a release at system scope, and the load that sees it an acquire:
// what was stored before the one is read after the other. Both are by one thread of the block, so
// that the block's other threads synchronize with it: SyncBlockStores before the release, a barrier
// after the acquire.
//
// Missing: nothing keeps a rank from sending the row of the next call before this one is taken. The
// host waits for the kernels of all ranks between two calls.
#include <hip/hip_runtime.h>

#include <cstdint>

#include "device_ops.h"
#include "docs/tutorial/rows.h"

namespace octet::tutorial {
namespace {

using device::Scope;

__global__ void Step3(Params p) {
  const int peer = PeerOfBlock();
  StoreRow(p, peer, p.epoch);
  device::SyncBlockStores();
  if (threadIdx.x == 0) {
    device::StoreRelease<Scope::kSystem>(FlagOn(p, peer), p.epoch);
    const uint64_t* flag = p.flags.Mine(p.peers) + peer;
    for (uint32_t polls = 1; device::LoadRelaxed<Scope::kSystem>(flag) < p.epoch; ++polls) {
      device::Pause(polls);
    }
    device::AcquirePolled<Scope::kSystem>(flag);
  }
  __syncthreads();
  TakeRow(p, peer);
}

}  // namespace

const Kernel kStep3 = {
    [] { return device::LoadKernel(Step3); },
    [](const Params& params, hipStream_t stream) { return Launch(Step3, params, stream); },
};

}  // namespace octet::tutorial
