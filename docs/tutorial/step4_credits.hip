// Step 4, credits: calls follow each other without the host. A rank writes a row only when the peer
// has taken that of the call before, which the peer says with a credit. A credit is a flag in the
// other direction, and an epoch as well.
//
//   rank s                              rank d
//   wait: credits[d] >= epoch - 1  <--- the end of the call before
//   store the row             -------> rows[s]
//   release the flag          -------> flags[s]
//                                       wait: flags[s] >= epoch
//                                       take the row
//   credits[d]                <-------- release the credit
//
// Missing: if a rank does not come, the others wait for ever.
#include <hip/hip_runtime.h>

#include <cstdint>

#include "device_ops.h"
#include "docs/tutorial/rows.h"

namespace octet::tutorial {
namespace {

using device::Scope;

// One block: waits until `word` is at least `epoch`, and may then access what it guards.
__device__ void Await(const uint64_t* word, uint64_t epoch) {
  if (threadIdx.x == 0) {
    for (uint32_t polls = 1; device::LoadRelaxed<Scope::kSystem>(word) < epoch; ++polls) {
      device::Pause(polls);
    }
    device::AcquirePolled<Scope::kSystem>(word);
  }
  __syncthreads();
}

// One block: tells who waits for `word` that all of the block's loads and stores before are done.
__device__ void Announce(uint64_t* word, uint64_t epoch) {
  device::SyncBlockStores();
  if (threadIdx.x == 0) device::StoreRelease<Scope::kSystem>(word, epoch);
}

__global__ void Step4(Params p) {
  const int peer = PeerOfBlock();
  Await(p.credits.Mine(p.peers) + peer, p.epoch - 1);
  StoreRow(p, peer, p.epoch);
  Announce(FlagOn(p, peer), p.epoch);
  Await(p.flags.Mine(p.peers) + peer, p.epoch);
  TakeRow(p, peer);
  Announce(CreditOn(p, peer), p.epoch);
}

}  // namespace

const Kernel kStep4 = {
    [] { return device::LoadKernel(Step4); },
    [](const Params& params, hipStream_t stream) { return Launch(Step4, params, stream); },
};

}  // namespace octet::tutorial
