// The kinds of memory of a symmetric heap on NVIDIA GPUs. Plain device memory serves as both:
// peers' stores arrive at the same L2 that caches the memory for its owner.
#ifndef OCTET_RUNTIME_PLATFORM_NVIDIA_HEAP_MEMORY_H_
#define OCTET_RUNTIME_PLATFORM_NVIDIA_HEAP_MEMORY_H_

#include <hip/hip_runtime.h>

#include <cstddef>

namespace octet::platform {

// Allocates kCached memory if `cached`, else kUncached memory (HeapMemory), on the current device.
inline hipError_t AllocateHeap(bool /*cached*/, size_t bytes, void** data) {
  return hipMalloc(data, bytes);
}

}  // namespace octet::platform

#endif  // OCTET_RUNTIME_PLATFORM_NVIDIA_HEAP_MEMORY_H_
