// A wave routes a token (route_device.h).
#include <hip/hip_runtime.h>

#include "device_ops.h"
#include "kernels/router/route.h"
#include "kernels/router/route_device.h"
#include "runtime/device/load_kernel.h"

namespace octet {
namespace {

using device::kWaveSize;

// Some platforms do not use launch bounds.
[[maybe_unused]] constexpr int kMaxThreads = 256;

template <int kPerLane>
__global__ void __launch_bounds__(kMaxThreads) Route(const RouteParams p) {
  const auto waves = static_cast<int>(blockDim.x / kWaveSize);
  const auto step = static_cast<int>(gridDim.x) * waves;
  for (int token = static_cast<int>(blockIdx.x) * waves + device::Wave(); token < p.num_tokens;
       token += step) {
    routing::RouteToken<kPerLane>(p, token);
  }
}

using Kernel = void (*)(RouteParams);

// Returns the kernel with kPerLane experts in a lane, doubled until there is room for `per_lane`.
template <int kPerLane>
Kernel PickWithRoom(int per_lane) {
  if constexpr (kPerLane * device::kMinWaveSize < kMostRoutedExperts) {
    if (per_lane > kPerLane) return PickWithRoom<2 * kPerLane>(per_lane);
  }
  return Route<kPerLane>;
}

Kernel PickKernel(int num_experts) {
  return PickWithRoom<2>((num_experts + device::kMinWaveSize - 1) / device::kMinWaveSize);
}

}  // namespace

hipError_t LoadRoute(int num_experts) { return device::LoadKernel(PickKernel(num_experts)); }

hipError_t LaunchRoute(const RouteParams& params, const LaunchShape& shape, hipStream_t stream) {
  RouteParams p = params;
  void* args[] = {&p};
  return hipLaunchKernel(PickKernel(params.num_experts), dim3(static_cast<unsigned>(shape.blocks)),
                         dim3(static_cast<unsigned>(shape.threads)), args,
                         static_cast<unsigned>(shape.shared_bytes), stream);
}

}  // namespace octet
