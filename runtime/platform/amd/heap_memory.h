// The kinds of memory of a symmetric heap on AMD GPUs.
//
// kUncached: flags, counts, packets and rows in transit, which peers write and the owner reads
// once.
//   hipDeviceMallocUncached is what HIP calls "extended-scope fine-grained" memory. The amdgpu
//   driver maps it into peers as MTYPE UC: their stores bypass their L2. The owner gets CC (cached
//   reads, stores written through) or, on early gfx942 and with old drivers, UC. HIP promises
//   neither.
//
// kCached: received rows, which the caller's kernels read in place.
//   HIP documents hipDeviceMallocFinegrained, unlike hipMalloc, as coherent while kernels run. The
//   driver (gmc_v9_0_get_coherence_flags) maps it as follows:
//
//             owner              peers
//     gfx90a  CC                 UC
//     gfx942  RW, PTE C-bit set  NC, PTE C-bit set
//     gfx950  RW, PTE C-bit set  NC, PTE C-bit set
//
//   LLVM's memory model of gfx942 ("User Guide for AMDGPU Backend") defines the consequences:
//     - A peer's stores stay in the L2 of the XCD that made them until a buffer_wbl2 sc1 of that
//       XCD. Hence each wave that stores rows, or another one of its block, releases them at system
//       scope (s_waitcnt vmcnt(0), buffer_wbl2 sc0 sc1, s_waitcnt vmcnt(0)) before their flag is
//       stored. If another wave releases, the storing waves must first wait for their stores:
//       SyncBlockStores.
//     - Stores from other L2s invalidate lines of the owner's L2s through the probes that the C-bit
//       requests: "MTYPE RW and CC memory will never be stale due to the memory probes". This holds
//       between the XCDs of one GPU as well. Of the owner's caches only L1 may be stale; the
//       acquire before the reads invalidates it (buffer_inv sc0 sc1), as does the start of each
//       later kernel. So later kernels find the rows in L2 as soon as one of them has read them.
//     - A peer that reads rows (CombineMethod::kPull) has NC lines in its L2, which only its own
//       buffer_inv sc0 sc1 invalidates. Hence each wave that reads acquires.
//     - Stores carry byte masks, so different GPUs may store into one line.
//
// Flags are accessed with sc0 sc1 in either kind. tests/isa checks that rows are not, since that
// would bypass the caches, and that kernels which move rows release and acquire. None of this has
// been measured or run on hardware.
#ifndef OCTET_RUNTIME_PLATFORM_AMD_HEAP_MEMORY_H_
#define OCTET_RUNTIME_PLATFORM_AMD_HEAP_MEMORY_H_

#include <hip/hip_runtime.h>

#include <cstddef>

namespace octet::platform {

// Allocates kCached memory if `cached`, else kUncached memory (HeapMemory), on the current device.
inline hipError_t AllocateHeap(bool cached, size_t bytes, void** data) {
  const unsigned flags = cached ? hipDeviceMallocFinegrained : hipDeviceMallocUncached;
  return hipExtMallocWithFlags(data, bytes, flags);
}

}  // namespace octet::platform

#endif  // OCTET_RUNTIME_PLATFORM_AMD_HEAP_MEMORY_H_
