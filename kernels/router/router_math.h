// The router's arithmetic, shared by its kernel and its reference, which give the same bits on
// every platform: additions, multiplications, divisions and fmaf of float32 alone, none of them
// contracted or reordered.
#ifndef OCTET_KERNELS_ROUTER_ROUTER_MATH_H_
#define OCTET_KERNELS_ROUTER_ROUTER_MATH_H_

#include <hip/hip_runtime.h>

#include <bit>
#include <cmath>
#include <cstdint>

namespace octet {

// exp(x) for x <= 0, with a relative error below 2^-22. Results below 2^-126 are 0. NaN stays NaN.
__host__ __device__ inline float ExpOfNegative(float x) {
  constexpr float kLog2E = 0x1.715476p+0F;
  constexpr float kLn2High = 0x1.62e4p-1F;  // few enough bits that n · high is exact
  constexpr float kLn2Low = 0x1.7f7d1cp-20F;
  constexpr float kSmallest = -87.0F;  // about ln(2^-126) = -87.34
  // The nearest integer: adding and subtracting 1.5 · 2^23 rounds.
  constexpr float kRound = 0x1.8p+23F;
  const float n = (x * kLog2E + kRound) - kRound;
  const float r = fmaf(-n, kLn2Low, fmaf(-n, kLn2High, x));
  float p = 0x1.a01a02p-13F;  // 1 / 7!
  p = fmaf(p, r, 0x1.6c16c2p-10F);
  p = fmaf(p, r, 0x1.111112p-7F);
  p = fmaf(p, r, 0x1.555556p-5F);
  p = fmaf(p, r, 0x1.555556p-3F);
  p = fmaf(p, r, 0.5F);
  p = fmaf(p, r, 1.0F);
  p = fmaf(p, r, 1.0F);
  constexpr int kFractionBits = 23;
  constexpr uint32_t kBias = 127;
  const float in_range = n >= kSmallest * 2 ? n : 0.0F;  // others have no exponent to add to
  const uint32_t exponent = kBias + static_cast<uint32_t>(static_cast<int32_t>(in_range));
  const float power = p * std::bit_cast<float>(exponent << kFractionBits);
  // Selected at the end: several of them side by side have no branches to wait for.
  const float or_nan = x >= kSmallest ? power : x + x;
  return x < kSmallest ? 0.0F : or_nan;
}

// 1 / (1 + exp(-x)).
__host__ __device__ inline float Sigmoid(float x) {
  const bool negative = !(x >= 0.0F);
  const float e = ExpOfNegative(negative ? x : -x);
  return (negative ? e : 1.0F) / (1.0F + e);
}

// The float32 sum of a softmax: partial sum j of these is that of the addends j, j + 64, j + 128,
// ..., in this order. Partial sums j and j + 32 are added, then j and j + 16, and so on to j = 0.
inline constexpr int kSoftmaxPartials = 64;

// Whether a logit that is not above `chosen` counts for the weight of that choice
// (RouterScores::kSparsemixer). The quotient of two zeros, two infinities or NaN is within any
// limit.
__host__ __device__ inline bool IsNear(float logit, float chosen, float limit) {
  const float size = fabsf(logit);
  return !((chosen - logit) / (size > chosen ? size : chosen) > limit);
}

// An integer that is ordered as the float is, with NaN below every number, and equal for -0 and +0.
// At least 1.
__host__ __device__ inline uint32_t OrderOf(float x) {
  if (!(x == x)) return 1;  // NOLINT(misc-redundant-expression)
  constexpr uint32_t kSign = 0x80000000U;
  const auto bits = std::bit_cast<uint32_t>(x + 0.0F);
  return (bits & kSign) != 0 ? ~bits : bits | kSign;
}
// The float of that order.
__host__ __device__ inline float OfOrder(uint32_t order) {
  constexpr uint32_t kSign = 0x80000000U;
  constexpr uint32_t kNan = 0x7fc00000U;
  if (order == 1) return std::bit_cast<float>(kNan);
  return std::bit_cast<float>((order & kSign) != 0 ? order & ~kSign : ~order);
}

}  // namespace octet

#endif  // OCTET_KERNELS_ROUTER_ROUTER_MATH_H_
