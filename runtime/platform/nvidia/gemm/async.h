// The asynchronous machinery of Hopper's matrix products: mbarriers, bulk tensor copies, clusters,
// and matrix stores. Addresses of shared memory have 32 bits (SharedAddress).
#ifndef OCTET_RUNTIME_PLATFORM_NVIDIA_GEMM_ASYNC_H_
#define OCTET_RUNTIME_PLATFORM_NVIDIA_GEMM_ASYNC_H_

#include <cuda.h>

#include <cstdint>

#include "bulk_copy.h"

namespace octet::device::internal {

// ---- mbarriers

__device__ __forceinline__ void InitBarrier(uint32_t barrier, uint32_t arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals) : "memory");
}
// After InitBarrier, before other blocks or the copy unit use the barrier.
__device__ __forceinline__ void PublishBarriers() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}
// Arrives, and makes the phase wait for so many bytes.
__device__ __forceinline__ void ExpectBytes(uint32_t barrier, uint32_t bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes)
               : "memory");
}
__device__ __forceinline__ void Arrive(uint32_t barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}
// Arrives at the barrier in the same place of another block of the cluster. Without
// .release.cluster, which would put a fence of the whole GPU into the main loop: nothing but reads
// is handed over.
__device__ __forceinline__ void ArriveAt(uint32_t barrier, uint32_t block) {
  asm volatile(
      "{.reg .b32 remote;\n"
      "mapa.shared::cluster.u32 remote, %0, %1;\n"
      "mbarrier.arrive.shared::cluster.b64 _, [remote];}" ::"r"(barrier),
      "r"(block)
      : "memory");
}
// The same in two steps: the address of the barrier of that block, and the arrival there.
__device__ __forceinline__ uint32_t BarrierOf(uint32_t barrier, uint32_t block) {
  uint32_t remote;
  asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(remote) : "r"(barrier), "r"(block));
  return remote;
}
__device__ __forceinline__ void ArriveAt(uint32_t remote) {
  asm volatile("mbarrier.arrive.shared::cluster.b64 _, [%0];" ::"r"(remote) : "memory");
}
// Without a deadline: for what the copy unit completes once a loading thread has asked for it.
// Loading threads themselves wait with one.
__device__ __forceinline__ void WaitBarrier(uint32_t barrier, uint32_t parity) {
  uint32_t done = 0;
  do {
    asm volatile(
        "{.reg .pred p;\n"
        "mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\n"
        "selp.u32 %0, 1, 0, p;}"
        : "=r"(done)
        : "r"(barrier), "r"(parity)
        : "memory");
  } while (done == 0);
}
// For what other warps must do: returns false once the walk gives up. Each try sleeps for up to a
// millisecond, then looks at the clock in units of about as much, which takes one register.
template <typename Walk>
__device__ __forceinline__ bool WaitForWarps(uint32_t barrier, uint32_t parity, const Walk& walk) {
  constexpr uint32_t kNanosecondsOfTry = 1'000'000;
  constexpr int kUnitBits = 20;  // of Clock(), whose ticks are nanoseconds
  uint32_t start = 0;
  while (true) {
    uint32_t done;
    asm volatile(
        "{.reg .pred p;\n"
        "mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2, %3;\n"
        "selp.u32 %0, 1, 0, p;}"
        : "=r"(done)
        : "r"(barrier), "r"(parity), "n"(kNanosecondsOfTry)
        : "memory");
    if (done != 0) return true;
    const auto now = static_cast<uint32_t>(Clock() >> kUnitBits);
    if (start == 0) start = now;
    // The first unit had begun before.
    const uint32_t units = now == start ? 0 : now - start - 1;
    if (walk.GivesUp(static_cast<uint64_t>(units) << kUnitBits)) return false;
  }
}
// Ends the kernel as one with an error, after such a wait. A warp that waits in hardware, for
// registers or at a barrier of the block, cannot be told to leave.
template <typename Walk>
[[noreturn]] __device__ __forceinline__ void EndKernel(const Walk& walk) {
  walk.TellStuck();
  __trap();
  __builtin_unreachable();
}

// ---- words and chunks of 16 bytes, one of each thread

__device__ __forceinline__ void StoreFloatShared(uint32_t to, float value) {
  asm volatile("st.shared.f32 [%0], %1;" ::"r"(to), "f"(value) : "memory");
}
// The same with 16 bytes.
__device__ __forceinline__ void StoreFloatsShared(uint32_t to, float a, float b, float c, float d) {
  asm volatile("st.shared.v4.f32 [%0], {%1,%2,%3,%4};" ::"r"(to), "f"(a), "f"(b), "f"(c), "f"(d)
               : "memory");
}
// Without waiting for it.
__device__ __forceinline__ void CopyWord(uint32_t to, const void* from) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(to), "l"(from) : "memory");
}
// The same with 16 bytes.
__device__ __forceinline__ void CopyChunk(uint32_t to, const void* from) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 16;" ::"r"(to), "l"(from) : "memory");
}
// Makes a group of the copies that the thread has begun since the last one.
__device__ __forceinline__ void CommitCopies() {
  asm volatile("cp.async.commit_group;" ::: "memory");
}
// Until all but the last `groups` groups are there.
template <int groups>
__device__ __forceinline__ void WaitCopies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(groups) : "memory");
}
// Arrives once the copies that the thread has begun are there.
__device__ __forceinline__ void ArriveWithCopies(uint32_t barrier) {
  asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(barrier) : "memory");
}

// ---- bulk tensor copies. Coordinates: column, row, matrix.

__device__ __forceinline__ void LoadBox(uint32_t to, const CUtensorMap* map, uint32_t barrier,
                                        int x, int y) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes"
      " [%0], [%1, {%3,%4}], [%2];" ::"r"(to),
      "l"(map), "r"(barrier), "r"(x), "r"(y)
      : "memory");
}
__device__ __forceinline__ void LoadBox(uint32_t to, const CUtensorMap* map, uint32_t barrier,
                                        int x, int y, int z) {
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes"
      " [%0], [%1, {%3,%4,%5}], [%2];" ::"r"(to),
      "l"(map), "r"(barrier), "r"(x), "r"(y), "r"(z)
      : "memory");
}
// To both blocks of a cluster of two, and their barriers.
__device__ __forceinline__ void LoadBoxToBoth(uint32_t to, const CUtensorMap* map, uint32_t barrier,
                                              int x, int y) {
  constexpr uint16_t kBoth = 3;
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes"
      ".multicast::cluster [%0], [%1, {%3,%4}], [%2], %5;" ::"r"(to),
      "l"(map), "r"(barrier), "r"(x), "r"(y), "h"(kBoth)
      : "memory");
}
__device__ __forceinline__ void LoadBoxToBoth(uint32_t to, const CUtensorMap* map, uint32_t barrier,
                                              int x, int y, int z) {
  constexpr uint16_t kBoth = 3;
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes"
      ".multicast::cluster [%0], [%1, {%3,%4,%5}], [%2], %6;" ::"r"(to),
      "l"(map), "r"(barrier), "r"(x), "r"(y), "r"(z), "h"(kBoth)
      : "memory");
}
__device__ __forceinline__ void StoreBox(const CUtensorMap* map, uint32_t from, int x, int y) {
  asm volatile(
      "cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%0, {%2,%3}], [%1];" ::"l"(map),
      "r"(from), "r"(x), "r"(y)
      : "memory");
}
__device__ __forceinline__ void CommitStores() {
  asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}
// Until all but the last `groups` groups of stores of this thread have read their shared memory.
template <int groups>
__device__ __forceinline__ void WaitStoresRead() {
  asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(groups) : "memory");
}
__device__ __forceinline__ void WaitStoresWritten() {
  asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
}
// Between the calling thread's stores to shared memory and the copy unit's reading or overwriting
// it.
__device__ __forceinline__ void FenceSharedForCopies() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

// Between other threads' stores to global memory, which the caller has acquired, and the copy
// unit's reading them.
__device__ __forceinline__ void FenceGlobalForCopies() {
  asm volatile("fence.proxy.async.global;" ::: "memory");
}

// ---- blocks, clusters, registers

// Returns true to one lane of the warp, all of whose lanes call this. For what that lane does, the
// compiler then makes no loop over all lanes that might do it, as an instruction for the copy unit
// takes its operands from one.
__device__ __forceinline__ bool ElectOne() {
  uint32_t elected;
  asm volatile(
      "{.reg .pred p;\n"
      "elect.sync _|p, 0xffffffff;\n"
      "selp.u32 %0, 1, 0, p;}"
      : "=r"(elected));
  return elected != 0;
}

// A barrier of some warps of the block; 0 is __syncthreads().
__device__ __forceinline__ void SyncThreads(int barrier, int threads) {
  asm volatile("bar.sync %0, %1;" ::"r"(barrier), "r"(threads) : "memory");
}
__device__ __forceinline__ void SyncCluster() {
  asm volatile("barrier.cluster.arrive.release;\nbarrier.cluster.wait.acquire;" ::: "memory");
}
__device__ __forceinline__ uint32_t RankInCluster() {
  uint32_t rank;
  asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return rank;
}
// Stores a word to the same place of a block of the cluster; its barrier counts the bytes.
__device__ __forceinline__ void StoreWordTo(uint32_t to, uint32_t value, uint32_t barrier,
                                            uint32_t block) {
  asm volatile(
      "{.reg .b32 address, remote;\n"
      "mapa.shared::cluster.u32 address, %0, %3;\n"
      "mapa.shared::cluster.u32 remote, %2, %3;\n"
      "st.async.shared::cluster.mbarrier::complete_tx::bytes.u32 [address], %1, [remote];}" ::"r"(
          to),
      "r"(value), "r"(barrier), "r"(block)
      : "memory");
}
// The same with four words.
__device__ __forceinline__ void StoreWordsTo(uint32_t to, uint4 words, uint32_t barrier,
                                             uint32_t block) {
  asm volatile(
      "{.reg .b32 address, remote;\n"
      "mapa.shared::cluster.u32 address, %0, %6;\n"
      "mapa.shared::cluster.u32 remote, %5, %6;\n"
      "st.async.shared::cluster.mbarrier::complete_tx::bytes.v4.b32 [address], {%1,%2,%3,%4},"
      " [remote];}" ::"r"(to),
      "r"(words.x), "r"(words.y), "r"(words.z), "r"(words.w), "r"(barrier), "r"(block)
      : "memory");
}
// Begins to copy from this block's shared memory to the same place of another block of the cluster,
// whose barrier in the same place as `barrier` counts the bytes. `bytes`: a multiple of 16.
__device__ __forceinline__ void CopyToBlock(uint32_t at, uint32_t bytes, uint32_t barrier,
                                            uint32_t block) {
  asm volatile(
      "{.reg .b32 to, remote;\n"
      "mapa.shared::cluster.u32 to, %0, %3;\n"
      "mapa.shared::cluster.u32 remote, %2, %3;\n"
      "cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes [to], [%0], %1,"
      " [remote];}" ::"r"(at),
      "r"(bytes), "r"(barrier), "r"(block)
      : "memory");
}
// Loads a word from the same place of a block of the cluster.
__device__ __forceinline__ uint32_t LoadWordOf(uint32_t from, uint32_t block) {
  uint32_t value;
  asm volatile(
      "{.reg .b32 address;\n"
      "mapa.shared::cluster.u32 address, %1, %2;\n"
      "ld.shared::cluster.u32 %0, [address];}"
      : "=r"(value)
      : "r"(from), "r"(block)
      : "memory");
  return value;
}
__device__ __forceinline__ uint32_t LoadWord(uint32_t from) {
  uint32_t value;
  asm volatile("ld.shared.u32 %0, [%1];" : "=r"(value) : "r"(from) : "memory");
  return value;
}
__device__ __forceinline__ float2 LoadFloatsShared(uint32_t from) {
  float2 v;
  asm volatile("ld.shared.v2.f32 {%0,%1}, [%2];" : "=f"(v.x), "=f"(v.y) : "r"(from) : "memory");
  return v;
}
__device__ __forceinline__ void StoreWord(uint32_t to, uint32_t value) {
  asm volatile("st.shared.u32 [%0], %1;" ::"r"(to), "r"(value) : "memory");
}
__device__ __forceinline__ uint4 LoadShared16(uint32_t from) {
  uint4 v;
  asm volatile("ld.shared.v4.u32 {%0,%1,%2,%3}, [%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "r"(from)
               : "memory");
  return v;
}
// By all warps of a warpgroup: hands registers back, or takes some more.
template <int registers>
__device__ __forceinline__ void ShrinkRegisters() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(registers));
}
template <int registers>
__device__ __forceinline__ void GrowRegisters() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(registers));
}

// ---- matrices of 8 by 8 16-bit elements, from the accumulators' layout to shared memory. Lane i
// gives the address of row i % 8 of matrix i / 8.

__device__ __forceinline__ void StoreMatrices(uint32_t row, uint32_t m0, uint32_t m1, uint32_t m2,
                                              uint32_t m3) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1,%2,%3,%4};" ::"r"(row), "r"(m0),
               "r"(m1), "r"(m2), "r"(m3)
               : "memory");
}
__device__ __forceinline__ void StoreMatricesTransposed(uint32_t row, uint32_t m0, uint32_t m1,
                                                        uint32_t m2, uint32_t m3) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1,%2,%3,%4};" ::"r"(row),
               "r"(m0), "r"(m1), "r"(m2), "r"(m3)
               : "memory");
}
__device__ __forceinline__ void StoreMatricesTransposed(uint32_t row, uint32_t m0, uint32_t m1) {
  asm volatile("stmatrix.sync.aligned.m8n8.x2.trans.shared.b16 [%0], {%1,%2};" ::"r"(row), "r"(m0),
               "r"(m1)
               : "memory");
}

}  // namespace octet::device::internal

#endif  // OCTET_RUNTIME_PLATFORM_NVIDIA_GEMM_ASYNC_H_
