// The kinds of memory of a symmetric heap in emulation. Both use the same memory, but
// hipPointerGetAttributes reports the kind, with the flags that AMD GPUs would get.
#ifndef OCTET_RUNTIME_PLATFORM_EMULATION_HEAP_MEMORY_H_
#define OCTET_RUNTIME_PLATFORM_EMULATION_HEAP_MEMORY_H_

#include <hip/hip_runtime_api.h>

#include <cstddef>

namespace octet::platform {

// Allocates kCached memory if `cached`, else kUncached memory (HeapMemory), on the current device.
inline hipError_t AllocateHeap(bool cached, size_t bytes, void** data) {
  const unsigned flags = cached ? hipDeviceMallocFinegrained : hipDeviceMallocUncached;
  return hipExtMallocWithFlags(data, bytes, flags);
}

}  // namespace octet::platform

#endif  // OCTET_RUNTIME_PLATFORM_EMULATION_HEAP_MEMORY_H_
