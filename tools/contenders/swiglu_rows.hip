// A thread computes 16 bytes of a row at a time.
#include "tools/contenders/swiglu_rows.h"

#include "device_ops.h"
#include "kernels/router/router_math.h"
#include "kernels/types/row_codec.h"
#include "runtime/device/load_kernel.h"

namespace octet {
namespace {

using device::Vec16;

template <typename Codec>
__global__ void __launch_bounds__(1024) SwiGlu(const SwiGluRows p) {
  const auto step = static_cast<size_t>(gridDim.x) * blockDim.x;
  const size_t vecs = static_cast<size_t>(p.rows) * static_cast<size_t>(p.row_vecs);
  const auto* const gate_up = static_cast<const Vec16*>(p.gate_up);
  auto* const h = static_cast<Vec16*>(p.h);
  for (size_t i = static_cast<size_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < vecs; i += step) {
    float gate[device::kElementsPerVec] = {};
    float up[device::kElementsPerVec] = {};
    device::Accumulate<Codec>(gate, device::LoadStream(gate_up + 2 * i), 1.0F);
    device::Accumulate<Codec>(up, device::LoadStream(gate_up + 2 * i + 1), 1.0F);
    for (int j = 0; j < device::kElementsPerVec; ++j) up[j] *= gate[j] * Sigmoid(gate[j]);
    h[i] = device::Round<Codec>(up);
  }
}

using Kernel = void (*)(SwiGluRows);

Kernel PickKernel(bool fp16) {
  return fp16 ? SwiGlu<device::Fp16Codec> : SwiGlu<device::Bf16Codec>;
}

}  // namespace

hipError_t LoadSwiGluRows(bool fp16) { return device::LoadKernel(PickKernel(fp16)); }

hipError_t LaunchSwiGluRows(const SwiGluRows& params, bool fp16, const LaunchShape& shape,
                            hipStream_t stream) {
  SwiGluRows p = params;
  void* args[] = {&p};
  return hipLaunchKernel(PickKernel(fp16), dim3(static_cast<unsigned>(shape.blocks)),
                         dim3(static_cast<unsigned>(shape.threads)), args,
                         static_cast<unsigned>(shape.shared_bytes), stream);
}

}  // namespace octet
