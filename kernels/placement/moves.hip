// Moves experts between ranks, and switches to the placement that has them there:
//
//   side stream of each rank          its stream
//   ------------------------          ----------
//   CopyExperts ── peer stores ──┐    calls by the old table
//                                └──► Switch    arrived[rank] on all ranks, wait for all of them,
//                                               new table
//                                     calls by the new table
//
// Copies go into slots that are free in the old table, and a rank switches to the new one only when
// all ranks have made theirs. So the old placement stays whole until all ranks have come to the
// switch, and from then on the new one is whole on every rank: which of them is in force after a
// failure follows from the ranks' own words in `arrived`.
#include <hip/hip_runtime.h>

#include "device_ops.h"
#include "kernels/placement/kernels.h"
#include "kernels/placement/moves_device.h"
#include "runtime/device/launch_cooperative.h"
#include "runtime/device/load_kernel.h"
#include "runtime/device/wait.h"

namespace octet::placement {
namespace {

__global__ void __launch_bounds__(1024) CopyExperts(const CopyExpertsParams p) {
  // After a failure the old placement stays, and with it what lies in these slots.
  if (device::HasFailed(p.failure)) return;
  for (int i = 0; i < p.num_copies; ++i) {
    const ExpertCopy copy = p.copies[i];
    for (const SlotArray& array : p.arrays) CopySlot(p, array, copy);
  }
  device::FenceRelease<device::Scope::kSystem>();
}

__global__ void __launch_bounds__(1024) Switch(const SwitchParams p) {
  if (!Meet(p)) return;
  UpdateTable(p.update);
  device::SyncBlockStores();  // the release covers what all waves have stored
  if (threadIdx.x == 0) device::StoreRelease<device::Scope::kSystem>(p.done, p.number);
}

}  // namespace

hipError_t LoadMoves() {
  const hipError_t loaded = device::LoadKernel(CopyExperts);
  return loaded != hipSuccess ? loaded : device::LoadKernel(Switch);
}

hipError_t LaunchCopyExperts(const CopyExpertsParams& params, const LaunchShape& shape,
                             hipStream_t stream) {
  CopyExpertsParams p = params;
  void* args[] = {&p};
  return hipLaunchKernel(CopyExperts, dim3(static_cast<unsigned>(shape.blocks)),
                         dim3(static_cast<unsigned>(shape.threads)), args,
                         static_cast<unsigned>(shape.shared_bytes), stream);
}

hipError_t LaunchSwitch(const SwitchParams& params, const LaunchShape& shape, hipStream_t stream) {
  return device::LaunchCooperative(Switch, params, shape, stream);
}

}  // namespace octet::placement
