#include <hip/hip_runtime.h>

#include <cstdint>

#include "device_ops.h"
#include "row_mma.h"
#include "tests/platform/device_ops_kernels.h"

namespace octet {
namespace {

using device::Scope;
using device::Vec16;

constexpr int kMaxThreads = 256;

__global__ void Waves(WaveParams params) {
  __shared__ uint32_t exchange[kMaxThreads];
  const int thread = static_cast<int>(threadIdx.x);
  const int lane = device::Lane();
  const int wave_size = device::kWaveSize;
  if (thread == 0 && blockIdx.x == 0) {
    *params.facts = PlatformFacts{wave_size, device::kMinWaveSize, device::kClockHz};
  }
  WaveAnswers answers = {};
  answers.lane = lane;
  answers.wave = device::Wave();
  answers.from_lane_3 = device::Shuffle(static_cast<uint32_t>(thread), 3);
  answers.rotated =
      device::Shuffle((static_cast<uint64_t>(thread) << 40) + 7, (lane + 1) % wave_size);
  answers.xor_1 = device::ShuffleXor(static_cast<float>(thread) + 0.5F, 1);
  answers.xor_half = device::ShuffleXor(static_cast<uint32_t>(thread), wave_size / 2);
  answers.up_5 = device::ShuffleUp(static_cast<uint64_t>(thread) << 33, 5);
  answers.odd_threads = device::Ballot(thread % 2 == 1);
  exchange[thread] = static_cast<uint32_t>(thread) * 3;
  device::SyncWave();
  answers.neighbour = exchange[thread - lane + (lane + 1) % wave_size];
  params.answers[thread] = answers;
}

__global__ void Convert(ConvertParams params) {
  const int first = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  const int step = static_cast<int>(gridDim.x * blockDim.x);
  for (int i = first; i < params.pairs; i += step) {
    params.bf16[i] = device::PackBf16(params.floats[2 * i], params.floats[2 * i + 1]);
    params.fp16[i] = device::PackFp16(params.floats[2 * i], params.floats[2 * i + 1]);
  }
  for (int i = first; i < params.bit_pairs; i += step) {
    const float2 bf16 = device::UnpackBf16(params.bits[i]);
    const float2 fp16 = device::UnpackFp16(params.bits[i]);
    params.from_bf16[2 * i] = bf16.x;
    params.from_bf16[2 * i + 1] = bf16.y;
    params.from_fp16[2 * i] = fp16.x;
    params.from_fp16[2 * i + 1] = fp16.y;
  }
  for (int i = first; i < params.fp8_vecs; i += step) {
    const Vec16 vec = device::Bf16FromNativeFp8(params.fp8[2 * i], params.fp8[2 * i + 1]);
    for (int word = 0; word < 4; ++word) params.bf16_from_fp8[4 * i + word] = vec.w[word];
  }
}

__global__ void Atomics(AtomicParams params) {
  __shared__ uint32_t sum;
  const uint32_t thread = blockIdx.x * blockDim.x + threadIdx.x;
  if (threadIdx.x == 0) device::StoreRelaxed<Scope::kBlock>(&sum, 0U);
  __syncthreads();
  device::FetchAddRelaxed<Scope::kBlock>(&sum, 1U);
  device::FetchAddRelaxed<Scope::kDevice>(params.device_count, uint64_t{1} << 32);
  params.tickets[device::FetchAddAcqRel<Scope::kSystem>(params.ticket_count, 1U)] = thread;
  device::FetchAddRelaxed<Scope::kSystem>(params.negative, -1);
  const uint32_t seen = device::ExchangeRelaxed<Scope::kDevice>(params.token, thread + 1);
  device::FetchAddRelaxed<Scope::kDevice>(params.token_sum, uint64_t{seen});
  __syncthreads();
  if (threadIdx.x == 0) {
    params.block_sums[blockIdx.x] = device::LoadRelaxed<Scope::kBlock>(&sum);
  }
}

__device__ Vec16 Pattern(uint32_t round, uint32_t index) {
  const uint32_t base = round * 1'000'003U + index * 16U;
  return Vec16{{base, base + 1, base + 2, base + 3}};
}

__device__ bool Equal(const Vec16& a, const Vec16& b) {
  return a.w[0] == b.w[0] && a.w[1] == b.w[1] && a.w[2] == b.w[2] && a.w[3] == b.w[3];
}

// Odd rounds are awaited with acquire loads, even ones with relaxed loads and a fence.
__device__ bool WaitForRound(const MessageParams& params, uint64_t round) {
  const uint64_t start = device::Clock();
  if (round % 2 == 1) {
    while (device::LoadAcquire<Scope::kSystem>(params.flag) < round) {
      if (device::Clock() - start > 5 * device::kClockHz) return false;
      device::Pause();
    }
    return true;
  }
  while (device::LoadRelaxed<Scope::kSystem>(params.flag) < round) {
    if (device::Clock() - start > 5 * device::kClockHz) return false;
    device::Pause();
  }
  device::FenceAcquire<Scope::kSystem>();
  return true;
}

__device__ void Send(const MessageParams& params) {
  const int thread = static_cast<int>(threadIdx.x);
  const int threads = static_cast<int>(blockDim.x);
  Vec16* const packet = static_cast<Vec16*>(params.packets) + thread;
  for (int round = 1; round <= params.rounds; ++round) {
    Vec16* const row = static_cast<Vec16*>(params.rows) + (round - 1) * params.vecs;
    for (int i = thread; i < params.vecs; i += threads) {
      device::StoreStream(row + i, Pattern(round, i));
    }
    const uint32_t word = static_cast<uint32_t>(round);
    device::StoreOnce16(packet, Vec16{{word, word, word, word}});
    device::SyncBlockStores();
    if (thread != 0) continue;
    const uint64_t ready = static_cast<uint64_t>(round);
    if (round % 2 == 1) {
      device::StoreRelease<Scope::kSystem>(params.flag, ready);
    } else {
      device::FenceRelease<Scope::kSystem>();
      device::StoreRelaxed<Scope::kSystem>(params.flag, ready);
    }
  }
}

__device__ void Receive(const MessageParams& params) {
  __shared__ int arrived;
  const int thread = static_cast<int>(threadIdx.x);
  const int threads = static_cast<int>(blockDim.x);
  const Vec16* const packet = static_cast<const Vec16*>(params.packets) + thread;
  uint32_t last = 0;
  for (int round = 1; round <= params.rounds; ++round) {
    // Without waiting: a packet is old or new as a whole, and never gets older.
    const Vec16 v = device::LoadOnce16(packet);
    if (v.w[0] < last || v.w[1] != v.w[0] || v.w[2] != v.w[0] || v.w[3] != v.w[0]) {
      device::FetchAddRelaxed<Scope::kDevice>(params.packets_wrong, 1U);
    }
    last = v.w[0];
    if (thread == 0) arrived = WaitForRound(params, static_cast<uint64_t>(round)) ? 1 : 0;
    __syncthreads();
    const bool ok = arrived != 0;
    __syncthreads();
    if (!ok) {
      if (thread == 0) device::FetchAddRelaxed<Scope::kDevice>(params.timeouts, 1U);
      return;
    }
    const Vec16* const row = static_cast<const Vec16*>(params.rows) + (round - 1) * params.vecs;
    for (int i = thread; i < params.vecs; i += threads) {
      if (!Equal(device::LoadStream(row + i), Pattern(round, i))) {
        device::FetchAddRelaxed<Scope::kDevice>(params.rows_wrong, 1U);
      }
    }
  }
}

__global__ void Messages(MessageParams params) {
  if (blockIdx.x == 0) {
    Send(params);
  } else {
    Receive(params);
  }
}

__global__ void ReadClock(ClockParams params) {
  const uint64_t start = device::Clock();
  uint64_t last = start;
  while (last - start < device::kClockHz / 10'000) {
    device::Pause();
    const uint64_t now = device::Clock();
    if (now < last) ++*params.backwards;
    last = now;
  }
  *params.ticks = last - start;
}

}  // namespace

hipError_t LaunchWaves(const WaveParams& params, LaunchShape shape, hipStream_t stream) {
  WaveParams copy = params;
  void* args[] = {&copy};
  return hipLaunchKernel(Waves, dim3(shape.blocks), dim3(shape.threads), args, shape.shared_bytes,
                         stream);
}

hipError_t LaunchConvert(const ConvertParams& params, LaunchShape shape, hipStream_t stream) {
  ConvertParams copy = params;
  void* args[] = {&copy};
  return hipLaunchKernel(Convert, dim3(shape.blocks), dim3(shape.threads), args, shape.shared_bytes,
                         stream);
}

hipError_t LaunchAtomics(const AtomicParams& params, LaunchShape shape, hipStream_t stream) {
  AtomicParams copy = params;
  void* args[] = {&copy};
  return hipLaunchKernel(Atomics, dim3(shape.blocks), dim3(shape.threads), args, shape.shared_bytes,
                         stream);
}

hipError_t LaunchMessages(const MessageParams& params, LaunchShape shape, hipStream_t stream) {
  MessageParams copy = params;
  void* args[] = {&copy};
  return hipLaunchCooperativeKernel(Messages, dim3(shape.blocks), dim3(shape.threads), args,
                                    shape.shared_bytes, stream);
}

hipError_t LaunchClock(const ClockParams& params, hipStream_t stream) {
  ClockParams copy = params;
  void* args[] = {&copy};
  return hipLaunchKernel(ReadClock, dim3(1), dim3(1), args, 0, stream);
}

}  // namespace octet
