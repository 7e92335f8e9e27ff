// The device side of CallEpoch.
#ifndef OCTET_RUNTIME_DEVICE_CALL_EPOCH_DEVICE_H_
#define OCTET_RUNTIME_DEVICE_CALL_EPOCH_DEVICE_H_

#include <cstdint>

#include "device_ops.h"
#include "runtime/device/call_epoch.h"
#include "runtime/device/wait.h"

namespace octet::device {

// Returns this call's epoch, or 0 if the rank has failed: the block then has no data to work on.
// All threads of each of the `num_blocks` blocks that share `call` must call it once; it is also a
// barrier of the block. The last block that has read the epoch advances it, so that nothing is left
// to do at the end of the kernel. `*number`, unless null, is the call's epoch even if the rank has
// failed.
__device__ inline uint64_t BeginCall(const FailurePort& port, CallEpoch* call, uint32_t num_blocks,
                                     uint64_t* number = nullptr) {
  __shared__ uint64_t shared;
  // One thread of the last wave: the other waves need not wait for its atomic.
  const bool reader = threadIdx.x == blockDim.x - static_cast<unsigned>(kWaveSize);
  uint64_t next = 0;
  if (reader) {
    next = LoadRelaxed<Scope::kDevice>(&call->epoch);
    shared = next << 1 | (HasFailed(port) ? 1 : 0);
  }
  __syncthreads();
  const uint64_t epoch = (shared & 1) != 0 ? 0 : shared >> 1;
  if (number != nullptr) *number = shared >> 1;
  if (reader && FetchAddAcqRel<Scope::kDevice>(&call->blocks_started, 1U) + 1 == num_blocks) {
    StoreRelaxed<Scope::kDevice>(&call->blocks_started, 0U);
    StoreRelaxed<Scope::kDevice>(&call->epoch, next + 1);
  }
  return epoch;
}

// Likewise for a kernel that continues the call begun by the kernel before it.
__device__ inline uint64_t BegunCall(const FailurePort& port, const CallEpoch* call,
                                     uint64_t* number = nullptr) {
  __shared__ uint64_t shared;
  if (threadIdx.x == 0) shared = (call->epoch - 1) << 1 | (HasFailed(port) ? 1 : 0);
  __syncthreads();
  if (number != nullptr) *number = shared >> 1;
  return (shared & 1) != 0 ? 0 : shared >> 1;
}

}  // namespace octet::device

#endif  // OCTET_RUNTIME_DEVICE_CALL_EPOCH_DEVICE_H_
