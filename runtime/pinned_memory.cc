#include "runtime/pinned_memory.h"

#include <hip/hip_runtime.h>

#include <algorithm>

#include "runtime/gpu_status.h"

namespace octet {

absl::StatusOr<PinnedMemory> PinnedMemory::Allocate(size_t bytes) {
  PinnedMemory memory;
  OCTET_RETURN_IF_GPU_ERROR(
      hipHostMalloc(&memory.data_, std::max<size_t>(bytes, 1), hipHostMallocPortable));
  memory.bytes_ = bytes;
  return memory;
}

PinnedMemory::~PinnedMemory() {
  if (data_ != nullptr) static_cast<void>(hipHostFree(data_));
}

}  // namespace octet
