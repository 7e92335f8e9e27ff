// The parts that the kernels of `low_latency` share: the roles of blocks, and the bound on how far
// apart calls may be. Call n overwrites the data of call n - 2, whose credits have normally arrived
// long before.
#ifndef OCTET_KERNELS_LOW_LATENCY_PHASE_H_
#define OCTET_KERNELS_LOW_LATENCY_PHASE_H_

#include "device_ops.h"
#include "kernels/ep/device/credits.h"
#include "kernels/low_latency/kernels.h"

namespace octet::low_latency {

using device::MakeSite;

// Return which phases of a call a launch performs.
__device__ __forceinline__ bool Sends(const CommonParams& c) { return c.send_blocks > 0; }
__device__ __forceinline__ bool Receives(const CommonParams& c) {
  return c.send_blocks < static_cast<int>(gridDim.x);
}

// The role of a block.
struct Role {
  bool sends;
  int index;  // among the blocks with the same role
  int count;  // of these blocks
};
// Returns the calling block's role in dispatch, where a block either sends or receives. Senders
// come first: GPUs give every compute unit one block before they give it a second one, so each
// compute unit gets a sender and a receiver.
__device__ __forceinline__ Role RoleOf(const CommonParams& c) {
  const int block = static_cast<int>(blockIdx.x);
  if (block < c.send_blocks) return Role{true, block, c.send_blocks};
  return Role{false, block - c.send_blocks, static_cast<int>(gridDim.x) - c.send_blocks};
}

// Returns how many calls of a kind this rank has received when a kernel starts that sends call
// `epoch`. A kernel that also receives advances `receive` itself, but then no earlier call is in
// flight.
__device__ __forceinline__ uint64_t Received(const CommonParams& c, uint64_t epoch,
                                             const device::CallEpoch& receive) {
  return (Receives(c) ? epoch : receive.epoch) - 1;
}

// Returns the last call whose buffers call `epoch` overwrites.
__device__ __forceinline__ uint64_t CallBefore(uint64_t epoch) {
  return epoch > kCallsInFlight ? epoch - kCallsInFlight : 0;
}

}  // namespace octet::low_latency

#endif  // OCTET_KERNELS_LOW_LATENCY_PHASE_H_
