#include <hip/hip_cooperative_groups.h>
#include <hip/hip_runtime.h>

#include "device_ops.h"
#include "tests/platform/emulation/emulation_kernels.h"

namespace octet {
namespace {

using device::Scope;
using device::Vec16;

constexpr int kVectors = kRowBytes / static_cast<int>(sizeof(Vec16));
constexpr int kRowLanes = 16;  // that copy a row: ThreadSanitizer has few contexts

__global__ void SendRow(Publish how, char* row, uint32_t* flag, uint32_t value) {
  auto* vectors = reinterpret_cast<Vec16*>(row);
  const int end = threadIdx.x < kRowLanes ? kVectors : 0;
  for (int i = static_cast<int>(threadIdx.x); i < end; i += kRowLanes) {
    device::StoreStream(&vectors[i], Vec16{{value, value, value, value}});
  }
  if (how != Publish::kNoWaveSync) device::SyncWave();
  if (device::Lane() != 0) return;
  __shared__ uint32_t stored;
  switch (how) {
    case Publish::kRelease:
    case Publish::kNoWaveSync:
      device::StoreRelease<Scope::kSystem>(flag, value);
      break;
    case Publish::kFence:
      device::FenceRelease<Scope::kSystem>();
      device::StoreRelaxed<Scope::kSystem>(flag, value);
      break;
    case Publish::kRelaxed:
      device::StoreRelaxed<Scope::kSystem>(flag, value);
      break;
    case Publish::kReleaseDevice:
      device::StoreRelease<Scope::kDevice>(flag, value);
      break;
    case Publish::kFenceDevice:
      device::FenceRelease<Scope::kDevice>();
      device::StoreRelaxed<Scope::kSystem>(flag, value);
      break;
    case Publish::kPlainFlag:
      device::FenceRelease<Scope::kSystem>();
      *flag = value;
      break;
    case Publish::kOtherWave:
      if (device::Wave() == 0) {
        device::StoreRelaxed<Scope::kBlock>(&stored, value);
      } else {
        while (device::LoadRelaxed<Scope::kBlock>(&stored) != value) device::Pause();
        device::StoreRelease<Scope::kSystem>(flag, value);
      }
      break;
  }
}

__global__ void ReceiveRow(Consume how, const char* row, const uint32_t* flag, uint32_t value,
                           char* to) {
  if (device::Lane() == 0) {
    while (device::LoadRelaxed<Scope::kSystem>(flag) != value) device::Pause();
    if (how == Consume::kAcquire) {
      device::LoadAcquire<Scope::kSystem>(flag);
    } else if (how == Consume::kFenceDevice) {
      device::FenceAcquire<Scope::kDevice>();
    } else if (how != Consume::kRelaxed) {
      device::FenceAcquire<Scope::kSystem>();
    }
  }
  if (how != Consume::kNoWaveSync) {
    device::SyncWave();
  } else {
    device::Ballot(true);  // a meeting that orders nothing
  }
  const auto* from_vectors = reinterpret_cast<const Vec16*>(row);
  auto* to_vectors = reinterpret_cast<Vec16*>(to);
  for (int i = device::Lane(); i < kVectors; i += kRowLanes) {
    device::StoreStream(&to_vectors[i], device::LoadStream(&from_vectors[i]));
  }
}

__global__ void Relay(const uint32_t* in, uint32_t* out, uint32_t value) {
  if (threadIdx.x != 0) return;
  while (device::LoadRelaxed<Scope::kSystem>(in) != value) device::Pause();
  device::FenceAcquire<Scope::kSystem>();
  device::StoreRelease<Scope::kDevice>(out, value);
}

template <Scope scope>
__device__ void MeetAt(uint32_t* counter, uint32_t waves, bool release) {
  device::SyncWave();
  if (device::Lane() == 0) {
    if (release) {
      device::FetchAddAcqRel<scope>(counter, 1U);
    } else {
      device::FetchAddRelaxed<scope>(counter, 1U);
    }
    while (device::LoadRelaxed<scope>(counter) < waves) device::Pause();
    if (release) device::FenceAcquire<scope>();
  }
  device::SyncWave();
}

__global__ void Exchange(Meet meet, uint32_t* values, uint32_t* counter, uint32_t* errors) {
  HIP_DYNAMIC_SHARED(uint32_t, shared);
  const uint32_t threads = gridDim.x * blockDim.x;
  const uint32_t thread = blockIdx.x * blockDim.x + threadIdx.x;
  const auto wave_size = static_cast<uint32_t>(device::kWaveSize);
  uint32_t* place = gridDim.x == 1 ? shared : values;
  place[thread] = thread + 1;
  switch (meet) {
    case Meet::kBarrier:
      if (gridDim.x == 1) {
        __syncthreads();
      } else {
        cooperative_groups::this_grid().sync();
      }
      break;
    case Meet::kReleaseDevice:
      MeetAt<Scope::kDevice>(counter, threads / wave_size, true);
      break;
    case Meet::kReleaseBlock:
      MeetAt<Scope::kBlock>(counter, threads / wave_size, true);
      break;
    case Meet::kRelaxed:
      MeetAt<Scope::kDevice>(counter, threads / wave_size, false);
      break;
  }
  const uint32_t next = (thread + (gridDim.x == 1 ? wave_size : blockDim.x)) % threads;
  if (place[next] != next + 1) device::FetchAddRelaxed<Scope::kDevice>(errors, 1U);
}

__global__ void WriteRecord(Publish how, uint32_t* record, uint32_t value) {
  if (threadIdx.x != 0) return;
  for (int i = 1; i <= 3; ++i) record[i] = value;
  if (how == Publish::kRelease) {
    device::StoreRelease<Scope::kSystem>(record, value);
  } else {
    device::StoreRelaxed<Scope::kSystem>(record, value);
  }
}

}  // namespace

hipError_t LaunchSendRow(Publish how, char* row, uint32_t* flag, uint32_t value,
                         hipStream_t stream) {
  void* arguments[] = {&how, &row, &flag, &value};
  const int threads = how == Publish::kOtherWave ? 2 * device::kWaveSize : kRowLanes;
  return hipLaunchKernel(SendRow, dim3(1), dim3(static_cast<unsigned>(threads)), arguments, 0,
                         stream);
}

hipError_t LaunchReceiveRow(Consume how, const char* row, const uint32_t* flag, uint32_t value,
                            char* to, hipStream_t stream) {
  void* arguments[] = {&how, &row, &flag, &value, &to};
  return hipLaunchKernel(ReceiveRow, dim3(1), dim3(kRowLanes), arguments, 0, stream);
}

hipError_t LaunchRelay(const uint32_t* in, uint32_t* out, uint32_t value, hipStream_t stream) {
  void* arguments[] = {&in, &out, &value};
  return hipLaunchKernel(Relay, dim3(1), dim3(32), arguments, 0, stream);
}

hipError_t LaunchExchange(Meet meet, uint32_t* values, uint32_t* counter, uint32_t* errors,
                          LaunchShape shape, hipStream_t stream) {
  void* arguments[] = {&meet, &values, &counter, &errors};
  return hipLaunchCooperativeKernel(Exchange, dim3(static_cast<unsigned>(shape.blocks)),
                                    dim3(static_cast<unsigned>(shape.threads)), arguments,
                                    static_cast<unsigned>(shape.shared_bytes), stream);
}

hipError_t LaunchWriteRecord(Publish how, uint32_t* record, uint32_t value, hipStream_t stream) {
  void* arguments[] = {&how, &record, &value};
  return hipLaunchKernel(WriteRecord, dim3(1), dim3(32), arguments, 0, stream);
}

}  // namespace octet
