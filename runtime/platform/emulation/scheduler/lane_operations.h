// The scheduler's side of what lanes call (kernel_interface.h).
#ifndef OCTET_RUNTIME_PLATFORM_EMULATION_SCHEDULER_LANE_OPERATIONS_H_
#define OCTET_RUNTIME_PLATFORM_EMULATION_SCHEDULER_LANE_OPERATIONS_H_

#include <cstddef>

#include "scheduler/grid.h"

namespace octet::emulation {

class Worker;

inline Lane* ThisLane() { return static_cast<Lane*>(CurrentLane()); }

// collectives.cc: completes what the rest of the wave and the block waited for, after a lane left.
void LaneHasGone(Worker* worker, Wave* wave);

// atomics.cc: whether the value that the lane waits at is another than it saw.
bool ValueHasChanged(const Lane& lane);
// The lane's last look at a value, which it might repeat, is over.
inline void ForgetPoll(Lane* lane) {
  lane->poll_address = nullptr;
  lane->paused = false;
}

// shared_memory.cc
void InitSharedMemory(Block* block, size_t dynamic_bytes);

// access.cc: refuses an address that the lane's device may not touch.
void CheckAtomic(Lane* lane, const void* address, size_t bytes, Location where);

}  // namespace octet::emulation

#endif  // OCTET_RUNTIME_PLATFORM_EMULATION_SCHEDULER_LANE_OPERATIONS_H_
