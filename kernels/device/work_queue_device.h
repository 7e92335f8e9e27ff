// The device's side of WorkQueue.
#ifndef OCTET_KERNELS_DEVICE_WORK_QUEUE_DEVICE_H_
#define OCTET_KERNELS_DEVICE_WORK_QUEUE_DEVICE_H_

#include <cstdint>

#include "device_ops.h"
#include "kernels/device/work_queue.h"

namespace octet::device {

// Called by all lanes of a wave: the number of the piece that is this wave's now. Each is given
// once, from 0; whoever gets one beyond the last has nothing left to do.
__device__ __forceinline__ int TakeWork(WorkQueue* queue, uint64_t epoch) {
  uint32_t taken = 0;
  if (Lane() == 0) taken = FetchAddRelaxed<Scope::kDevice>(&queue->taken[epoch & 1], 1U);
  return static_cast<int>(Shuffle(taken, 0));
}

// Makes it ready for the next call, by one thread of this one. The call before, which used the same
// count, has ended: calls of one queue follow each other.
__device__ __forceinline__ void RenewWork(WorkQueue* queue, uint64_t epoch) {
  StoreRelaxed<Scope::kDevice>(&queue->taken[(epoch + 1) & 1], 0U);
}

}  // namespace octet::device

#endif  // OCTET_KERNELS_DEVICE_WORK_QUEUE_DEVICE_H_
