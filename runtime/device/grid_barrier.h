// A barrier of the blocks of one grid that carries the deadline of every other wait: a block that
// has left early ends in a failure record, never in a hang. The record is shared by host and
// device; the barrier itself is in grid_barrier_device.h.
#ifndef OCTET_RUNTIME_DEVICE_GRID_BARRIER_H_
#define OCTET_RUNTIME_DEVICE_GRID_BARRIER_H_

#include <cstdint>

namespace octet::device {

// In the GPU's own memory, zero at the start and again after a failure.
struct GridBarrierState {
  alignas(128) uint32_t arrived;  // blocks, in the present round
  alignas(128) uint64_t round;    // the last one that is complete
};

}  // namespace octet::device

#endif  // OCTET_RUNTIME_DEVICE_GRID_BARRIER_H_
