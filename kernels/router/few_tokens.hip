// The router of a few tokens in one launch, instead of a product and Route:
//
//   logits   block r: row r of the router's weights by all tokens        (token_logits.h)
//   choice   the last block that has stored its logits: a wave a token   (route_device.h)
//
//   logits [tokens][stride]   ◄── column r: block r     ──► topk_idx, topk_weights [tokens][K]
//
// No block waits for another, so the launch need not be cooperative.
#include <hip/hip_runtime.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "device_ops.h"
#include "kernels/router/few_tokens.h"
#include "kernels/router/route_device.h"
#include "kernels/router/token_logits.h"
#include "kernels/types/row_codec.h"
#include "runtime/device/load_kernel.h"

namespace octet {
namespace {

using device::kWaveSize;
using device::Vec16;

constexpr int kMostThreads = 256;  // of which each has registers for kPerLane scores

// Returns, in all threads, whether the block is the last one that has come here; it sees what all have
// stored. Nothing leaves the GPU, unlike with device::LastBlock.
__device__ __forceinline__ bool IsLast(uint32_t* blocks_done) {
  __shared__ bool last;
  device::SyncBlockStores();
  if (threadIdx.x == 0) {
    last = device::FetchAddAcqRel<device::Scope::kDevice>(blocks_done, 1U) + 1 == gridDim.x;
    if (last) device::StoreRelaxed<device::Scope::kDevice>(blocks_done, 0U);
  }
  __syncthreads();
  return last;
}

template <typename Codec, int kPerLane>
__global__ void __launch_bounds__(kMostThreads) RouteFewTokens(const FewTokensParams p) {
  using Row = routing::TokenLogits<Codec>;
  __shared__ float sums[Row::kTogether * kMostThreads / device::kMinWaveSize];
  const auto row = static_cast<int>(blockIdx.x);
  const int vecs = p.hidden / device::kElementsPerVec;
  const Row logits(
      static_cast<const Vec16*>(p.router) + static_cast<size_t>(row) * static_cast<size_t>(vecs),
      vecs, sums);
  const int tokens = p.route.num_tokens;
  for (int first = 0; first < tokens; first += Row::kTogether) {
    const int some = tokens - first < Row::kTogether ? tokens - first : Row::kTogether;
    logits.Compute(
        some, [&](int i) { return static_cast<const Vec16*>(p.x) + (first + i) * vecs; },
        [&](int i, float sum) {
          p.logits[(first + i) * p.route.stride + row] =
              p.logit_bias == nullptr ? sum : sum + p.logit_bias[row];
        });
  }
  if (!IsLast(p.blocks_done)) return;
  for (int token = device::Wave(); token < tokens;
       token += static_cast<int>(blockDim.x) / kWaveSize) {
    routing::RouteToken<kPerLane>(p.route, token);
  }
}

using Kernel = void (*)(FewTokensParams);

// Returns the kernel with kPerLane experts in a lane, doubled until there is room for `per_lane`.
template <typename Codec, int kPerLane>
Kernel PickWithRoom(int per_lane) {
  if constexpr (kPerLane * device::kMinWaveSize < kMostRoutedExperts) {
    if (per_lane > kPerLane) return PickWithRoom<Codec, 2 * kPerLane>(per_lane);
  }
  return RouteFewTokens<Codec, kPerLane>;
}

Kernel PickKernel(int num_experts, bool fp16) {
  constexpr int kFewest = 4;
  const int per_lane = (num_experts + device::kMinWaveSize - 1) / device::kMinWaveSize;
  return fp16 ? PickWithRoom<device::Fp16Codec, kFewest>(per_lane)
              : PickWithRoom<device::Bf16Codec, kFewest>(per_lane);
}

}  // namespace

hipError_t LoadRouteFewTokens(int num_experts, bool fp16) {
  return device::LoadKernel(PickKernel(num_experts, fp16));
}

hipError_t LaunchRouteFewTokens(const FewTokensParams& params, hipStream_t stream) {
  // A vector of a row for each thread, as long as there is a wave for some tokens.
  constexpr int kFewestThreads = 128;
  constexpr int kUnit = 64;  // a multiple of all waves
  const int vecs = params.hidden / device::kElementsPerVec;
  const int threads = std::clamp((vecs + kUnit - 1) / kUnit * kUnit, kFewestThreads, kMostThreads);
  FewTokensParams p = params;
  void* args[] = {&p};
  return hipLaunchKernel(PickKernel(p.route.num_experts, p.fp16),
                         dim3(static_cast<unsigned>(p.logit_rows)),
                         dim3(static_cast<unsigned>(threads)), args, 0, stream);
}

}  // namespace octet
