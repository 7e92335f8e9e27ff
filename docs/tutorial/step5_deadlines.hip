// Step 5, deadlines: each wait has a name (a Site) and ends after NodeOptions::timeout with a
// record that says who waited for what. A block whose wait has failed touches nothing that the wait
// guards, and leaves; all other waits of the node end, too.
//
// The epoch lies in the GPU's memory, where BeginCall reads and advances it, so that a captured
// graph can be replayed.
#include <hip/hip_runtime.h>

#include <cstdint>

#include "device_ops.h"
#include "docs/tutorial/rows.h"
#include "runtime/device/call_epoch_device.h"
#include "runtime/device/wait.h"

namespace octet::tutorial {
namespace {

using device::Scope;

// One block: like step 4's, but returns whether `word` has come.
__device__ bool Await(const Params& p, const uint64_t* word, uint64_t epoch,
                      const device::Site& site) {
  __shared__ uint32_t has_come;
  if (threadIdx.x == 0) has_come = device::WaitEpoch(p.port, word, epoch, site) ? 1 : 0;
  __syncthreads();
  const bool result = has_come != 0;
  __syncthreads();  // before the next wait writes it
  return result;
}

__device__ void Announce(uint64_t* word, uint64_t epoch) {
  device::SyncBlockStores();
  if (threadIdx.x == 0) device::StoreRelease<Scope::kSystem>(word, epoch);
}

__global__ void Step5(Params p) {
  const int peer = PeerOfBlock();
  const auto mine = static_cast<uint32_t>(p.peers.rank);
  const uint64_t epoch = device::BeginCall(p.port, p.call.Mine(p.peers), gridDim.x);
  if (epoch == 0) return;  // a kernel before this one has failed
  const device::Site credit = {kCreditSite, peer, mine, device::Awaited::kCredit};
  if (!Await(p, p.credits.Mine(p.peers) + peer, epoch - 1, credit)) return;
  StoreRow(p, peer, epoch);
  Announce(FlagOn(p, peer), epoch);
  if (!Await(p, p.flags.Mine(p.peers) + peer, epoch, {kRowSite, peer, mine})) return;
  TakeRow(p, peer);
  Announce(CreditOn(p, peer), epoch);
}

}  // namespace

const Kernel kStep5 = {
    [] { return device::LoadKernel(Step5); },
    [](const Params& params, hipStream_t stream) { return Launch(Step5, params, stream); },
};

}  // namespace octet::tutorial
