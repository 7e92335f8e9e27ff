// A thread reads a counter.
#include "kernels/ep/base/load_reading.h"

#include <hip/hip_runtime.h>

#include "device_ops.h"
#include "kernels/ep/device/load_counters_device.h"
#include "runtime/device/load_kernel.h"

namespace octet {
namespace {

constexpr int kThreads = 64;

__global__ void __launch_bounds__(kThreads) ReadLoads(const ReadLoadsParams p) {
  const auto c = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (c >= p.counters.num_counters) return;
  p.read[c] = device::LoadRelaxed<device::Scope::kDevice>(p.counters.totals + c);
  uint64_t rows = 0;
  while (!device::ReadWindow(p.counters, c, &rows)) {
  }
  p.read[p.counters.num_counters + c] = rows;
}

}  // namespace

hipError_t LoadReadLoads() { return device::LoadKernel(ReadLoads); }

hipError_t LaunchReadLoads(const ReadLoadsParams& params, hipStream_t stream) {
  ReadLoadsParams p = params;
  void* args[] = {&p};
  const int blocks = (params.counters.num_counters + kThreads - 1) / kThreads;
  return hipLaunchKernel(ReadLoads, dim3(static_cast<unsigned>(blocks)), dim3(kThreads), args, 0,
                         stream);
}

}  // namespace octet
