// Rows between global memory, this GPU's or a peer's, and a block's shared memory, moved by the
// GPU's copy unit beside the waves (on NVIDIA: cp.async.bulk). One wave drives its own copies:
//
//   BulkLoad  -> shared memory -> BulkStore, BulkStore, ... -> BulkCommit       one row
//   BulkWaitLoad(round)           BulkWaitRead<rows in flight>()
//
// The three files runtime/platform/{amd,nvidia,emulation}/bulk_copy.h declare the same functions
// with the same contract. bulk_ring.h makes a ring of rows of them.
//
// All functions are called by all lanes of one wave, which must be converged; arguments are the
// same in all of them. Addresses and sizes are multiples of 16 bytes.
//
//   kBulkIsAsync           whether a copy goes on while the wave does something else.
//   kMaxBulkSharedBytes    dynamic shared memory that a block may ask for
//                          (hipFuncAttributeMaxDynamicSharedMemorySize): what there is, less 1 KiB
//                          for what the kernel declares itself.
//
//   BulkBarrier            tells when loads have come; in shared memory, one for each buffer.
//   BulkInit(b)            before its first load.
//   BulkLoad(to, from, n, b)    starts a load to shared memory. One at a time for each barrier.
//   BulkWaitLoad(b, round)      until load number `round` (0, 1, 2, ...) of `b` has come: the wave,
//                               and the stores that it starts next, may then read the buffer. Every
//                               load is waited for before the next one of `b`.
//
//   BulkStore(to, from, n)      starts a store from shared memory.
//   BulkCommit()                the stores since the last one become a group.
//   BulkWaitRead<n>()           until all but the last n groups have read their shared memory,
//   which
//                               may then be loaded again.
//   BulkWaitWritten<n>()        until all but the last n groups are written: a release by this wave
//                               then publishes them like its own stores.
//
//   BulkFenceShared()      between this wave's plain stores to shared memory and a BulkStore of it.
//   BulkFenceGlobal()      between seeing others' stores to global memory (an acquire), or making
//                          one's own, and a BulkLoad of it.
#ifndef OCTET_RUNTIME_PLATFORM_NVIDIA_BULK_COPY_H_
#define OCTET_RUNTIME_PLATFORM_NVIDIA_BULK_COPY_H_

#include <hip/hip_runtime.h>

#include <cstddef>
#include <cstdint>

#include "device_ops.h"

namespace octet::device {

inline constexpr bool kBulkIsAsync = true;
inline constexpr size_t kMaxBulkSharedBytes = 226 * 1024;

// An mbarrier that one arrival and the bytes of one load complete.
struct alignas(8) BulkBarrier {
  uint64_t state;
};

namespace internal {

// Addresses of shared memory have 32 bits in PTX.
__device__ __forceinline__ uint32_t SharedAddress(const void* p) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(p));
}

}  // namespace internal

__device__ __forceinline__ void BulkInit(BulkBarrier* barrier) {
  if (Lane() == 0) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(internal::SharedAddress(barrier))
                 : "memory");
    // To the copy unit.
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
  }
  SyncWave();
}

__device__ __forceinline__ void BulkLoad(void* to, const void* from, uint32_t bytes,
                                         BulkBarrier* barrier) {
  SyncWave();  // all lanes have done with what the buffer held
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
