// A kernel in which a warp waits for another one as those of a product do.
#ifndef OCTET_TESTS_PLATFORM_GEMM_WAITS_KERNELS_H_
#define OCTET_TESTS_PLATFORM_GEMM_WAITS_KERNELS_H_

#include <hip/hip_runtime.h>

#include <cstdint>

namespace octet {

// Ticks, in pinned memory.
struct GemmWaitParams {
  uint64_t deadline;
  uint64_t late;      // the other warp arrives so long after it has begun; 0: never
  uint64_t* waited;   // set to how long the wait took
  uint64_t* gave_up;  // set to how long it took if it has given up
};

hipError_t LaunchGemmWait(const GemmWaitParams& params, hipStream_t stream);

}  // namespace octet

#endif  // OCTET_TESTS_PLATFORM_GEMM_WAITS_KERNELS_H_
