// Copies rows between global memory and a block's shared memory on NVIDIA GPUs. The copy unit
// (cp.async.bulk) moves them while the waves do other work. runtime/platform/README.md states the
// contract.
#ifndef OCTET_RUNTIME_PLATFORM_NVIDIA_BULK_COPY_H_
#define OCTET_RUNTIME_PLATFORM_NVIDIA_BULK_COPY_H_

#include <hip/hip_runtime.h>

#include <cstddef>
#include <cstdint>

#include "device_ops.h"

namespace octet::device {

inline constexpr bool kBulkIsAsync = true;
inline constexpr size_t kMaxBulkSharedBytes = 226 * 1024;

// An mbarrier, completed by one arrival and the bytes of one load.
struct alignas(8) BulkBarrier {
  uint64_t state;
};

namespace internal {

// Shared memory addresses have 32 bits in PTX.
__device__ __forceinline__ uint32_t SharedAddress(const void* p) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(p));
}

}  // namespace internal

__device__ __forceinline__ void BulkInit(BulkBarrier* barrier) {
  if (Lane() == 0) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(internal::SharedAddress(barrier))
                 : "memory");
    // Makes the barrier visible to the copy unit.
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
  }
  SyncWave();
}

__device__ __forceinline__ void BulkLoad(void* to, const void* from, uint32_t bytes,
                                         BulkBarrier* barrier) {
  SyncWave();  // no lane may still use the buffer's previous contents
  if (Lane() == 0) {
    const uint32_t word = internal::SharedAddress(barrier);
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(word), "r"(bytes)
                 : "memory");
    asm volatile(
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::
            "r"(internal::SharedAddress(to)),
        "l"(from), "r"(bytes), "r"(word)
        : "memory");
  }
}

__device__ __forceinline__ void BulkWaitLoad(BulkBarrier* barrier, uint32_t round) {
  uint32_t done = 0;
  do {
    asm volatile(
        "{.reg .pred p;\n"
        "mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\n"
        "selp.u32 %0, 1, 0, p;}"
        : "=r"(done)
        : "r"(internal::SharedAddress(barrier)), "r"(round & 1U)
        : "memory");
  } while (done == 0);
}

__device__ __forceinline__ void BulkStore(void* to, const void* from, uint32_t bytes) {
  if (Lane() == 0) {
    asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(to),
                 "r"(internal::SharedAddress(from)), "r"(bytes)
                 : "memory");
  }
}

__device__ __forceinline__ void BulkCommit() {
  if (Lane() == 0) asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}

template <int groups>
__device__ __forceinline__ void BulkWaitRead() {
  if (Lane() == 0) asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(groups) : "memory");
  SyncWave();
}

template <int groups>
__device__ __forceinline__ void BulkWaitWritten() {
  if (Lane() == 0) asm volatile("cp.async.bulk.wait_group %0;" ::"n"(groups) : "memory");
  SyncWave();
}

__device__ __forceinline__ void BulkFenceShared() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
  SyncWave();
}

__device__ __forceinline__ void BulkFenceGlobal() {
  asm volatile("fence.proxy.async.global;" ::: "memory");
  SyncWave();
}

}  // namespace octet::device

#endif  // OCTET_RUNTIME_PLATFORM_NVIDIA_BULK_COPY_H_
