#include <hip/hip_cooperative_groups.h>
#include <hip/hip_runtime.h>

#include "device_ops.h"
#include "tests/platform/emulation/emulation_kernels.h"

namespace octet {
namespace {

using device::Scope;
using device::Vec16;

__global__ void TouchAddress(Touch touch, char* address) {
  auto* vector = reinterpret_cast<Vec16*>(address);
  auto* word = reinterpret_cast<uint32_t*>(address);
  switch (touch) {
    case Touch::kLoadStream:
      if (device::LoadStream(vector).w[0] == 0x12345678U) __threadfence();
      break;
    case Touch::kStoreStream:
      device::StoreStream(vector, Vec16{{1, 2, 3, 4}});
      break;
    case Touch::kLoad:
      device::LoadRelaxed<Scope::kSystem>(word);
      break;
    case Touch::kStore:
      device::StoreRelease<Scope::kSystem>(word, 1U);
      break;
    case Touch::kAdd:
      device::FetchAddAcqRel<Scope::kSystem>(word, 1U);
      break;
    case Touch::kLoadOnce:
      device::LoadOnce16(vector);
      break;
    case Touch::kStoreOnce:
      device::StoreOnce16(vector, Vec16{{1, 2, 3, 4}});
      break;
  }
}

__global__ void DivergentWave() {
  // NOLINTNEXTLINE(bugprone-branch-clone): the same barrier, but not the same call
  if (device::Lane() == 0) {
    device::SyncWave();
  } else {
    device::SyncWave();
  }
}

__global__ void DivergentBlock() {
  if (threadIdx.x == 0) {
    device::Ballot(true);
  } else {
    __syncthreads();
  }
}

__global__ void LeaveBeforeGridSync() {
  if (blockIdx.x == 1) return;
  cooperative_groups::this_grid().sync();
}

__device__ __noinline__ uint32_t Recurse(int depth, volatile uint32_t* seed) {
  volatile uint32_t ballast[64];
  for (int i = 0; i < 64; ++i) ballast[i] = *seed + static_cast<uint32_t>(i);
  if (depth == 0) return ballast[7];
  return Recurse(depth - 1, ballast) + ballast[63];
}

__global__ void DeepRecursion(uint32_t* out, int depth) {
  uint32_t seed = threadIdx.x;
  out[threadIdx.x] = Recurse(depth, &seed);
}

__global__ void TooMuchStaticShared(uint32_t* out) {
  __shared__ uint32_t large[12'000];
  __shared__ uint32_t more[12'000];
  large[threadIdx.x] = 1;
  more[threadIdx.x] = 2;
  __syncthreads();
  out[threadIdx.x] = large[threadIdx.x ^ 1] + more[threadIdx.x ^ 1];
}

}  // namespace

hipError_t LaunchTouch(Touch touch, char* address, hipStream_t stream) {
  void* arguments[] = {&touch, &address};
  return hipLaunchKernel(TouchAddress, dim3(1), dim3(1), arguments, 0, stream);
}

hipError_t LaunchDivergentWave(hipStream_t stream) {
  return hipLaunchKernel(DivergentWave, dim3(1), dim3(64), nullptr, 0, stream);
}

hipError_t LaunchDivergentBlock(hipStream_t stream) {
  return hipLaunchKernel(DivergentBlock, dim3(1), dim3(32), nullptr, 0, stream);
}

hipError_t LaunchLeaveBeforeGridSync(hipStream_t stream) {
  return hipLaunchCooperativeKernel(LeaveBeforeGridSync, dim3(2), dim3(32), nullptr, 0, stream);
}

hipError_t LaunchDeepRecursion(uint32_t* out, int depth, hipStream_t stream) {
  void* arguments[] = {&out, &depth};
  return hipLaunchKernel(DeepRecursion, dim3(1), dim3(1), arguments, 0, stream);
}

hipError_t LaunchTooMuchStaticShared(uint32_t* out, hipStream_t stream) {
  void* arguments[] = {&out};
  return hipLaunchKernel(TooMuchStaticShared, dim3(1), dim3(32), arguments, 0, stream);
}

}  // namespace octet
