// Fills operands of matrix products on the GPU, where they are large.
#ifndef OCTET_TOOLS_MEASURE_GEMM_FILL_H_
#define OCTET_TOOLS_MEASURE_GEMM_FILL_H_

#include <hip/hip_runtime.h>

#include <cstdint>

namespace octet {

// Fills `pairs` pairs of 16-bit elements with normal numbers, a function of the seed and of the
// place. Products of constants would run faster than those of anything real.
hipError_t FillNormal(uint32_t* data, int64_t pairs, bool fp16, uint32_t seed, hipStream_t stream);

}  // namespace octet

#endif  // OCTET_TOOLS_MEASURE_GEMM_FILL_H_
