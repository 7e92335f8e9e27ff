#include "tests/kernels/loads/load_counters_kernels.h"

#include <hip/hip_runtime.h>

#include "kernels/ep/device/load_counters_device.h"

namespace octet {
namespace {

__global__ void CountCall(CountCallParams p) {
  const int first = static_cast<int>(threadIdx.x);
  const int step = static_cast<int>(blockDim.x);
  device::CountLoads(p.counters, p.epoch, first, step, [&](int e) { return p.rows[e]; });
}

}  // namespace

hipError_t LaunchCountCall(const CountCallParams& params, hipStream_t stream) {
  CountCallParams p = params;
  void* args[] = {&p};
  return hipLaunchKernel(CountCall, dim3(1), dim3(64), args, 0, stream);
}

}  // namespace octet
