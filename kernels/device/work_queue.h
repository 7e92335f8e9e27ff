// Work that the waves of a grid take piece by piece, in order, each as soon as it is free: pieces
// of one kind take very different times, and no wave is left with two while others have none.
// Shared by host and device: the record here, its use in work_queue_device.h.
#ifndef OCTET_KERNELS_DEVICE_WORK_QUEUE_H_
#define OCTET_KERNELS_DEVICE_WORK_QUEUE_H_

#include <cstdint>

namespace octet::device {

// In a GPU's own memory, zero at first. A call uses the one of its epoch's parity.
struct alignas(128) WorkQueue {
  uint32_t taken[2];
};

}  // namespace octet::device

#endif  // OCTET_KERNELS_DEVICE_WORK_QUEUE_H_
