#include "runtime/memory/pinned_memory.h"

#include <hip/hip_runtime.h>

#include "runtime/gpu/gpu_status.h"

namespace octet {

absl::StatusOr<void*> PinnedMemoryKind::Allocate(size_t bytes) {
  void* data = nullptr;
  // Coherent: kernels and the host access it concurrently.
  OCTET_RETURN_IF_GPU_ERROR(hipHostMalloc(
      &data, bytes, hipHostMallocPortable | hipHostMallocMapped | hipHostMallocCoherent));
  return data;
}

void PinnedMemoryKind::Free(void* data) { static_cast<void>(hipHostFree(data)); }

}  // namespace octet
