#include "tests/kernels/types/fp8_kernels.h"

#include <hip/hip_runtime.h>

#include <cstddef>
#include <cstdint>

#include "device_ops.h"
#include "fp8_ops.h"
#include "kernels/types/fp8_quantize.h"
#include "kernels/types/row_codec.h"
#include "octet/fp8_format.h"

namespace octet {
namespace {

using device::kElementsPerVec;
using device::Vec16;

__global__ void PackFp8Words(PackFp8Params params) {
  const int step = static_cast<int>(gridDim.x * blockDim.x);
  for (int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x); i < params.words;
       i += step) {
    const float* from = params.floats + 4 * i;
    params.fn[i] = device::PackFp8<E4m3Fn>(from[0], from[1], from[2], from[3]);
    params.fnuz[i] = device::PackFp8<E4m3Fnuz>(from[0], from[1], from[2], from[3]);
  }
}

template <typename Codec, typename Fp8>
__global__ void QuantizeRows(QuantizeParams params) {
  const int wave_size = device::kWaveSize;
  const int group_lanes = params.scale_group / kElementsPerVec;
  const int vecs = params.hidden / kElementsPerVec;
  const int groups = (params.hidden + params.scale_group - 1) / params.scale_group;
  const auto row = static_cast<size_t>(blockIdx.x);
  const Vec16* x = static_cast<const Vec16*>(params.x) + row * vecs;
  auto* fp8 = reinterpret_cast<uint32_t*>(params.fp8 + row * params.hidden);
  uint32_t* scales = params.scales + row * params.scale_words;
  for (int first = device::Wave() * wave_size; first < vecs;
       first += static_cast<int>(blockDim.x)) {
    const int vec = first + device::Lane();
    const Vec16 v = vec < vecs ? device::LoadStream(x + vec) : Vec16{};
    const auto quantized = device::Quantize<Codec, Fp8>(v, group_lanes, params.format);
    if (vec >= vecs) continue;
    fp8[2 * vec] = quantized.w[0];
    fp8[2 * vec + 1] = quantized.w[1];
    if (vec % group_lanes == 0) {
      device::StoreScale(scales, groups, vec / group_lanes, params.format, quantized.scale);
    }
  }
}

template <typename Codec>
auto KernelOf(bool fnuz) {
  return fnuz ? QuantizeRows<Codec, E4m3Fnuz> : QuantizeRows<Codec, E4m3Fn>;
}

template <typename Kernel, typename Params>
hipError_t Launch(Kernel kernel, const Params& params, LaunchShape shape, hipStream_t stream) {
  Params copy = params;
  void* arguments[] = {&copy};
  return hipLaunchKernel(kernel, dim3(shape.blocks), dim3(shape.threads), arguments, 0, stream);
}

}  // namespace

hipError_t LaunchPackFp8(const PackFp8Params& params, LaunchShape shape, hipStream_t stream) {
  return Launch(PackFp8Words, params, shape, stream);
}

hipError_t LaunchQuantize(const QuantizeParams& params, bool fnuz, bool fp16, LaunchShape shape,
                          hipStream_t stream) {
  const auto kernel = fp16 ? KernelOf<device::Fp16Codec>(fnuz) : KernelOf<device::Bf16Codec>(fnuz);
  return Launch(kernel, params, shape, stream);
}

}  // namespace octet
