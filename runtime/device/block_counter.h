// Who is last: the cheap half of a grid barrier, for work that only has to happen after all blocks
// have come by and on which no block has to wait.
#ifndef OCTET_RUNTIME_DEVICE_BLOCK_COUNTER_H_
#define OCTET_RUNTIME_DEVICE_BLOCK_COUNTER_H_

#include <cstdint>

#include "device_ops.h"

namespace octet::device {

// Called once by every thread of each of `num_blocks` blocks. True in all threads of the block that
// came last; everything that any of the blocks did before is then visible to it, at system scope,
// and what it releases afterwards carries that along. The last block leaves the counter at 0 for
// the next call.
__device__ inline bool LastBlock(uint32_t* counter, uint32_t num_blocks) {
  __shared__ uint32_t last;
  // All waves at the same time, so that little is left to wait for when one thread releases for the
  // block.
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
  __syncthreads();  // `last` may be written again by a next call
  return result;
}

}  // namespace octet::device

#endif  // OCTET_RUNTIME_DEVICE_BLOCK_COUNTER_H_
