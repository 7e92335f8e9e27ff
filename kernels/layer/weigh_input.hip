// A thread multiplies 16 bytes of a row at a time.
#include "kernels/layer/weigh_input.h"

#include <hip/hip_runtime.h>

#include "device_ops.h"
#include "kernels/types/row_codec.h"
#include "runtime/device/load_kernel.h"

namespace octet {
namespace {

using device::Vec16;

template <typename Codec>
__global__ void __launch_bounds__(1024) WeighInput(const WeighInputParams p) {
  const auto step = static_cast<size_t>(gridDim.x) * blockDim.x;
  const auto row_vecs = static_cast<size_t>(p.row_vecs);
  const size_t vecs = static_cast<size_t>(p.num_tokens) * row_vecs;
  const auto* const x = static_cast<const Vec16*>(p.x);
  auto* const out = static_cast<Vec16*>(p.out);
  for (size_t i = static_cast<size_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < vecs; i += step) {
    const size_t token = i / row_vecs;
    float product[device::kElementsPerVec] = {};
    device::Accumulate<Codec>(product, x[i], p.weights[token]);
    out[i] = device::Round<Codec>(product);
    if (i % row_vecs == 0) p.ones[token] = 1.0F;
  }
}

using Kernel = void (*)(WeighInputParams);

Kernel PickKernel(bool fp16) {
  return fp16 ? WeighInput<device::Fp16Codec> : WeighInput<device::Bf16Codec>;
}

}  // namespace

hipError_t LoadWeighInput(bool fp16) { return device::LoadKernel(PickKernel(fp16)); }

hipError_t LaunchWeighInput(const WeighInputParams& params, bool fp16, const LaunchShape& shape,
                            hipStream_t stream) {
  WeighInputParams p = params;
  void* args[] = {&p};
  return hipLaunchKernel(PickKernel(fp16), dim3(static_cast<unsigned>(shape.blocks)),
                         dim3(static_cast<unsigned>(shape.threads)), args,
                         static_cast<unsigned>(shape.shared_bytes), stream);
}

}  // namespace octet
