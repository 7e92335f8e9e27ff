// A block for each row, which its first thread picks: memory that a block shares must be its own.
#include "negate.h"

namespace {

constexpr int kThreads = 256;
constexpr int kBlocks = 4;

__global__ void Negate(const uint16_t* x, const int32_t* num_rows, int row_elements,
                       uint16_t* out) {
  __shared__ int row;
  for (int round = 0;; ++round) {
    if (threadIdx.x == 0) row = round * static_cast<int>(gridDim.x) + static_cast<int>(blockIdx.x);
    __syncthreads();
    if (row >= *num_rows) return;
    for (int i = static_cast<int>(threadIdx.x); i < row_elements; i += kThreads) {
      const size_t at = static_cast<size_t>(row) * row_elements + i;
      out[at] = x[at] ^ 0x8000;
    }
    __syncthreads();
  }
}

}  // namespace

hipError_t LaunchNegate(const void* x, const int32_t* num_rows, int row_elements, void* out,
                        hipStream_t stream) {
  void* args[] = {&x, &num_rows, &row_elements, &out};
  return hipLaunchKernel(Negate, dim3(kBlocks), dim3(kThreads), args, 0, stream);
}
