// Fills operands of matrix products on the GPU, where they are large.
#ifndef OCTET_TOOLS_MEASURE_GEMM_GEMM_FILL_H_
#define OCTET_TOOLS_MEASURE_GEMM_GEMM_FILL_H_

#include <hip/hip_runtime.h>

#include <cstdint>

#include "runtime/platform/gemm_call.h"

namespace octet {

// Fills `words` 4-byte words with normal numbers, a function of the seed and of the place. 4-bit
// floats are random bits instead, and 8-bit floats are those of numbers with the standard deviation
// kFp8Deviation, which uses their range. Products of constants would run faster than those of
// anything real.
hipError_t FillNormal(uint32_t* data, int64_t words, device::GemmElement element, uint32_t seed,
                      hipStream_t stream);

inline constexpr float kFp8Deviation = 64;

}  // namespace octet

#endif  // OCTET_TOOLS_MEASURE_GEMM_GEMM_FILL_H_
