#include "tests/runtime/primitives_kernels.h"

#include "device_ops.h"
#include "kernels/ep/device/delivery.h"
#include "kernels/ep/device/row_copy.h"
#include "kernels/ep/device/wave_scan.h"
#include "runtime/device/block_counter.h"
#include "runtime/device/call_epoch_device.h"
#include "runtime/device/wait.h"

namespace octet {
namespace {

using device::FetchAddRelaxed;
using device::Scope;

__global__ void BeginCallKernel(const device::FailurePort port, device::CallEpoch* call,
                                uint64_t* epochs) {
  const uint64_t epoch = device::BeginCall(port, call, gridDim.x);
  if (threadIdx.x == 0) epochs[blockIdx.x] = epoch;
}

__global__ void BegunCallKernel(const device::FailurePort port, device::CallEpoch* call,
                                uint64_t* epochs) {
  const uint64_t epoch = device::BegunCall(port, call);
  if (threadIdx.x == blockDim.x - 1) epochs[blockIdx.x] = epoch;
}

__global__ void LastBlockKernel(uint32_t* counter, uint32_t* sum, uint32_t* seen) {
  if (threadIdx.x == 0) FetchAddRelaxed<Scope::kDevice>(sum, blockIdx.x + 1);
  if (device::LastBlock(counter, gridDim.x) && threadIdx.x == blockDim.x - 1) {
    seen[blockIdx.x] = device::LoadRelaxed<Scope::kDevice>(sum);
  }
}

__global__ void DeliveryKernel(const DeliveryParams p) {
  const auto block = static_cast<int>(blockIdx.x);
  if (block == 1 && p.late < 0) return;
  if (block == p.late) {
    for (uint32_t polls = 0; device::LoadRelaxed<Scope::kDevice>(p.word) < 2 * p.call;) {
      device::Pause(++polls);
    }
  }
  device::DescribeDelivery(p.word, p.call, block == 0, block == 0,
                           [&](bool ok, int first, int step) {
                             for (int i = first; i < p.size; i += step) {
                               p.description[i] = ok ? i + 1 : 0;
                             }
                           });
}

__global__ void ScanKernel(int32_t* values, int n, int32_t* total) {
  const int32_t sum = device::WaveExclusiveScan(values, n);
  if (device::Lane() == 0) *total = sum;
}

__global__ void PartsKernel(int parts, int row_vecs, uint32_t* hits) {
  for (int part = 0; part < parts; ++part) {
    const device::RowPart range = device::PartOfRow(part, parts, row_vecs);
    for (int i = range.begin + device::Lane(); i < range.end; i += device::kWaveSize) {
      FetchAddRelaxed<Scope::kDevice>(&hits[i], 1U);
    }
  }
}

__global__ void WaitForTwoKernel(const device::FailurePort port, uint64_t* flags, uint64_t ticks) {
  if (blockIdx.x == 0) {
    const int lane = device::Lane();
    device::WaveWaitEpochs(port, lane < 2 ? flags + lane : nullptr, 1,
                           device::Site{0, -1, static_cast<uint32_t>(lane)});
  } else if (threadIdx.x == 0) {
    const uint64_t start = device::Clock();
    while (device::Clock() - start < ticks) device::Pause();
    device::StoreRelease<Scope::kSystem>(flags, uint64_t{1});
  }
}

}  // namespace

hipError_t LaunchWaitForTwo(const device::FailurePort& port, uint64_t* flags, uint64_t ticks,
                            int wave_size, hipStream_t stream) {
  device::FailurePort p = port;
  void* args[] = {&p, &flags, &ticks};
  return hipLaunchCooperativeKernel(WaitForTwoKernel, dim3(2),
                                    dim3(static_cast<unsigned>(wave_size)), args, 0, stream);
}

hipError_t LaunchBeginCall(const device::FailurePort& port, device::CallEpoch* call,
                           uint64_t* epochs, const LaunchShape& shape, hipStream_t stream) {
  device::FailurePort p = port;
  void* args[] = {&p, &call, &epochs};
  return hipLaunchKernel(BeginCallKernel, dim3(static_cast<unsigned>(shape.blocks)),
                         dim3(static_cast<unsigned>(shape.threads)), args, 0, stream);
}

hipError_t LaunchBegunCall(const device::FailurePort& port, device::CallEpoch* call,
                           uint64_t* epochs, const LaunchShape& shape, hipStream_t stream) {
  device::FailurePort p = port;
  void* args[] = {&p, &call, &epochs};
  return hipLaunchKernel(BegunCallKernel, dim3(static_cast<unsigned>(shape.blocks)),
                         dim3(static_cast<unsigned>(shape.threads)), args, 0, stream);
}

hipError_t LaunchLastBlock(uint32_t* counter, uint32_t* sum, uint32_t* seen,
                           const LaunchShape& shape, hipStream_t stream) {
  void* args[] = {&counter, &sum, &seen};
  return hipLaunchKernel(LastBlockKernel, dim3(static_cast<unsigned>(shape.blocks)),
                         dim3(static_cast<unsigned>(shape.threads)), args, 0, stream);
}

hipError_t LaunchDelivery(const DeliveryParams& params, int threads, hipStream_t stream) {
  DeliveryParams p = params;
  void* args[] = {&p};
  return hipLaunchCooperativeKernel(DeliveryKernel, dim3(2), dim3(static_cast<unsigned>(threads)),
                                    args, 0, stream);
}

hipError_t LaunchScan(int32_t* values, int n, int32_t* total, int wave_size, hipStream_t stream) {
  void* args[] = {&values, &n, &total};
  return hipLaunchKernel(ScanKernel, dim3(1), dim3(static_cast<unsigned>(wave_size)), args, 0,
                         stream);
}

hipError_t LaunchParts(int parts, int row_vecs, uint32_t* hits, int wave_size, hipStream_t stream) {
  void* args[] = {&parts, &row_vecs, &hits};
  return hipLaunchKernel(PartsKernel, dim3(1), dim3(static_cast<unsigned>(wave_size)), args, 0,
                         stream);
}

}  // namespace octet
