// Measurements of the calls of one kind, if the configuration asks for them. Shared by host and
// device.
//
// No call waits for statistics. At the end of its part a block stores its measurements, and one
// block of the next call adds them to the totals if all blocks have completed theirs. When the host
// reads the totals, it adds the measurements of the last call itself.
#ifndef OCTET_KERNELS_EP_DEVICE_CALL_STATISTICS_H_
#define OCTET_KERNELS_EP_DEVICE_CALL_STATISTICS_H_

#include <hip/hip_runtime.h>

#include <cstddef>
#include <cstdint>

#include "octet/peers.h"

namespace octet {

// Everything lies in `words`. Measurements exist twice, by the parity of the call's epoch: the
// blocks of one call store theirs while those of the other are added up.
struct CallStatistics {
  uint64_t* words;  // null: nothing is measured
  int blocks;       // of a launch

  __host__ __device__ size_t num_words() const {
    return kMaxRanks + 2 + 2 * static_cast<size_t>(1 + kMaxRanks) * blocks;
  }

  // Totals: ticks waited for each rank.
  __host__ __device__ uint64_t* TotalWait(int peer) const { return words + peer; }
  // The measurements of the call of parity `half`: first its epoch and its number of receiving
  // blocks, which are the last of the launch (PackEpochCount).
  __host__ __device__ uint64_t* Call(uint64_t half) const { return words + kMaxRanks + half; }
  // The epoch of the last call that the block has completed.
  __host__ __device__ uint64_t* Completed(uint64_t half, int block) const {
    return words + kMaxRanks + 2 + half * blocks + block;
  }
  // The block's longest wait for data from `peer`.
  __host__ __device__ uint64_t* Wait(uint64_t half, int peer, int block) const {
    return words + kMaxRanks + 2 + 2 * static_cast<size_t>(blocks) +
           (half * kMaxRanks + peer) * blocks + block;
  }
};

}  // namespace octet

#endif  // OCTET_KERNELS_EP_DEVICE_CALL_STATISTICS_H_
