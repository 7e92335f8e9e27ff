// Kernels that measure the least cost of links, flags, barriers and launches.
#include <hip/hip_runtime.h>

#include "device_ops.h"
#include "kernels/ep/device/row_copy.h"
#include "runtime/device/bulk_ring.h"
#include "runtime/device/launch_cooperative.h"
#include "runtime/device/load_kernel.h"
#include "runtime/device/node_barrier_device.h"
#include "runtime/device/wait.h"
#include "tools/measure/probe/ceilings_kernels.h"

namespace octet {
namespace {

using device::Scope;
using device::Vec16;

constexpr int kMaxThreads = 512;

// A ring of three rows: one is loaded while another is stored and a third may still be read.
constexpr int kSlots = 3;
using Ring = device::BulkRing<kSlots>;
constexpr int kMaxBulkWaves = 8;

struct Row {
  const char* from;
  char* to;
};
__device__ Row RowOf(const MoveRowsParams& p, int i) {
  const int row = i / p.num_pairs;
  const int pair = i - row * p.num_pairs;
  const size_t offset = static_cast<size_t>(row) * p.row_bytes;
  return {p.from[pair] + offset, p.to[pair] + offset};
}

__global__ void __launch_bounds__(kMaxThreads, 2) MoveRows(const MoveRowsParams p) {
  const int waves = blockDim.x / device::kWaveSize;
  const int vecs = p.row_bytes / static_cast<int>(sizeof(Vec16));
  for (int i = blockIdx.x * waves + device::Wave(); i < p.rows_per_pair * p.num_pairs;
       i += gridDim.x * waves) {
    const Row row = RowOf(p, i);
    device::WaveCopyRow(reinterpret_cast<Vec16*>(row.to), reinterpret_cast<const Vec16*>(row.from),
                        {0, vecs});
  }
}

__global__ void __launch_bounds__(kMaxThreads) MoveRowsInBulk(const MoveRowsParams p) {
  HIP_DYNAMIC_SHARED(Vec16, shared)
  const int waves = blockDim.x / device::kWaveSize;
  const int first = blockIdx.x * waves + device::Wave();
  const int step = gridDim.x * waves;
  const auto bytes = static_cast<uint32_t>(p.row_bytes);
  const int total = p.rows_per_pair * p.num_pairs;
  const int mine = first < total ? (total - first + step - 1) / step : 0;
  Ring ring(shared, device::Wave(), waves, bytes);
  if (mine > 0) ring.Load(0, RowOf(p, first).from, bytes);
  for (int i = 0; i < mine; ++i) {
    if (i + 1 < mine) {
      ring.Load(static_cast<uint32_t>(i) + 1, RowOf(p, first + (i + 1) * step).from, bytes);
    }
    device::BulkStore(RowOf(p, first + i * step).to, ring.Await(static_cast<uint32_t>(i)), bytes);
    device::BulkCommit();
  }
  device::BulkWaitWritten<0>();
}

__global__ void ReadClock(uint64_t* clock) { *clock = device::Clock(); }

__global__ void PingPong(const PingPongParams p) {
  if (threadIdx.x != 0) return;
  for (uint64_t round = p.first; round < p.first + p.rounds; ++round) {
    const device::Site site = {p.site, p.peer, static_cast<uint32_t>(round)};
    if (p.call) device::StoreRelease<Scope::kSystem>(p.theirs, round);
    if (!device::WaitEpoch(p.port, p.mine, round, site)) return;
    if (!p.call) device::StoreRelease<Scope::kSystem>(p.theirs, round);
  }
}

__global__ void NodeBarriers(const device::NodeBarrierParams p, uint32_t rounds) {
  for (uint32_t round = 0; round < rounds; ++round) {
    if (!device::NodeBarrier(p)) return;
  }
}

}  // namespace

hipError_t LaunchMoveRows(const MoveRowsParams& params, int blocks, int wave_size,
                          hipStream_t stream) {
  constexpr int kWaves = 16;
  const int threads = wave_size * kWaves < kMaxThreads ? wave_size * kWaves : kMaxThreads;
  MoveRowsParams p = params;
  void* args[] = {&p};
  return hipLaunchKernel(MoveRows, dim3(static_cast<unsigned>(blocks)),
                         dim3(static_cast<unsigned>(threads)), args, 0, stream);
}

hipError_t LaunchMoveRowsInBulk(const MoveRowsParams& params, int blocks, int wave_size,
                                hipStream_t stream) {
  const auto row_bytes = static_cast<uint32_t>(params.row_bytes);
  int waves = kMaxBulkWaves;
  while (waves > 0 && Ring::SharedBytes(waves, row_bytes) > device::kMaxBulkSharedBytes) --waves;
  if (waves == 0) return hipErrorInvalidValue;
  const size_t shared_bytes = Ring::SharedBytes(waves, row_bytes);
  const hipError_t error = device::LoadKernelWithShared(MoveRowsInBulk, shared_bytes);
  if (error != hipSuccess) return error;
  MoveRowsParams p = params;
  void* args[] = {&p};
  return hipLaunchKernel(MoveRowsInBulk, dim3(static_cast<unsigned>(blocks)),
                         dim3(static_cast<unsigned>(waves * wave_size)), args,
                         static_cast<unsigned>(shared_bytes), stream);
}

hipError_t LaunchReadClock(uint64_t* clock, hipStream_t stream) {
  void* args[] = {&clock};
  return hipLaunchKernel(ReadClock, dim3(1), dim3(1), args, 0, stream);
}

hipError_t LaunchPingPong(const PingPongParams& params, hipStream_t stream) {
  return device::LaunchCooperative(PingPong, params, {.blocks = 1, .threads = device::kWaveSize},
                                   stream);
}

hipError_t LaunchNodeBarriers(const device::NodeBarrierParams& params, uint32_t rounds,
                              hipStream_t stream) {
  constexpr int kThreads = 64;  // whole waves of 32 or 64, and at least kMaxRanks
  static_assert(kThreads >= kMaxRanks);
  device::NodeBarrierParams p = params;
  void* args[] = {&p, &rounds};
  return hipLaunchCooperativeKernel(NodeBarriers, dim3(1), dim3(kThreads), args, 0, stream);
}

hipError_t LoadLinkKernels() { return device::LoadKernels(MoveRows, MoveRowsInBulk); }

hipError_t LoadLatencyKernels() { return device::LoadKernels(ReadClock, PingPong, NodeBarriers); }

}  // namespace octet
