// Owned host memory that GPUs copy to and from at full speed.
#ifndef OCTET_RUNTIME_MEMORY_PINNED_MEMORY_H_
#define OCTET_RUNTIME_MEMORY_PINNED_MEMORY_H_

#include <cstddef>

#include "absl/status/statusor.h"
#include "runtime/memory/owned_memory.h"

namespace octet {

// Usable by all devices.
struct PinnedMemoryKind {
  static absl::StatusOr<void*> Allocate(size_t bytes);
  static void Free(void* data);
};

using PinnedMemory = OwnedMemory<PinnedMemoryKind>;

}  // namespace octet

#endif  // OCTET_RUNTIME_MEMORY_PINNED_MEMORY_H_
