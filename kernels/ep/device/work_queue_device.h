// The device side of WorkQueue.
#ifndef OCTET_KERNELS_EP_DEVICE_WORK_QUEUE_DEVICE_H_
#define OCTET_KERNELS_EP_DEVICE_WORK_QUEUE_DEVICE_H_

#include <cstdint>

#include "device_ops.h"
#include "kernels/ep/device/work_queue.h"

namespace octet::device {

// The waves that begin with one kind of work, and this wave's number among them; -1 if it joins
// later.
struct WorkTeam {
  int waves;
  int member;
};

// FirstWork returns the number of the first piece of the calling wave, NextWork that of the next.
// Both are called by all lanes of a wave. Each number from 0 on is returned once; a wave that gets
// one beyond the last piece has no work left. The first pieces of the team's members do not go
// through the queue, since all members would access it at once.
__device__ __forceinline__ int NextWork(WorkQueue* queue, uint64_t epoch, const WorkTeam& team) {
  uint32_t taken = 0;
  if (Lane() == 0) taken = FetchAddRelaxed<Scope::kDevice>(&queue->taken[epoch & 1], 1U);
  return team.waves + static_cast<int>(Shuffle(taken, 0));
}
__device__ __forceinline__ int FirstWork(WorkQueue* queue, uint64_t epoch, const WorkTeam& team) {
  return team.member >= 0 ? team.member : NextWork(queue, epoch, team);
}

// Prepares the queue for the next call. Called by one thread. The previous call, which used the
// same counter, has ended, since calls of one queue follow each other.
__device__ __forceinline__ void RenewWork(WorkQueue* queue, uint64_t epoch) {
  StoreRelaxed<Scope::kDevice>(&queue->taken[(epoch + 1) & 1], 0U);
}

// The same at the start of a call, for a queue that not every call uses. A barrier of the grid must
// come between this and the first access.
__device__ __forceinline__ void BeginWork(WorkQueue* queue, uint64_t epoch) {
  StoreRelaxed<Scope::kDevice>(&queue->taken[epoch & 1], 0U);
}

}  // namespace octet::device

#endif  // OCTET_KERNELS_EP_DEVICE_WORK_QUEUE_DEVICE_H_
