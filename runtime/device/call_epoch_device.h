// The device's side of CallEpoch.
#ifndef OCTET_RUNTIME_DEVICE_CALL_EPOCH_DEVICE_H_
#define OCTET_RUNTIME_DEVICE_CALL_EPOCH_DEVICE_H_

#include <cstdint>

#include "device_ops.h"
#include "runtime/device/call_epoch.h"

namespace octet::device {

// Called once by all threads of each of the `num_blocks` blocks that share `call`: this call's
// epoch. The last block that has read it advances it, so that nothing is left to do at the end of
// the kernel. A barrier of the block, too.
__device__ inline uint64_t BeginCall(CallEpoch* call, uint32_t num_blocks) {
  __shared__ uint64_t shared;
  // One thread of the last wave: the others need not wait for its atomic.
  const bool reader = threadIdx.x == blockDim.x - static_cast<unsigned>(kWaveSize);
  if (reader) shared = LoadRelaxed<Scope::kDevice>(&call->epoch);
  __syncthreads();
  const uint64_t epoch = shared;
  if (reader && FetchAddAcqRel<Scope::kDevice>(&call->blocks_started, 1U) + 1 == num_blocks) {
    StoreRelaxed<Scope::kDevice>(&call->blocks_started, 0U);
    StoreRelaxed<Scope::kDevice>(&call->epoch, epoch + 1);
  }
  return epoch;
}

}  // namespace octet::device

#endif  // OCTET_RUNTIME_DEVICE_CALL_EPOCH_DEVICE_H_
