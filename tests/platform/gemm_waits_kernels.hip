#include <cstdint>

#include "device_ops.h"
#include "gemm/async.h"
#include "tests/platform/gemm_waits_kernels.h"

namespace octet {
namespace {

using device::Scope;

struct Walk {
  GemmWaitParams p;
  uint64_t start;

  __device__ bool GivesUp(uint64_t waited) const { return waited > p.deadline; }
  __device__ void TellStuck() const {
    device::StoreRelease<Scope::kSystem>(p.gave_up, device::Clock() - start);
  }
};

__global__ void WaitForOther(const GemmWaitParams p) {
  __shared__ uint64_t memory;
  const uint32_t barrier = device::internal::SharedAddress(&memory);
  if (threadIdx.x == 0) {
    device::internal::InitBarrier(barrier, 1);
    device::internal::PublishBarriers();
  }
  __syncthreads();
  if (device::Lane() != 0) return;
  const uint64_t start = device::Clock();
  if (device::Wave() == 0) {
    const Walk walk = {p, start};
    if (!device::internal::WaitForWarps(barrier, 0, walk)) device::internal::EndKernel(walk);
    device::StoreRelease<Scope::kSystem>(p.waited, device::Clock() - start);
  } else if (p.late > 0) {
    while (device::Clock() - start < p.late) device::Pause();
    device::internal::Arrive(barrier);
  }
}

}  // namespace

hipError_t LaunchGemmWait(const GemmWaitParams& params, hipStream_t stream) {
  WaitForOther<<<1, 2 * device::kWaveSize, 0, stream>>>(params);
  return hipGetLastError();
}

}  // namespace octet
