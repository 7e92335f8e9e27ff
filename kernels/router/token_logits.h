// Logits of a few tokens: a row of the router's weights by a block, whose threads share the
// columns. Sums are added in an order that follows from H and the number of threads alone, so that
// a token's logits do not depend on the others.
#ifndef OCTET_KERNELS_ROUTER_TOKEN_LOGITS_H_
#define OCTET_KERNELS_ROUTER_TOKEN_LOGITS_H_

#include <hip/hip_runtime.h>

#include "device_ops.h"
#include "kernels/types/row_codec.h"

namespace octet::routing {

template <typename Codec>
class TokenLogits {
 public:
  static constexpr int kTogether = 8;  // tokens

  // `weights`: a row of `vecs` vectors. `sums`: kTogether floats for each wave of the block, in its
  // shared memory.
  __device__ __forceinline__ TokenLogits(const device::Vec16* weights, int vecs, float* sums)
      : weights_(weights), vecs_(vecs), sums_(sums) {}

  // Calls store(i, logit), in some thread, for i of [0, tokens); at most kTogether. row_of(i) is
  // token i's row. All threads of the block call it; `sums` may be used again afterwards.
  template <typename RowOf, typename Store>
  __device__ __forceinline__ void Compute(int tokens, RowOf row_of, Store store) const {
    float sums[kTogether] = {};
    for (int v = static_cast<int>(threadIdx.x); v < vecs_; v += static_cast<int>(blockDim.x)) {
      const Vec16 w = weights_[v];
      Vec16 x[kTogether];  // loaded together
#pragma unroll
      for (int t = 0; t < kTogether; ++t) {
        x[t] = {};
        if (t < tokens) x[t] = reinterpret_cast<const Vec16*>(row_of(t))[v];
      }
#pragma unroll
      for (int t = 0; t < kTogether; ++t) {
        if (t < tokens) sums[t] = sums[t] + Dot(w, x[t]);
      }
    }
    AddUp(tokens, sums);
    __syncthreads();
    const int thread = static_cast<int>(threadIdx.x);
    if (thread < tokens) {
      float logit = 0.0F;
      for (int wave = 0; wave < Waves(); ++wave) logit = logit + sums_[thread * Waves() + wave];
      store(thread, logit);
    }
    __syncthreads();
  }

 private:
  using Vec16 = device::Vec16;

  static __device__ __forceinline__ int Waves() {
    return static_cast<int>(blockDim.x) / device::kWaveSize;
  }

  static __device__ __forceinline__ float Dot(const Vec16& a, const Vec16& b) {
    float sum = 0.0F;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const float2 x = Codec::Unpack(a.w[i]);
      const float2 y = Codec::Unpack(b.w[i]);
      sum = sum + x.x * y.x;
      sum = sum + x.y * y.y;
    }
    return sum;
  }

  // Adds the sums of the lanes of each wave.
  __device__ __forceinline__ void AddUp(int tokens, float (&sums)[kTogether]) const {
#pragma unroll
    for (int t = 0; t < kTogether; ++t) {
      if (t >= tokens) break;
      for (int mask = device::kWaveSize / 2; mask > 0; mask /= 2) {
        sums[t] = sums[t] + device::ShuffleXor(sums[t], mask);
      }
      if (device::Lane() == 0) sums_[t * Waves() + device::Wave()] = sums[t];
    }
  }

  const Vec16* const weights_;
  const int vecs_;
  float* const sums_;
};

}  // namespace octet::routing

#endif  // OCTET_KERNELS_ROUTER_TOKEN_LOGITS_H_
