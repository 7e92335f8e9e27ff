// The router of a few tokens in one launch, instead of a product and Route:
//
//   parts    block b: 16 rows of the router's weights by all tokens, over an eighth of the
//            columns                                                     (logit_parts.h)
//   choice   a block for each token: waits for the parts of its logits, adds them up and
//            chooses by them                                             (route_block.h)
//
//   parts [8][tokens][rows] ◄── blocks of parts   ──► blocks of choices ──► topk_idx, topk_weights
//
// A part is its own flag: it takes the place of a NaN that no part is, which the block that has
// read it puts back. The blocks that wait are the last ones, at most kFewRoutedTokens, and GPUs
// start blocks in the order of their numbers; those that they wait for wait for nothing, so the
// launch need not be cooperative, and the waits have no deadline.
#include <hip/hip_runtime.h>

#include <bit>
#include <cstddef>
#include <cstdint>

#include "device_ops.h"
#include "kernels/router/few_tokens.h"
#include "kernels/router/logit_parts.h"
#include "kernels/router/route_block.h"
#include "runtime/device/load_kernel.h"
#include "runtime/platform/gemm_call.h"

namespace octet {
namespace {

using device::GemmElement;
using device::kWaveSize;
using device::Scope;

// Some platforms do not use launch bounds.
[[maybe_unused]] constexpr int kMostThreads = 256;

// Where a part of a token's logits is, the first of them.
__device__ __forceinline__ uint32_t* PartOf(const FewTokensParams& p, int part, int token) {
  return p.parts + (part * kFewRoutedTokens + token) * LogitPartStride(p.logit_rows);
}

// The logits of a token, as waves get them from their parts.
class LogitsOfToken {
 public:
  __device__ __forceinline__ LogitsOfToken(const FewTokensParams& p, int token)
      : p_(p), token_(token) {}

  // Waits for the logits of the rows row_of(i), of those that there are. All lanes of a wave call
  // it.
  template <int kCount, typename RowOf>
  __device__ __forceinline__ void Wait(RowOf row_of, float (&logits)[kCount]) const {
    constexpr int kMostTogether = 8;
    constexpr int kTogether = kCount < kMostTogether ? kCount : kMostTogether;
#pragma unroll
    for (int first = 0; first < kCount; first += kTogether) {
      float bias[kTogether];
#pragma unroll
      for (int i = 0; i < kTogether; ++i) {
        const int row = row_of(first + i);
        bias[i] = p_.logit_bias != nullptr && row < p_.logit_rows ? p_.logit_bias[row] : 0.0F;
      }
      for (uint32_t polls = 0;; ++polls) {
        uint32_t words[kTogether][kLogitParts];  // loaded together
#pragma unroll
        for (int i = 0; i < kTogether; ++i) Load(row_of(first + i), words[i]);
        bool missing = false;
#pragma unroll
        for (int i = 0; i < kTogether; ++i) {
          float sum = 0.0F;
#pragma unroll
          for (const uint32_t word : words[i]) {
            missing = missing || word == kNoLogitPart;
            sum = sum + std::bit_cast<float>(word);
          }
          logits[first + i] = p_.logit_bias == nullptr ? sum : sum + bias[i];
        }
        if (device::Ballot(missing) == 0) break;
        device::Pause(polls);
      }
    }
  }

  // Stores the same logits, and makes their parts ready for the next launch.
  template <int kCount, typename RowOf>
  __device__ __forceinline__ void Store(RowOf row_of, const float (&logits)[kCount]) const {
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      const int row = row_of(i);
      if (row >= p_.logit_rows) continue;
      p_.logits[token_ * p_.route.stride + row] = logits[i];
#pragma unroll
      for (int part = 0; part < kLogitParts; ++part) {
        device::StoreRelaxed<Scope::kDevice>(PartOf(p_, part, token_) + row, kNoLogitPart);
      }
    }
  }

 private:
  __device__ __forceinline__ void Load(int row, uint32_t (&words)[kLogitParts]) const {
#pragma unroll
    for (int part = 0; part < kLogitParts; ++part) {
      words[part] = 0;
      if (row >= p_.logit_rows) continue;
      words[part] = device::LoadRelaxed<Scope::kDevice>(PartOf(p_, part, token_) + row);
    }
  }

  const FewTokensParams& p_;
  const int token_;
};

// By a block.
template <typename Router, int kPerLane>
__device__ __forceinline__ void Choose(const FewTokensParams& p, const Router& router, int token) {
  const LogitsOfToken of_token(p, token);
  const auto expert = [](int i) { return Router::Expert(i); };
  float logits[kPerLane];
  of_token.Wait(expert, logits);
  router.Route(logits, token);
  of_token.Store(expert, logits);
  // Logits that decide no choice.
  const auto threads = static_cast<int>(blockDim.x);
#pragma unroll 1
  for (int first = threads * kPerLane; first < p.logit_rows; first += threads) {
    const auto row_of = [&](int /*i*/) { return first + static_cast<int>(threadIdx.x); };
    float others[1];
    of_token.Wait(row_of, others);
    of_token.Store(row_of, others);
  }
}

constexpr int kWaves = routing::LogitPart<GemmElement::kBf16>::kWaves;  // as with fp16

// `of_group`: experts of a group.
template <GemmElement element, int kPerLane>
__global__ void __launch_bounds__(kMostThreads)
    RouteFewTokens(const FewTokensParams p, const int of_group) {
  using Part = routing::LogitPart<element>;
  using Router = routing::BlockRouter<kWaves, kPerLane>;
  __shared__ union {
    Part::Shared part;
    Router::Shared router;
  } shared;
  const auto block = static_cast<int>(blockIdx.x);
  const int blocks_of_parts = Part::Blocks(p.logit_rows);
  if (block >= blocks_of_parts) [[unlikely]] {
    Choose<Router, kPerLane>(p, Router(p.route, of_group, shared.router), block - blocks_of_parts);
  } else {
    Part(p, block, shared.part).Compute([&](int part, int token, int row, float sum) {
      device::StoreRelaxed<Scope::kDevice>(PartOf(p, part, token) + row, LogitPartWord(sum));
    });
  }
}

using Kernel = void (*)(FewTokensParams, int);

// Returns the kernel with kPerLane experts in a lane, doubled until there is room for `per_lane`.
template <GemmElement element, int kPerLane>
Kernel PickWithRoom(int per_lane) {
  if constexpr (kPerLane * kWaves * device::kMinWaveSize < kMostRoutedExperts) {
    if (per_lane > kPerLane) return PickWithRoom<element, 2 * kPerLane>(per_lane);
  }
  return RouteFewTokens<element, kPerLane>;
}

Kernel PickKernel(int num_experts, bool fp16) {
  constexpr int kLanes = kWaves * device::kMinWaveSize;
  const int per_lane = (num_experts + kLanes - 1) / kLanes;
  return fp16 ? PickWithRoom<GemmElement::kFp16, 1>(per_lane)
              : PickWithRoom<GemmElement::kBf16, 1>(per_lane);
}

}  // namespace

hipError_t LoadRouteFewTokens(int num_experts, bool fp16) {
  return device::LoadKernel(PickKernel(num_experts, fp16));
}

hipError_t LaunchRouteFewTokens(const FewTokensParams& params, hipStream_t stream) {
  const int blocks_of_parts = routing::LogitPart<GemmElement::kBf16>::Blocks(params.logit_rows);
  FewTokensParams p = params;
  int of_group = p.route.num_experts / p.route.groups;
  void* args[] = {&p, &of_group};
  return hipLaunchKernel(PickKernel(p.route.num_experts, p.fp16),
                         dim3(static_cast<unsigned>(blocks_of_parts + p.route.num_tokens)),
                         dim3(static_cast<unsigned>(kWaves * kWaveSize)), args, 0, stream);
}

}  // namespace octet
