// What the kernels of `low_latency` have in common: what each block does, and how far calls may be
// apart. Call n overwrites what call n - 2 has sent, whose credits have normally
// come long before.
#ifndef OCTET_KERNELS_LOW_LATENCY_PHASE_H_
#define OCTET_KERNELS_LOW_LATENCY_PHASE_H_

#include "device_ops.h"
#include "kernels/device/credits.h"
#include "kernels/low_latency/kernels.h"

namespace octet::low_latency {

using device::MakeSite;

// Which halves of a call a launch is for.
__device__ __forceinline__ bool Sends(const CommonParams& c) { return c.send_blocks > 0; }
__device__ __forceinline__ bool Receives(const CommonParams& c) {
  return c.send_blocks < static_cast<int>(gridDim.x);
}

// What a block does.
struct Role {
  bool sends;
  int index;  // among those that do the same
  int count;  // of them
};
// In dispatch, where each does one thing. Senders come first: GPUs give every compute unit a block
// before they give it a second one, so that each does both.
__device__ __forceinline__ Role RoleOf(const CommonParams& c) {
  const int block = static_cast<int>(blockIdx.x);
  if (block < c.send_blocks) return Role{true, block, c.send_blocks};
  return Role{false, block - c.send_blocks, static_cast<int>(gridDim.x) - c.send_blocks};
}

// How many calls of a kind this rank has received when a kernel starts that sends call `epoch`. One
// that receives as well advances `receive` itself, but then nothing is in flight before it.
__device__ __forceinline__ uint64_t Received(const CommonParams& c, uint64_t epoch,
                                             const device::CallEpoch& receive) {
  return (Receives(c) ? epoch : receive.epoch) - 1;
}

// The last call whose buffers call `epoch` writes again.
__device__ __forceinline__ uint64_t CallBefore(uint64_t epoch) {
  return epoch > kCallsInFlight ? epoch - kCallsInFlight : 0;
}

}  // namespace octet::low_latency

#endif  // OCTET_KERNELS_LOW_LATENCY_PHASE_H_
