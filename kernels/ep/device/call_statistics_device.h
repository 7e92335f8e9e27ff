// The device side of CallStatistics.
#ifndef OCTET_KERNELS_EP_DEVICE_CALL_STATISTICS_DEVICE_H_
#define OCTET_KERNELS_EP_DEVICE_CALL_STATISTICS_DEVICE_H_

#include <cstdint>

#include "device_ops.h"
#include "kernels/ep/device/call_statistics.h"
#include "runtime/device/epoch.h"
#include "runtime/device/wait.h"

namespace octet::device {

// Adds the measurements of the previous call to the totals if that call was completed. Called by
// all threads of one receiving block of call `epoch`, which has `num_blocks` such blocks.
__device__ inline void BeginStatistics(const CallStatistics& s, int num_ranks, uint64_t epoch,
                                       int num_blocks) {
  __shared__ int32_t incomplete;
  if (s.words == nullptr) return;
  const uint64_t before = epoch - 1;
  const uint64_t half = before & 1;
  const uint64_t call = *s.Call(half);
  const int blocks = EpochOf(call) == before ? static_cast<int>(CountOf(call)) : 0;
  const int first = s.blocks - blocks;
  if (threadIdx.x == 0) incomplete = 0;
  __syncthreads();
  for (int i = threadIdx.x; i < blocks; i += blockDim.x) {
    if (*s.Completed(half, first + i) != before) ExchangeRelaxed<Scope::kBlock>(&incomplete, 1);
  }
  __syncthreads();
  if (blocks > 0 && incomplete == 0) {
    const int waves = static_cast<int>(blockDim.x) / kWaveSize;
    for (int peer = Wave(); peer < num_ranks; peer += waves) {
      uint64_t longest = 0;
      for (int i = Lane(); i < blocks; i += kWaveSize) {
        const uint64_t ticks = *s.Wait(half, peer, first + i);
        longest = ticks > longest ? ticks : longest;
      }
      for (int mask = kWaveSize / 2; mask > 0; mask /= 2) {
        const uint64_t other = ShuffleXor(longest, mask);
        longest = other > longest ? other : longest;
      }
      if (Lane() == 0) *s.TotalWait(peer) += longest;
    }
  }
  if (threadIdx.x == 0) {
    *s.Call(epoch & 1) = PackEpochCount(epoch, static_cast<uint32_t>(num_blocks));
  }
}

// Called by all threads of each receiving block when its part of call `epoch` is complete.
__device__ inline void EndStatistics(const CallStatistics& s, int num_ranks, uint64_t epoch) {
  if (s.words == nullptr) return;
  const uint64_t half = epoch & 1;
  const auto block = static_cast<int>(blockIdx.x);
  __syncthreads();
  const auto peer = static_cast<int>(threadIdx.x);
  if (peer < num_ranks) *s.Wait(half, peer, block) = LongestWaitsOfBlock()[peer];
  if (threadIdx.x == 0) *s.Completed(half, block) = epoch;
}

}  // namespace octet::device

#endif  // OCTET_KERNELS_EP_DEVICE_CALL_STATISTICS_DEVICE_H_
