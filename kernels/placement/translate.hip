// A thread translates a choice at a time.
#include <hip/hip_runtime.h>

#include "kernels/ep/device/routing.h"
#include "kernels/ep/device/routing_device.h"
#include "kernels/placement/kernels.h"
#include "kernels/placement/table_device.h"
#include "runtime/device/load_kernel.h"

namespace octet::placement {
namespace {

__global__ void __launch_bounds__(1024) Translate(const TranslateParams p) {
  const ExpertMap experts = {p.table.num_experts, 1, 0};
  const int choices = p.num_tokens * p.topk;
  const auto step = static_cast<int>(gridDim.x * blockDim.x);
  for (auto flat = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x); flat < choices;
       flat += step) {
    const int token = flat / p.topk;
    const int k = flat - token * p.topk;
    const int32_t id = p.topk_idx[flat];
    const bool expert = experts.IsExpert(id);
    const bool twice = expert && device::ChosenBefore(p.topk_idx + (flat - k), k, id);
    if (twice || !(expert || id == -1)) device::RefuseChoice(p.failure, experts, flat, id);
    p.physical[flat] = expert && !twice ? PhysicalOf(p.table, id, {p.source_rank, token}) : -1;
  }
}

}  // namespace

hipError_t LoadTranslate() { return device::LoadKernel(Translate); }

hipError_t LaunchTranslate(const TranslateParams& params, const LaunchShape& shape,
                           hipStream_t stream) {
  TranslateParams p = params;
  void* args[] = {&p};
  return hipLaunchKernel(Translate, dim3(static_cast<unsigned>(shape.blocks)),
                         dim3(static_cast<unsigned>(shape.threads)), args,
                         static_cast<unsigned>(shape.shared_bytes), stream);
}

}  // namespace octet::placement
