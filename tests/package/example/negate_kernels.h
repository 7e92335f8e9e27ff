// The kernels of negate.cu and negate.hip, which are the same in both languages. A block for every
// so many rows.
#ifndef OCTET_TESTS_PACKAGE_EXAMPLE_NEGATE_KERNELS_H_
#define OCTET_TESTS_PACKAGE_EXAMPLE_NEGATE_KERNELS_H_

#include <octet/fp8_format.h>
#include <octet/native_fp8.h>

#include <bit>
#include <cstddef>
#include <cstdint>

inline constexpr int kThreads = 256;
inline constexpr int kBlocks = 4;

static __global__ void Negate(const uint16_t* x, const int32_t* num_rows, int row_elements,
                              uint16_t* out) {
  for (int row = static_cast<int>(blockIdx.x); row < *num_rows;
       row += static_cast<int>(gridDim.x)) {
    for (int i = static_cast<int>(threadIdx.x); i < row_elements; i += kThreads) {
      const size_t at = static_cast<size_t>(row) * row_elements + i;
      out[at] = x[at] ^ 0x8000;
    }
  }
}

static __global__ void NegateFp8(const octet::NativeFp8* x, const float* scales,
                                 const int32_t* num_rows, int row_elements, int scale_group,
                                 uint16_t* out) {
  __shared__ float scale;
  const int groups = (row_elements + scale_group - 1) / scale_group;
  for (int at = static_cast<int>(blockIdx.x); at < *num_rows * groups;
       at += static_cast<int>(gridDim.x)) {
    if (threadIdx.x == 0) scale = scales[at];
    __syncthreads();
    const size_t row = static_cast<size_t>(at / groups) * row_elements;
    const int first = at % groups * scale_group;
    for (int i = first + static_cast<int>(threadIdx.x); i < first + scale_group && i < row_elements;
         i += kThreads) {
      const float value = -octet::FloatFromFp8(x[row + i]) * scale;
      out[row + i] = static_cast<uint16_t>(std::bit_cast<uint32_t>(value) >> 16);  // exact here
    }
    __syncthreads();
  }
}

#endif  // OCTET_TESTS_PACKAGE_EXAMPLE_NEGATE_KERNELS_H_
