// Finds the last block of a grid. This is the cheap half of a grid barrier, for work that must
// follow all blocks but that no block waits for.
#ifndef OCTET_RUNTIME_DEVICE_BLOCK_COUNTER_H_
#define OCTET_RUNTIME_DEVICE_BLOCK_COUNTER_H_

#include <cstdint>

#include "device_ops.h"

namespace octet::device {

// Every thread of each of `num_blocks` blocks must call it once. Returns true in all threads of the
// last block; everything that any of the blocks did before is then visible to that block at system
// scope, and its later releases carry it along. The last block resets the counter to 0 for the next
// call.
__device__ inline bool LastBlock(uint32_t* counter, uint32_t num_blocks) {
  __shared__ uint32_t last;
  // All waves release at the same time, so that little is left to wait for when one thread releases
  // for the block.
  SyncWave();
  if (Lane() == 0) FenceRelease<Scope::kSystem>();
  SyncBlockStores();
  if (threadIdx.x == 0) {
    const uint32_t before = FetchAddAcqRel<Scope::kSystem>(counter, 1U);
    last = before + 1 == num_blocks ? 1 : 0;
    if (last != 0) StoreRelaxed<Scope::kDevice>(counter, 0U);
  }
  __syncthreads();
  const bool result = last != 0;
  __syncthreads();  // the next call may write `last`
  return result;
}

}  // namespace octet::device

#endif  // OCTET_RUNTIME_DEVICE_BLOCK_COUNTER_H_
