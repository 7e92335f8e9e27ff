// Which call this is: a number in the GPU's own memory that the kernel advances by itself, so that
// a captured graph replays with fresh epochs. Shared by host and device: the record here, its use
// in call_epoch_device.h.
#ifndef OCTET_RUNTIME_DEVICE_CALL_EPOCH_H_
#define OCTET_RUNTIME_DEVICE_CALL_EPOCH_H_

#include <cstdint>

namespace octet::device {

struct alignas(128) CallEpoch {
  uint64_t epoch;           // of the next call, from 1
  uint32_t blocks_started;  // of the running call
};

}  // namespace octet::device

#endif  // OCTET_RUNTIME_DEVICE_CALL_EPOCH_H_
