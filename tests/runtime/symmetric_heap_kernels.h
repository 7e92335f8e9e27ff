// A kernel that writes into every rank's heap.
#ifndef OCTET_TESTS_RUNTIME_SYMMETRIC_HEAP_KERNELS_H_
#define OCTET_TESTS_RUNTIME_SYMMETRIC_HEAP_KERNELS_H_

#include <hip/hip_runtime.h>

#include <cstdint>

#include "octet/peers.h"

namespace octet {

__host__ __device__ inline uint32_t ScatterValue(int from, int to, int i) {
  return 1'000'000U * static_cast<uint32_t>(from + 1) + 10'000U * static_cast<uint32_t>(to) +
         static_cast<uint32_t>(i);
}

// Every rank stores ScatterValue(from, to, i) at words[from][i] of every rank's heap.
struct ScatterParams {
  device::PeerBases peers;
  SymmetricPtr<uint32_t> words;  // [num_ranks][count]
  int count;
  // Which of the two ways to a peer's address: Translate from this rank's, or SymmetricPtr::On.
  bool translate;
};
hipError_t LaunchScatter(const ScatterParams& params, hipStream_t stream);

}  // namespace octet

#endif  // OCTET_TESTS_RUNTIME_SYMMETRIC_HEAP_KERNELS_H_
