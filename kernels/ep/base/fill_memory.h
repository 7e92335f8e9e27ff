// Fills memory of a GPU.
#ifndef OCTET_KERNELS_EP_BASE_FILL_MEMORY_H_
#define OCTET_KERNELS_EP_BASE_FILL_MEMORY_H_

#include <hip/hip_runtime.h>

#include <cstddef>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "octet/node.h"
#include "runtime/gpu/gpu_status.h"

namespace octet {

// Enqueues a fill of `bytes` at `memory` on the rank's stream.
inline absl::Status FillBytes(Rank& rank, void* memory, size_t bytes, int byte) {
  if (bytes == 0) return absl::OkStatus();
  return OCTET_GPU(hipMemsetAsync(memory, byte, bytes, rank.stream()));
}

template <typename T>
absl::Status Fill(Rank& rank, absl::Span<T> memory, int byte) {
  return FillBytes(rank, memory.data(), memory.size() * sizeof(T), byte);
}

}  // namespace octet

#endif  // OCTET_KERNELS_EP_BASE_FILL_MEMORY_H_
