#include <hip/hip_cooperative_groups.h>
#include <hip/hip_runtime.h>

#include "device_ops.h"
#include "tests/platform/emulation/emulation_kernels.h"

namespace octet {
namespace {

using device::Scope;

__global__ void WaveOps(WaveResult* results, bool odd_leave) {
  const uint32_t thread = blockIdx.x * blockDim.x + threadIdx.x;
  WaveResult result = {};
  result.from_first = device::Shuffle(thread, 0);
  result.xor_1 = device::ShuffleXor(thread, 1);
  result.up_1 = device::ShuffleUp(thread, 1);
  result.from_next =
      device::Shuffle(uint64_t{thread} << 33, (device::Lane() + 1) % device::kWaveSize);
  results[thread] = result;
  if (odd_leave && thread % 2 == 1) return;
  results[thread].odd = device::Ballot(thread % 2 == 1);
}

template <int kWords>
__device__ uint32_t* Scratch() {
  __shared__ uint32_t words[kWords];
  return words;
}

__global__ void BlockSum(uint32_t* sums, int rounds) {
  HIP_DYNAMIC_SHARED(uint32_t, numbers);
  __shared__ uint32_t total;
  if (threadIdx.x == 0) {
    total = 0;
    Scratch<16>()[15] = 0;
  }
  for (int round = 0; round < rounds; ++round) {
    numbers[threadIdx.x] = threadIdx.x + blockIdx.x;
    __syncthreads();
    if (threadIdx.x == static_cast<uint32_t>(round) % blockDim.x) {
      for (uint32_t i = 0; i < blockDim.x; ++i) total += numbers[i];
      Scratch<16>()[15] += 1;
    }
    __syncthreads();
  }
  if (threadIdx.x == 0) sums[blockIdx.x] = total / Scratch<16>()[15];
}

__global__ void PollTogether(uint32_t* polled, uint32_t* stored) {
  if (blockIdx.x == gridDim.x - 1) {
    device::StoreRelaxed<Scope::kDevice>(stored + 2 * threadIdx.x, 1U);
    device::StoreRelaxed<Scope::kDevice>(stored + 2 * threadIdx.x + 1, 1U);
    return;
  }
  const uint32_t* const mine = polled + 2 * threadIdx.x;
  bool missing = true;
  while (device::Ballot(missing) != 0) {
    const uint32_t first = device::LoadRelaxed<Scope::kDevice>(mine);
    const uint32_t second = device::LoadRelaxed<Scope::kDevice>(mine + 1);
    missing = first == 0 || second == 0;
    device::Pause();
  }
}

__global__ void GridRounds(uint32_t* counter, uint32_t* errors, int rounds) {
  const uint32_t threads = gridDim.x * blockDim.x;
  for (uint32_t round = 0; round < static_cast<uint32_t>(rounds); ++round) {
    if (device::LoadRelaxed<Scope::kDevice>(counter) != round * threads) {
      device::FetchAddRelaxed<Scope::kDevice>(errors, 1U);
    }
    cooperative_groups::this_grid().sync();
    device::FetchAddRelaxed<Scope::kDevice>(counter, 1U);
    cooperative_groups::this_grid().sync();
  }
}

__global__ void ReadFreshShared(uint32_t* values) {
  __shared__ uint32_t fresh[4];
  if (threadIdx.x < 4) values[blockIdx.x * 4 + threadIdx.x] = fresh[threadIdx.x];
  __syncthreads();
  if (threadIdx.x < 4) fresh[threadIdx.x] = 1;
}

dim3 Blocks(const LaunchShape& shape) { return dim3(static_cast<unsigned>(shape.blocks)); }
dim3 Threads(const LaunchShape& shape) { return dim3(static_cast<unsigned>(shape.threads)); }

}  // namespace

hipError_t LaunchWaveOps(WaveResult* results, bool odd_leave, LaunchShape shape,
                         hipStream_t stream) {
  void* arguments[] = {&results, &odd_leave};
  return hipLaunchKernel(WaveOps, Blocks(shape), Threads(shape), arguments, 0, stream);
}

hipError_t LaunchBlockSum(uint32_t* sums, int rounds, LaunchShape shape, hipStream_t stream) {
  void* arguments[] = {&sums, &rounds};
  return hipLaunchKernel(BlockSum, Blocks(shape), Threads(shape), arguments, shape.shared_bytes,
                         stream);
}

hipError_t LimitBlockSum(int shared_bytes) {
  return hipFuncSetAttribute(BlockSum, hipFuncAttributeMaxDynamicSharedMemorySize, shared_bytes);
}

hipError_t AskAboutBlockSum(size_t shared_bytes, int* limit, int* blocks) {
  hipFuncAttributes attributes;
  const hipError_t error = hipFuncGetAttributes(&attributes, BlockSum);
  if (error != hipSuccess) return error;
  *limit = attributes.maxDynamicSharedSizeBytes;
  return hipOccupancyMaxActiveBlocksPerMultiprocessor(blocks, BlockSum, 32, shared_bytes);
}

hipError_t LaunchGridRounds(uint32_t* counter, uint32_t* errors, int rounds, LaunchShape shape,
                            bool cooperative, hipStream_t stream) {
  void* arguments[] = {&counter, &errors, &rounds};
  if (!cooperative) {
    return hipLaunchKernel(GridRounds, Blocks(shape), Threads(shape), arguments, 0, stream);
  }
  return hipLaunchCooperativeKernel(GridRounds, Blocks(shape), Threads(shape), arguments,
                                    static_cast<unsigned>(shape.shared_bytes), stream);
}

hipError_t LaunchPollTogether(uint32_t* polled, uint32_t* stored, LaunchShape shape,
                              hipStream_t stream) {
  void* arguments[] = {&polled, &stored};
  return hipLaunchKernel(PollTogether, Blocks(shape), Threads(shape), arguments, 0, stream);
}

hipError_t LaunchReadFreshShared(uint32_t* values, LaunchShape shape, hipStream_t stream) {
  void* arguments[] = {&values};
  return hipLaunchKernel(ReadFreshShared, Blocks(shape), Threads(shape), arguments, 0, stream);
}

}  // namespace octet
