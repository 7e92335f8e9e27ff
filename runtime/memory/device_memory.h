// An owned allocation in one GPU's memory.
#ifndef OCTET_RUNTIME_MEMORY_DEVICE_MEMORY_H_
#define OCTET_RUNTIME_MEMORY_DEVICE_MEMORY_H_

#include <cstddef>

#include "absl/status/statusor.h"
#include "runtime/memory/owned_memory.h"

namespace octet {

// Memory of the calling thread's current device. kResourceExhausted, with the bytes, if there is
// not enough.
struct DeviceMemoryKind {
  static absl::StatusOr<void*> Allocate(size_t bytes);
  static void Free(void* data);
};

using DeviceMemory = OwnedMemory<DeviceMemoryKind>;

}  // namespace octet

#endif  // OCTET_RUNTIME_MEMORY_DEVICE_MEMORY_H_
