#include <hip/hip_runtime.h>

#include <cmath>

#include "device_ops.h"
#include "fp8_ops.h"
#include "octet/native_fp8.h"
#include "tools/measure/gemm/gemm_fill.h"

namespace octet {
namespace {

__device__ uint32_t Mix(uint64_t x) {
  x ^= x >> 33;
  x *= 0xff51afd7ed558ccdU;
  x ^= x >> 33;
  x *= 0xc4ceb9fe1a85ec53U;
  return static_cast<uint32_t>(x >> 32);
}

struct Pair {
  float first;
  float second;
};

// Pair `index` of a sequence of normal numbers.
__device__ Pair NormalPair(uint32_t seed, int64_t index) {
  constexpr float kUnit = 0x1p-32F;
  constexpr float kTwoPi = 6.2831853F;
  const uint64_t place = (static_cast<uint64_t>(seed) << 40) + 2 * static_cast<uint64_t>(index);
  const float u = (static_cast<float>(Mix(place)) + 0.5F) * kUnit;
  const float angle = kTwoPi * kUnit * static_cast<float>(Mix(place + 1));
  const float radius = sqrtf(-2.0F * logf(u));
  return {radius * cosf(angle), radius * sinf(angle)};
}

__device__ uint32_t Word(device::GemmElement element, uint32_t seed, int64_t index) {
  if (element == device::GemmElement::kFp8) {
    const Pair low = NormalPair(seed, 2 * index);
    const Pair high = NormalPair(seed, 2 * index + 1);
    return device::PackFp8<NativeFp8>(kFp8Deviation * low.first, kFp8Deviation * low.second,
                                      kFp8Deviation * high.first, kFp8Deviation * high.second);
  }
  if (element == device::GemmElement::kMxfp4) {
    return Mix((static_cast<uint64_t>(seed) << 40) + static_cast<uint64_t>(index));
  }
  const Pair pair = NormalPair(seed, index);
  return element == device::GemmElement::kFp16 ? device::PackFp16(pair.first, pair.second)
                                               : device::PackBf16(pair.first, pair.second);
}

__global__ void Fill(uint32_t* data, int64_t words, device::GemmElement element, uint32_t seed) {
  const int64_t step = static_cast<int64_t>(gridDim.x) * blockDim.x;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < words;
       i += step) {
    data[i] = Word(element, seed, i);
  }
}

}  // namespace

hipError_t FillNormal(uint32_t* data, int64_t words, device::GemmElement element, uint32_t seed,
                      hipStream_t stream) {
  constexpr unsigned kBlocks = 1024;
  constexpr unsigned kThreads = 256;
  void* args[] = {&data, &words, &element, &seed};
  const unsigned blocks = words < kBlocks * kThreads ? 1 : kBlocks;
  return hipLaunchKernel(Fill, dim3(blocks), dim3(kThreads), args, 0, stream);
}

}  // namespace octet
