// A queue of work from which the waves of a grid take pieces in order, each wave as soon as it is
// free. Pieces of one kind take very different times, so a fixed assignment would leave some waves
// idle. Shared by host and device: this header has the record, work_queue_device.h its use.
#ifndef OCTET_KERNELS_EP_DEVICE_WORK_QUEUE_H_
#define OCTET_KERNELS_EP_DEVICE_WORK_QUEUE_H_

#include <cstdint>

namespace octet::device {

// In a GPU's own memory, zero at first. A call uses the counter of its epoch's parity.
struct alignas(128) WorkQueue {
  uint32_t taken[2];
};

}  // namespace octet::device

#endif  // OCTET_KERNELS_EP_DEVICE_WORK_QUEUE_H_
