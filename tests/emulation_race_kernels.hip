#include <hip/hip_runtime.h>

#include "device_ops.h"
#include "tests/emulation_kernels.h"

namespace octet {
namespace {

using device::Scope;
using device::Vec16;

constexpr int kVectors = kRowBytes / static_cast<int>(sizeof(Vec16));

__global__ void SendRow(Publish how, char* row, uint32_t* flag, uint32_t value) {
  auto* vectors = reinterpret_cast<Vec16*>(row);
  for (int i = device::Lane(); i < kVectors; i += device::kWaveSize) {
    device::StoreStream(&vectors[i], Vec16{{value, value, value, value}});
  }
  if (how != Publish::kNoWaveSync) device::SyncWave();
  if (device::Lane() != 0) return;
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
  }
}

__global__ void ReceiveRow(const char* row, const uint32_t* flag, uint32_t value, char* to) {
  if (device::Lane() == 0) {
    while (device::LoadRelaxed<Scope::kSystem>(flag) != value) device::Pause();
    device::FenceAcquire<Scope::kSystem>();
  }
  device::SyncWave();
  const auto* from_vectors = reinterpret_cast<const Vec16*>(row);
  auto* to_vectors = reinterpret_cast<Vec16*>(to);
  for (int i = device::Lane(); i < kVectors; i += device::kWaveSize) {
    device::StoreStream(&to_vectors[i], device::LoadStream(&from_vectors[i]));
  }
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
  return hipLaunchKernel(SendRow, dim3(1), dim3(16), arguments, 0, stream);
}

hipError_t LaunchReceiveRow(const char* row, const uint32_t* flag, uint32_t value, char* to,
                            hipStream_t stream) {
  void* arguments[] = {&row, &flag, &value, &to};
  return hipLaunchKernel(ReceiveRow, dim3(1), dim3(16), arguments, 0, stream);
}

hipError_t LaunchWriteRecord(Publish how, uint32_t* record, uint32_t value, hipStream_t stream) {
  void* arguments[] = {&how, &record, &value};
  return hipLaunchKernel(WriteRecord, dim3(1), dim3(32), arguments, 0, stream);
}

}  // namespace octet
