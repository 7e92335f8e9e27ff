// The device's side of GridBarrierState.
#ifndef OCTET_RUNTIME_DEVICE_GRID_BARRIER_DEVICE_H_
#define OCTET_RUNTIME_DEVICE_GRID_BARRIER_DEVICE_H_

#include <cstdint>

#include "device_ops.h"
#include "runtime/device/grid_barrier.h"
#include "runtime/device/wait.h"

namespace octet::device {

// Called by all threads of each of `num_blocks` resident blocks, with a round that is greater than
// any before. True in all of them once all blocks are here: what they did before is then visible on
// this GPU. False when the wait failed.
__device__ inline bool GridBarrier(const FailurePort& port, GridBarrierState* state,
                                   uint32_t num_blocks, uint64_t round, const Site& site) {
  __shared__ int32_t passed;
  // Each wave for itself: a block's barrier need not wait for the stores of its waves.
  SyncWave();
  if (Lane() == 0) FenceRelease<Scope::kDevice>();
  __syncthreads();
  if (threadIdx.x == 0) {
    const bool last = FetchAddAcqRel<Scope::kDevice>(&state->arrived, 1U) + 1 == num_blocks;
    if (last) {
      StoreRelaxed<Scope::kDevice>(&state->arrived, 0U);
      StoreRelease<Scope::kDevice>(&state->round, round);
    }
    passed = last || WaitEpoch(port, &state->round, round, site) ? 1 : 0;
  }
  __syncthreads();
  const bool result = passed != 0;
  __syncthreads();  // `passed` may be written again by a next round
  return result;
}

}  // namespace octet::device

#endif  // OCTET_RUNTIME_DEVICE_GRID_BARRIER_DEVICE_H_
