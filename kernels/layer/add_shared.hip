// A thread adds 16 bytes of a row at a time.
#include "kernels/layer/add_shared.h"

#include <hip/hip_runtime.h>

#include "device_ops.h"
#include "kernels/router/router_math.h"
#include "kernels/types/row_codec.h"
#include "runtime/device/load_kernel.h"

namespace octet {
namespace {

using device::Vec16;

template <typename Codec>
__global__ void __launch_bounds__(1024) AddShared(const AddSharedParams p) {
  const auto step = static_cast<size_t>(gridDim.x) * blockDim.x;
  const size_t vecs = static_cast<size_t>(p.num_tokens) * static_cast<size_t>(p.row_vecs);
  auto* const y = static_cast<Vec16*>(p.y);
  const auto* const shared = static_cast<const Vec16*>(p.shared);
  for (size_t i = static_cast<size_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < vecs; i += step) {
    const size_t token = i / static_cast<size_t>(p.row_vecs);
    const float factor =
        p.gate == nullptr ? 1.0F : Sigmoid(p.gate[token * static_cast<size_t>(p.gate_stride)]);
    float sum[device::kElementsPerVec] = {};
    device::Accumulate<Codec>(sum, y[i], 1.0F);
    device::Accumulate<Codec>(sum, device::LoadStream(shared + i), factor);
    y[i] = device::Round<Codec>(sum);
  }
}

using Kernel = void (*)(AddSharedParams);

Kernel PickKernel(bool fp16) {
  return fp16 ? AddShared<device::Fp16Codec> : AddShared<device::Bf16Codec>;
}

}  // namespace

hipError_t LoadAddShared(bool fp16) { return device::LoadKernel(PickKernel(fp16)); }

hipError_t LaunchAddShared(const AddSharedParams& params, bool fp16, const LaunchShape& shape,
                           hipStream_t stream) {
  AddSharedParams p = params;
  void* args[] = {&p};
  return hipLaunchKernel(PickKernel(fp16), dim3(static_cast<unsigned>(shape.blocks)),
                         dim3(static_cast<unsigned>(shape.threads)), args,
                         static_cast<unsigned>(shape.shared_bytes), stream);
}

}  // namespace octet
