// What the calls of one kind count and measure, where the configuration asks for it. Shared by host
// and device.
//
// Nobody waits for statistics: at the end of its part a block stores what it has measured, and one
// block of the next call adds it to the totals, if all blocks have completed theirs. The host adds
// what the last call has measured when it reads the totals.
#ifndef OCTET_KERNELS_DEVICE_CALL_STATISTICS_H_
#define OCTET_KERNELS_DEVICE_CALL_STATISTICS_H_

#include <hip/hip_runtime.h>

#include <cstddef>
#include <cstdint>

#include "octet/peers.h"

namespace octet {

// All of it lies in `words`. Of two calls, by parity of their epochs: blocks of one store while the
// other is added up.
struct CallStatistics {
  uint64_t* words;  // null: nothing is counted or measured
  int blocks;       // of a launch
  int num_experts;  // local ones, whose rows are counted; 0: none

  __host__ __device__ size_t num_words() const {
    return kMaxRanks + num_experts + 2 + 2 * static_cast<size_t>(1 + kMaxRanks) * blocks +
           2 * static_cast<size_t>(num_experts);
  }

  // Totals: ticks waited for each rank, rows of each expert.
  __host__ __device__ uint64_t* TotalWait(int peer) const { return words + peer; }
  __host__ __device__ uint64_t* TotalRows(int expert) const { return words + kMaxRanks + expert; }
  // Of the call of either parity: its epoch with the number of blocks that receive, the last ones
  // of the launch (PackEpochCount);
  __host__ __device__ uint64_t* Call(uint64_t half) const {
    return words + kMaxRanks + num_experts + half;
  }
  // the epoch of the call that each block has completed;
  __host__ __device__ uint64_t* Completed(uint64_t half, int block) const {
    return words + kMaxRanks + num_experts + 2 + half * blocks + block;
  }
  // each block's longest wait for what each rank sends;
  __host__ __device__ uint64_t* Wait(uint64_t half, int peer, int block) const {
    return words + kMaxRanks + num_experts + 2 + 2 * static_cast<size_t>(blocks) +
           (half * kMaxRanks + peer) * blocks + block;
  }
  // the rows of each expert.
  __host__ __device__ uint64_t* Rows(uint64_t half, int expert) const {
    return words + kMaxRanks + num_experts + 2 + 2 * static_cast<size_t>(blocks) +
           2 * static_cast<size_t>(kMaxRanks) * blocks + half * num_experts + expert;
  }
};

}  // namespace octet

#endif  // OCTET_KERNELS_DEVICE_CALL_STATISTICS_H_
