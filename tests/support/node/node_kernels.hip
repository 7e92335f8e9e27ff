#include "tests/support/node/node_kernels.h"

#include <hip/hip_runtime.h>

#include <cstdint>

#include "device_ops.h"
#include "runtime/device/wait.h"

namespace octet {

__global__ void ExchangeKernel(ExchangeParams p) {
  if (threadIdx.x != 0) return;
  if (p.to != nullptr) device::StoreRelease<device::Scope::kSystem>(p.to, p.epoch);
  if (p.flag != nullptr && !device::WaitEpoch(p.port, p.flag, p.epoch, p.site)) return;
  *p.passed += 1;
}

__global__ void RefuseKernel(RefuseParams p) {
  if (threadIdx.x != 0) return;
  device::Fail(p.port, device::FailureKind::kInput, p.site, 0, p.value, 0);
}

__global__ void StubbornKernel(uint32_t* word) {
  if (threadIdx.x != 0) return;
  while (device::LoadRelaxed<device::Scope::kSystem>(word) == 0) {
    for (int i = 0; i < 64; ++i) (void)device::Clock();
  }
}

__global__ void WorkKernel(uint64_t ticks) {
  if (threadIdx.x != 0) return;
  const uint64_t start = device::Clock();
  for (uint32_t polls = 1; device::Clock() - start < ticks; ++polls) device::Pause(polls);
}

__global__ void TouchKernel(const uint32_t* word, uint32_t* result) {
  if (threadIdx.x == 0) *result = device::LoadRelaxed<device::Scope::kSystem>(word);
}

__global__ void StoreWordsKernel(WordsParams p) {
  const int i = static_cast<int>(threadIdx.x);
  if (i < p.count) *p.words[i] = p.value;
}

__global__ void CheckWordsKernel(WordsParams p) {
  if (threadIdx.x != 0) return;
  for (int i = 0; i < p.count; ++i) {
    if (*p.words[i] != p.value) *p.wrong += 1;
  }
}

namespace {

template <typename... Params>
hipError_t Launch(void (*kernel)(Params...), hipStream_t stream, Params... params) {
  void* args[] = {&params...};
  return hipLaunchCooperativeKernel(kernel, dim3(1), dim3(64), args, 0, stream);
}

}  // namespace

hipError_t LaunchExchange(const ExchangeParams& params, hipStream_t stream) {
  return Launch(ExchangeKernel, stream, params);
}
hipError_t LaunchRefuse(const RefuseParams& params, hipStream_t stream) {
  return Launch(RefuseKernel, stream, params);
}
hipError_t LaunchStubborn(uint32_t* word, hipStream_t stream) {
  return Launch(StubbornKernel, stream, word);
}
hipError_t LaunchWork(uint64_t ticks, hipStream_t stream) {
  return Launch(WorkKernel, stream, ticks);
}
hipError_t LaunchTouch(const uint32_t* word, uint32_t* result, hipStream_t stream) {
  return Launch(TouchKernel, stream, word, result);
}
hipError_t LaunchStoreWords(const WordsParams& params, hipStream_t stream) {
  return Launch(StoreWordsKernel, stream, params);
}
hipError_t LaunchCheckWords(const WordsParams& params, hipStream_t stream) {
  return Launch(CheckWordsKernel, stream, params);
}

}  // namespace octet
