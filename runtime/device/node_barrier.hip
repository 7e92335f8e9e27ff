// One block per GPU: thread r tells rank r that this GPU has arrived, then waits for rank r's word.
//
//   GPU 0: arrived[ 0 1 2 ]     GPU 1: arrived[ 0 1 2 ]     GPU 2: arrived[ 0 1 2 ]
//                     ^                           ^
//                     +------ thread 0 ------ thread 1 of GPU 2
#include "runtime/device/node_barrier.h"

#include <hip/hip_runtime.h>

#include "runtime/device/launch_cooperative.h"
#include "runtime/device/load_kernel.h"
#include "runtime/device/node_barrier_device.h"

namespace octet::device {
namespace {

constexpr int kThreads = 64;  // whole waves of 32 or 64, and at least kMaxRanks
static_assert(kThreads >= kMaxRanks);

}  // namespace

__global__ void NodeBarrierKernel(NodeBarrierParams params) { NodeBarrier(params); }

hipError_t LaunchNodeBarrier(const NodeBarrierParams& params, hipStream_t stream) {
  return LaunchCooperative(NodeBarrierKernel, params, {.blocks = 1, .threads = kThreads}, stream);
}

hipError_t LoadNodeBarrier() { return LoadKernel(NodeBarrierKernel); }

}  // namespace octet::device
