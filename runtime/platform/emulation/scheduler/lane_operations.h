// The scheduler's side of the operations of lanes (kernel_interface.h).
#ifndef OCTET_RUNTIME_PLATFORM_EMULATION_SCHEDULER_LANE_OPERATIONS_H_
#define OCTET_RUNTIME_PLATFORM_EMULATION_SCHEDULER_LANE_OPERATIONS_H_

#include <cstddef>

#include "scheduler/grid.h"

namespace octet::emulation {

class Worker;

inline Lane* ThisLane() { return static_cast<Lane*>(CurrentLane()); }

// collectives.cc: completes what the remaining lanes of the wave and block waited for, after a lane
// left.
void LaneHasGone(Worker* worker, Wave* wave);

// atomics.cc: returns whether the value at the lane's poll_address differs from the one it saw.
bool ValueHasChanged(const Lane& lane);
// Ends the lane's last read of a value that it might have repeated.
inline void ForgetPoll(Lane* lane) {
  lane->poll_address = nullptr;
  lane->paused = false;
}

// shared_memory.cc
void InitSharedMemory(Block* block, size_t dynamic_bytes);

// access.cc: refuses an address that the lane's device may not access.
void CheckAtomic(Lane* lane, const void* address, size_t bytes, Location where);

}  // namespace octet::emulation

#endif  // OCTET_RUNTIME_PLATFORM_EMULATION_SCHEDULER_LANE_OPERATIONS_H_
