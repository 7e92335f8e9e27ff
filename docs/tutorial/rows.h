// The parts of the kernels that do not change from step to step.
#ifndef OCTET_DOCS_TUTORIAL_ROWS_H_
#define OCTET_DOCS_TUTORIAL_ROWS_H_

#include <hip/hip_runtime.h>

#include <cstdint>

#include "docs/tutorial/exchange.h"
#include "runtime/device/launch_cooperative.h"
#include "runtime/device/load_kernel.h"

namespace octet::tutorial {

// The rank that this block sends to, and receives from.
__device__ inline int PeerOfBlock() { return static_cast<int>(blockIdx.x); }

// One block: stores the row of call `epoch` for `peer` into its heap, and nothing that announces
// it.
__device__ inline void StoreRow(const Params& p, int peer, uint64_t epoch) {
  const int32_t* from = p.send.Mine(p.peers) + static_cast<int64_t>(peer) * kRow;
  int32_t* to = p.rows.On(p.peers, peer) + static_cast<int64_t>(p.peers.rank) * kRow;
  for (int i = static_cast<int>(threadIdx.x); i < kRow; i += kThreads) {
    to[i] = from[i] + static_cast<int32_t>(epoch);
  }
}

// One block: adds the row that `peer` has stored here.
__device__ inline void TakeRow(const Params& p, int peer) {
  const int64_t offset = static_cast<int64_t>(peer) * kRow;
  const int32_t* from = p.rows.Mine(p.peers) + offset;
  int32_t* sum = p.received.Mine(p.peers) + offset;
  for (int i = static_cast<int>(threadIdx.x); i < kRow; i += kThreads) sum[i] += from[i];
}

// Cooperative: blocks wait for other ranks, whose blocks wait for these, so that all must run.
inline hipError_t Launch(void (*kernel)(Params), const Params& params, hipStream_t stream) {
  return device::LaunchCooperative(kernel, params,
                                   {.blocks = params.peers.num_ranks, .threads = kThreads}, stream);
}

// The flag on `peer` that says that it has this rank's row.
__device__ inline uint64_t* FlagOn(const Params& p, int peer) {
  return p.flags.On(p.peers, peer) + p.peers.rank;
}

// The credit on `peer` that says that this rank has taken its row.
__device__ inline uint64_t* CreditOn(const Params& p, int peer) {
  return p.credits.On(p.peers, peer) + p.peers.rank;
}

}  // namespace octet::tutorial

#endif  // OCTET_DOCS_TUTORIAL_ROWS_H_
