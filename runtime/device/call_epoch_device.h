// The device side of CallEpoch.
#ifndef OCTET_RUNTIME_DEVICE_CALL_EPOCH_DEVICE_H_
#define OCTET_RUNTIME_DEVICE_CALL_EPOCH_DEVICE_H_

#include <cstdint>

#include "device_ops.h"
#include "runtime/device/call_epoch.h"
#include "runtime/device/wait.h"

namespace octet::device {

// The start of a call in one block, in two steps, between which its memory is on its way: the
// constructor, then Finish, or Epoch where a barrier of all blocks follows anyway. All threads of
// each of the blocks that share `call` must take both steps once.
class CallStart {
 public:
  __device__ __forceinline__ CallStart(const FailurePort& port, CallEpoch* call) : call_(call) {
    if (!IsReader()) return;
    next_ = LoadRelaxed<Scope::kDevice>(&call->epoch);
    failed_ = HasFailed(port);
  }

  // Returns this call's epoch to all threads, or 0 if the rank has failed: the block then has no
  // data to work on. Also a barrier of the block. Nobody waits for an atomic, but one block must
  // call Advance.
  __device__ __forceinline__ uint64_t Epoch() const {
    __shared__ uint64_t shared;
    if (IsReader()) shared = failed_ ? 0 : next_;
    __syncthreads();
    return shared;
  }
  // By one block, when all blocks have come from Epoch.
  __device__ __forceinline__ void Advance() const {
    if (IsReader()) StoreRelaxed<Scope::kDevice>(&call_->epoch, next_ + 1);
  }

  // As Epoch; the last of the `num_blocks` that has read the epoch advances it, so that nothing is
  // left to do at the end of the kernel. `*number`, unless null, is the call's epoch even if the
  // rank has failed.
  __device__ uint64_t Finish(uint32_t num_blocks, uint64_t* number = nullptr) const {
    __shared__ uint64_t shared;
    if (IsReader()) shared = next_ << 1 | (failed_ ? 1 : 0);
    __syncthreads();
    const uint64_t epoch = (shared & 1) != 0 ? 0 : shared >> 1;
    if (number != nullptr) *number = shared >> 1;
    if (IsReader() &&
        FetchAddAcqRel<Scope::kDevice>(&call_->blocks_started, 1U) + 1 == num_blocks) {
      StoreRelaxed<Scope::kDevice>(&call_->blocks_started, 0U);
      StoreRelaxed<Scope::kDevice>(&call_->epoch, next_ + 1);
    }
    return epoch;
  }

 private:
  // One thread of the last wave: the other waves need not wait for its atomic.
  static __device__ bool IsReader() {
    return threadIdx.x == blockDim.x - static_cast<unsigned>(kWaveSize);
  }

  CallEpoch* const call_;
  uint64_t next_ = 0;
  bool failed_ = false;
};

// Both steps in one.
__device__ inline uint64_t BeginCall(const FailurePort& port, CallEpoch* call, uint32_t num_blocks,
                                     uint64_t* number = nullptr) {
  return CallStart(port, call).Finish(num_blocks, number);
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
