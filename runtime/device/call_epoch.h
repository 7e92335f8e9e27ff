// The number of the current call. It lies in the GPU's own memory and the kernel advances it, so
// that a replayed graph gets new epochs. This record is shared by host and device;
// call_epoch_device.h uses it.
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
