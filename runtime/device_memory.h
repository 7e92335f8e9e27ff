// A piece of one GPU's memory with an owner.
#ifndef OCTET_RUNTIME_DEVICE_MEMORY_H_
#define OCTET_RUNTIME_DEVICE_MEMORY_H_

#include <cstddef>

#include "absl/status/statusor.h"
#include "runtime/owned_memory.h"

namespace octet {

// Of the calling thread's current device. kResourceExhausted, with the bytes, where there is no
// such memory.
struct DeviceMemoryKind {
  static absl::StatusOr<void*> Allocate(size_t bytes);
  static void Free(void* data);
};

using DeviceMemory = OwnedMemory<DeviceMemoryKind>;

}  // namespace octet

#endif  // OCTET_RUNTIME_DEVICE_MEMORY_H_
