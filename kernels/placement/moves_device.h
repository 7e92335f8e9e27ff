// The parts of the kernels that move experts and switch to another placement (moves.hip).
#ifndef OCTET_KERNELS_PLACEMENT_MOVES_DEVICE_H_
#define OCTET_KERNELS_PLACEMENT_MOVES_DEVICE_H_

#include <cstddef>
#include <cstdint>

#include "device_ops.h"
#include "kernels/placement/kernels.h"
#include "runtime/device/wait.h"

namespace octet::placement {

__device__ __forceinline__ int64_t GridThread() {
  return static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
}
__device__ __forceinline__ int64_t GridThreads() {
  return static_cast<int64_t>(gridDim.x) * blockDim.x;
}

// All threads of the grid copy `vecs` together, with several loads of each under way.
__device__ __forceinline__ void CopyVecs(const device::Vec16* from, device::Vec16* to,
                                         int64_t vecs) {
  constexpr int kUnroll = 8;
  int64_t i = GridThread();
  for (; i + (kUnroll - 1) * GridThreads() < vecs; i += kUnroll * GridThreads()) {
    device::Vec16 v[kUnroll];
#pragma unroll
    for (int n = 0; n < kUnroll; ++n) v[n] = device::LoadStream(from + i + n * GridThreads());
#pragma unroll
    for (int n = 0; n < kUnroll; ++n) device::StoreStream(to + i + n * GridThreads(), v[n]);
  }
  for (; i < vecs; i += GridThreads()) device::StoreStream(to + i, device::LoadStream(from + i));
}

__device__ __forceinline__ void CopyWords(const uint32_t* from, uint32_t* to, int64_t words) {
  for (int64_t i = GridThread(); i < words; i += GridThreads()) {
    to[i] = from[i];
  }
}

__device__ __forceinline__ void CopySlot(const CopyExpertsParams& p, const SlotArray& array,
                                         const ExpertCopy& copy) {
  const char* const from = SlotAt(p.weights, p.weights.rank, array, copy.from_slot);
  char* const to = SlotAt(p.weights, copy.to_rank, array, copy.to_slot);
  if (array.slot_bytes % sizeof(device::Vec16) == 0) {
    CopyVecs(reinterpret_cast<const device::Vec16*>(from), reinterpret_cast<device::Vec16*>(to),
             static_cast<int64_t>(array.slot_bytes / sizeof(device::Vec16)));
  } else {
    CopyWords(reinterpret_cast<const uint32_t*>(from), reinterpret_cast<uint32_t*>(to),
              static_cast<int64_t>(array.slot_bytes / sizeof(uint32_t)));
  }
}

// ---- the switch, by one block of each rank

__device__ __forceinline__ uint64_t* Arrived(const SwitchParams& p, int of, int rank) {
  return reinterpret_cast<SwitchState*>(p.states.base[of])->arrived + rank;
}

// Returns whether all ranks have come.
__device__ __forceinline__ bool Meet(const SwitchParams& p) {
  __shared__ uint32_t failed;
  const int peer = static_cast<int>(threadIdx.x);
  if (peer == 0) {
    failed = device::HasFailed(p.failure) ? 1 : 0;
    // The own word comes first: a rank whose arrival anyone has seen has it.
    if (failed == 0) {
      device::StoreRelease<device::Scope::kSystem>(Arrived(p, p.states.rank, p.states.rank),
                                                   p.number);
    }
  }
  __syncthreads();
  const bool arrives = failed == 0;
  __syncthreads();  // `failed` may be written again
  if (arrives && peer < p.num_ranks && peer != p.states.rank) {
    device::StoreRelease<device::Scope::kSystem>(Arrived(p, peer, p.states.rank), p.number);
    if (!device::WaitEpoch(p.failure, Arrived(p, p.states.rank, peer), p.number,
                           {kSwitchSite, peer, 0})) {
      device::StoreRelaxed<device::Scope::kBlock>(&failed, 1U);
    }
  }
  __syncthreads();
  return failed == 0;
}

template <typename T>
__device__ __forceinline__ void CopyByBlock(const T* from, T* to, int count) {
  for (int i = static_cast<int>(threadIdx.x); i < count; i += static_cast<int>(blockDim.x)) {
    to[i] = from[i];
  }
}

// One block takes over what the host has written.
__device__ __forceinline__ void UpdateTable(const TableUpdate& update) {
  CopyByBlock(update.new_ranges, update.ranges, update.num_ranges);
  CopyByBlock(update.new_replicas, update.replicas, update.num_replicas);
  CopyByBlock(update.new_locals, update.locals, update.num_experts);
}

}  // namespace octet::placement

#endif  // OCTET_KERNELS_PLACEMENT_MOVES_DEVICE_H_
