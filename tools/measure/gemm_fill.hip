#include <hip/hip_runtime.h>

#include <cmath>

#include "device_ops.h"
#include "tools/measure/gemm_fill.h"

namespace octet {
namespace {

__device__ uint32_t Mix(uint64_t x) {
  x ^= x >> 33;
  x *= 0xff51afd7ed558ccdU;
  x ^= x >> 33;
  x *= 0xc4ceb9fe1a85ec53U;
  return static_cast<uint32_t>(x >> 32);
}

__global__ void Fill(uint32_t* data, int64_t pairs, bool fp16, uint32_t seed) {
  constexpr float kUnit = 0x1p-32F;
  constexpr float kTwoPi = 6.2831853F;
  const int64_t step = static_cast<int64_t>(gridDim.x) * blockDim.x;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < pairs;
       i += step) {
    const uint64_t place = (static_cast<uint64_t>(seed) << 40) + 2 * static_cast<uint64_t>(i);
    const float u = (static_cast<float>(Mix(place)) + 0.5F) * kUnit;
    const float angle = kTwoPi * kUnit * static_cast<float>(Mix(place + 1));
    const float radius = sqrtf(-2.0F * logf(u));
    const float first = radius * cosf(angle);
    const float second = radius * sinf(angle);
    data[i] = fp16 ? device::PackFp16(first, second) : device::PackBf16(first, second);
  }
}

}  // namespace

hipError_t FillNormal(uint32_t* data, int64_t pairs, bool fp16, uint32_t seed, hipStream_t stream) {
  constexpr unsigned kBlocks = 1024;
  constexpr unsigned kThreads = 256;
  void* args[] = {&data, &pairs, &fp16, &seed};
  const unsigned blocks = pairs < kBlocks * kThreads ? 1 : kBlocks;
  return hipLaunchKernel(Fill, dim3(blocks), dim3(kThreads), args, 0, stream);
}

}  // namespace octet
