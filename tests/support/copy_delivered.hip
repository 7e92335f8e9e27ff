#include "tests/support/copy_delivered.h"

#include <hip/hip_runtime.h>

#include <algorithm>
#include <cstddef>

#include "device_ops.h"
#include "runtime/device/load_kernel.h"
#include "runtime/device/wait.h"

namespace octet {
namespace {

__global__ void CopyDelivered(CopyDeliveredParams p) {
  if (device::HasFailed(p.port)) return;
  const auto* from = static_cast<const device::Vec16*>(p.from);
  auto* to = static_cast<device::Vec16*>(p.to);
  const size_t vecs = p.bytes / sizeof(device::Vec16);
  const size_t step = static_cast<size_t>(gridDim.x) * blockDim.x;
  for (size_t i = static_cast<size_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < vecs; i += step) {
    to[i] = from[i];
  }
}

}  // namespace

hipError_t LaunchCopyDelivered(const CopyDeliveredParams& params, hipStream_t stream) {
  // As few as have work: in emulation each thread takes time.
  constexpr size_t kThreads = 64;
  constexpr size_t kMaxBlocks = 256;
  const size_t blocks =
      std::clamp<size_t>(params.bytes / (kThreads * sizeof(device::Vec16)), 1, kMaxBlocks);
  CopyDeliveredParams copy = params;
  void* args[] = {&copy};
  return hipLaunchKernel(CopyDelivered, dim3(static_cast<unsigned>(blocks)), dim3(kThreads), args,
                         0, stream);
}

hipError_t LoadCopyDelivered() { return device::LoadKernel(CopyDelivered); }

}  // namespace octet
