// The device's side of WorkQueue.
#ifndef OCTET_KERNELS_DEVICE_WORK_QUEUE_DEVICE_H_
#define OCTET_KERNELS_DEVICE_WORK_QUEUE_DEVICE_H_

#include <cstdint>

#include "device_ops.h"
#include "kernels/device/work_queue.h"

namespace octet::device {

// The waves that begin with a kind of work, and which of them this one is, -1: it joins them later.
struct WorkTeam {
  int waves;
  int member;
};

// Both called by all lanes of a wave: the number of the piece that is this wave's now, its first
// and then the next. Each is given once, from 0; whoever gets one beyond the last has nothing left
// to do. The members' first pieces need no turn at the queue, for which they would all come at
// once.
__device__ __forceinline__ int NextWork(WorkQueue* queue, uint64_t epoch, const WorkTeam& team) {
  uint32_t taken = 0;
  if (Lane() == 0) taken = FetchAddRelaxed<Scope::kDevice>(&queue->taken[epoch & 1], 1U);
  return team.waves + static_cast<int>(Shuffle(taken, 0));
}
__device__ __forceinline__ int FirstWork(WorkQueue* queue, uint64_t epoch, const WorkTeam& team) {
  return team.member >= 0 ? team.member : NextWork(queue, epoch, team);
}

// Makes it ready for the next call, by one thread of this one. The call before, which used the same
// count, has ended: calls of one queue follow each other.
__device__ __forceinline__ void RenewWork(WorkQueue* queue, uint64_t epoch) {
  StoreRelaxed<Scope::kDevice>(&queue->taken[(epoch + 1) & 1], 0U);
}

}  // namespace octet::device

#endif  // OCTET_KERNELS_DEVICE_WORK_QUEUE_DEVICE_H_
