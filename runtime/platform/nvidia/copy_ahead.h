// Copies from global to shared memory that each lane starts ahead, on NVIDIA GPUs: cp.async.
// runtime/platform/README.md states the contract.
#ifndef OCTET_RUNTIME_PLATFORM_NVIDIA_COPY_AHEAD_H_
#define OCTET_RUNTIME_PLATFORM_NVIDIA_COPY_AHEAD_H_

#include <hip/hip_runtime.h>

#include <cstdint>

#include "device_ops.h"

namespace octet::device {

template <int groups, int most_copies>
class CopyAhead {
 public:
  // With no source bytes the instruction stores zeros; the address must be valid nevertheless.
  __device__ __forceinline__ void Start(Vec16* to, const Vec16* from, bool present) {
    const auto shared = static_cast<uint32_t>(__cvta_generic_to_shared(to));
    asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;" ::"r"(shared), "l"(from),
                 "r"(present ? 16 : 0)
                 : "memory");
  }
  __device__ __forceinline__ void Commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
  template <int in_flight>
  __device__ __forceinline__ void Wait() {
    static_assert(in_flight < groups);
    asm volatile("cp.async.wait_group %0;" ::"n"(in_flight) : "memory");
  }
};

}  // namespace octet::device

#endif  // OCTET_RUNTIME_PLATFORM_NVIDIA_COPY_AHEAD_H_
