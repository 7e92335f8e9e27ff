// The kinds of memory of a symmetric heap, on NVIDIA GPUs: plain device memory is both. The L2 that
// caches a GPU's memory is the one that peers' stores arrive at.
#ifndef OCTET_RUNTIME_PLATFORM_NVIDIA_HEAP_MEMORY_H_
#define OCTET_RUNTIME_PLATFORM_NVIDIA_HEAP_MEMORY_H_

#include <hip/hip_runtime.h>

#include <cstddef>

namespace octet::platform {

// Allocates memory of HeapMemory::kCached, or else kUncached, on the current device.
inline hipError_t AllocateHeap(bool /*cached*/, size_t bytes, void** data) {
  return hipMalloc(data, bytes);
}

}  // namespace octet::platform

#endif  // OCTET_RUNTIME_PLATFORM_NVIDIA_HEAP_MEMORY_H_
