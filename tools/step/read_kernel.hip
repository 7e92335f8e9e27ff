#include <hip/hip_runtime.h>

#include "tools/step/read_kernel.h"

namespace octet {
namespace {

__global__ void Read(const uint4* data, int64_t vecs, uint32_t* found) {
  const int64_t step = static_cast<int64_t>(gridDim.x) * blockDim.x;
  uint32_t bits = 0;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < vecs;
       i += step) {
    const uint4 vec = data[i];
    bits |= vec.x | vec.y | vec.z | vec.w;
  }
  if (bits != 0) *found = 1;
}

}  // namespace

hipError_t LaunchRead(const uint4* data, int64_t vecs, uint32_t* found, hipStream_t stream) {
  constexpr int64_t kMostBlocks = 1024;
  constexpr unsigned kThreads = 256;
  const int64_t blocks = (vecs + kThreads - 1) / kThreads;
  void* args[] = {&data, &vecs, &found};
  return hipLaunchKernel(Read,
                         dim3(static_cast<unsigned>(blocks < kMostBlocks ? blocks : kMostBlocks)),
                         dim3(kThreads), args, 0, stream);
}

}  // namespace octet
