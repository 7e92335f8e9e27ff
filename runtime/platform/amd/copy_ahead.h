// Copies from global to shared memory that each lane starts ahead, on AMD GPUs. gfx942 has no such
// copy of 16 bytes: the lane itself copies, and other waves of the compute unit run meanwhile.
// runtime/platform/README.md states the contract.
#ifndef OCTET_RUNTIME_PLATFORM_AMD_COPY_AHEAD_H_
#define OCTET_RUNTIME_PLATFORM_AMD_COPY_AHEAD_H_

#include <hip/hip_runtime.h>

#include "device_ops.h"

namespace octet::device {

template <int groups, int most_copies>
class CopyAhead {
 public:
  __device__ __forceinline__ void Start(Vec16* to, const Vec16* from, bool present) {
    Vec16 v = {};
    if (present) v = LoadStream(from);
    *to = v;
  }
  __device__ __forceinline__ void Commit() {}
  template <int in_flight>
  __device__ __forceinline__ void Wait() {
    static_assert(in_flight < groups);
  }
};

}  // namespace octet::device

#endif  // OCTET_RUNTIME_PLATFORM_AMD_COPY_AHEAD_H_
