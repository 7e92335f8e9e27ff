// Copies rows between global memory and a block's shared memory on AMD GPUs. They have no copy unit
// for this: the wave itself copies, and each function returns when its work is done.
// runtime/platform/README.md states the contract.
#ifndef OCTET_RUNTIME_PLATFORM_AMD_BULK_COPY_H_
#define OCTET_RUNTIME_PLATFORM_AMD_BULK_COPY_H_

#include <hip/hip_runtime.h>

#include <cstddef>
#include <cstdint>

#include "device_ops.h"

namespace octet::device {

inline constexpr bool kBulkIsAsync = false;
inline constexpr size_t kMaxBulkSharedBytes = 63 * 1024;

struct alignas(8) BulkBarrier {
  uint64_t unused;
};

__device__ __forceinline__ void BulkInit(BulkBarrier* /*barrier*/) {}

__device__ __forceinline__ void BulkLoad(void* to, const void* from, uint32_t bytes,
                                         BulkBarrier* /*barrier*/) {
  SyncWave();  // no lane may still use the buffer's previous contents
  for (uint32_t i = static_cast<uint32_t>(Lane()); i < bytes / sizeof(Vec16); i += kWaveSize) {
    static_cast<Vec16*>(to)[i] = LoadStream(static_cast<const Vec16*>(from) + i);
  }
}

__device__ __forceinline__ void BulkWaitLoad(BulkBarrier* /*barrier*/, uint32_t /*round*/) {
  SyncWave();
}

__device__ __forceinline__ void BulkStore(void* to, const void* from, uint32_t bytes) {
  for (uint32_t i = static_cast<uint32_t>(Lane()); i < bytes / sizeof(Vec16); i += kWaveSize) {
    StoreStream(static_cast<Vec16*>(to) + i, static_cast<const Vec16*>(from)[i]);
  }
}

__device__ __forceinline__ void BulkCommit() {}

template <int groups>
__device__ __forceinline__ void BulkWaitRead() {
  SyncWave();
}

template <int groups>
__device__ __forceinline__ void BulkWaitWritten() {
  SyncWave();
}

__device__ __forceinline__ void BulkFenceShared() { SyncWave(); }

__device__ __forceinline__ void BulkFenceGlobal() { SyncWave(); }

}  // namespace octet::device

#endif  // OCTET_RUNTIME_PLATFORM_AMD_BULK_COPY_H_
