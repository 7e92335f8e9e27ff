// One wave; each lane waits for some of the nodes.
#include "runtime/net/rails/arrival.h"

#include <hip/hip_runtime.h>

#include <cstdint>

#include "device_ops.h"
#include "runtime/device/load_kernel.h"
#include "runtime/device/wait.h"

namespace octet::device {

__global__ void AwaitArrivalsKernel(ArrivalParams params) {
  // The number lies in memory, not in the launch parameters, so that a replayed graph keeps
  // counting. The host function that wrote it came before this kernel in the stream.
  const uint64_t exchange = LoadRelaxed<Scope::kSystem>(params.posted);
  if (LoadRelaxed<Scope::kSystem>(params.port.abort_word) != 0) {
    // The host function may have posted nothing, so that the number is that of an exchange which
    // has arrived. What follows in the stream must find a failure, not that exchange's bytes.
    const auto other = static_cast<uint32_t>(params.node == 0 ? 1 : 0);
    Fail(params.port, FailureKind::kReleased, {params.site, -1, other}, exchange, exchange, 0);
    return;
  }
  uint64_t start = 0;
  for (int node = static_cast<int>(threadIdx.x); node < params.num_nodes;
       node += static_cast<int>(blockDim.x)) {
    const Site site = {params.site, -1, static_cast<uint32_t>(node)};
    if (node != params.node &&
        !WaitEpoch(params.port, params.arrived + node, exchange, site, &start)) {
      return;
    }
  }
}

// Not a cooperative launch, of which a GPU may run only one at a time: it can be beside a dispatch
// that waits for what this waits for.
hipError_t LaunchAwaitArrivals(const ArrivalParams& params, hipStream_t stream) {
  ArrivalParams copy = params;
  void* args[] = {&copy};
  return hipLaunchKernel(AwaitArrivalsKernel, dim3(1), dim3(kWaveSize), args, 0, stream);
}

hipError_t LoadAwaitArrivals() { return LoadKernel(AwaitArrivalsKernel); }

}  // namespace octet::device
