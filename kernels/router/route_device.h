// How a wave routes a token; lane l has the experts l, l + waves' size, ... in registers.
//
//   scores   softmax over all lanes, sigmoid of each, or the logits
//   groups   the two best of each group, then the best groups: others' experts are excluded
//   choice   K times: the largest of what is left, over all lanes
//   weights  the chosen scores, each in the lane of its choice; with sparsemixer, their shares
//
// kPerLane: at least the experts of a lane; results do not depend on it.
#ifndef OCTET_KERNELS_ROUTER_ROUTE_DEVICE_H_
#define OCTET_KERNELS_ROUTER_ROUTE_DEVICE_H_

#include <hip/hip_runtime.h>

#include <cstddef>
#include <cstdint>

#include "device_ops.h"
#include "kernels/router/route.h"
#include "kernels/router/router_math.h"

namespace octet {
namespace routing {

using device::kWaveSize;
using device::Lane;
using device::ShuffleXor;

// A value's order and where it is, the lower place above others of the same order. 0: none.
__device__ __forceinline__ uint64_t Candidate(uint32_t order, int place) {
  constexpr int kOrderShift = 32;
  return static_cast<uint64_t>(order) << kOrderShift | ~static_cast<uint32_t>(place);
}
__device__ __forceinline__ uint32_t OrderIn(uint64_t candidate) {
  constexpr int kOrderShift = 32;
  return static_cast<uint32_t>(candidate >> kOrderShift);
}

__device__ __forceinline__ uint64_t Larger(uint64_t a, uint64_t b) { return a > b ? a : b; }

// Takes the largest of all lanes' `orders` out of them, of equal ones that at the lowest place;
// element i of a lane is at place i · kWaveSize + lane. Returns the lane that had it; in that lane,
// `*element` is which one it was.
template <int kPerLane>
__device__ __forceinline__ int TakeLargest(uint32_t (&orders)[kPerLane], int* element) {
  uint32_t mine = 0;
  *element = 0;
#pragma unroll
  for (int i = 0; i < kPerLane; ++i) {
    if (orders[i] <= mine) continue;
    mine = orders[i];
    *element = i;
  }
  const auto largest = static_cast<uint32_t>(device::LargestOfWave(mine));
  const uint64_t lanes = device::Ballot(mine == largest);
  int lane = __ffsll(static_cast<long long>(lanes)) - 1;
  if ((lanes & (lanes - 1)) != 0) {  // rarely: the lowest place of several lanes
    const auto place = static_cast<uint32_t>(*element * kWaveSize + Lane());
    const auto lowest =
        ~static_cast<uint32_t>(device::LargestOfWave(mine == largest ? ~place : 0U));
    lane = static_cast<int>(lowest) % kWaveSize;
  }
#pragma unroll
  for (int i = 0; i < kPerLane; ++i) {
    if (Lane() == lane && *element == i) orders[i] = 0;
  }
  return lane;
}

// A token's scores, in the lanes of a wave.
template <int kPerLane>
class TokenScores {
 public:
  __device__ __forceinline__ TokenScores(const RouteParams& p, int token) : p_(p) {
    const float* const logits =
        p.logits + static_cast<size_t>(token) * static_cast<size_t>(p.stride);
#pragma unroll
    for (int i = 0; i < kPerLane; ++i) {
      const bool exists = Expert(i) < p.num_experts;
      scores_[i] = exists ? logits[Expert(i)] : -INFINITY;  // at most the largest, as Score expects
      bias_[i] = exists && p.bias != nullptr ? p.bias[Expert(i)] : 0.0F;
    }
  }

  __device__ __forceinline__ void Score();

  // The orders of what decides the choice: 0 for experts that there are not.
  __device__ __forceinline__ void Orders(uint32_t (&orders)[kPerLane]) const {
#pragma unroll
    for (int i = 0; i < kPerLane; ++i) {
      orders[i] = 0;
      if (Expert(i) >= p_.num_experts) continue;
      orders[i] = OrderOf(scores_[i] + bias_[i]);
    }
  }

  // The score of the lane's expert `element`.
  __device__ __forceinline__ float Of(int element) const {
    float score = 0.0F;
#pragma unroll
    for (int i = 0; i < kPerLane; ++i) {
      if (element == i) score = scores_[i];
    }
    return score;
  }

  // The weight of the choice of `lane`'s expert `element`, whose logit is `chosen`. `orders`:
  // without that expert and those chosen before.
  __device__ __forceinline__ float SparsemixerWeight(const uint32_t (&orders)[kPerLane], int lane,
                                                     int element, float chosen) const;

  static __device__ __forceinline__ int Expert(int i) { return i * kWaveSize + Lane(); }

 private:
  // The largest of all logits, in all lanes.
  __device__ __forceinline__ float LargestLogit() const;

  const RouteParams& p_;
  float scores_[kPerLane];
  float bias_[kPerLane];
};

template <int kPerLane>
__device__ __forceinline__ float TokenScores<kPerLane>::LargestLogit() const {
  float largest = -INFINITY;
#pragma unroll
  for (int i = 0; i < kPerLane; ++i) {
    if (Expert(i) < p_.num_experts && scores_[i] > largest) largest = scores_[i];
  }
  return OfOrder(static_cast<uint32_t>(device::LargestOfWave(OrderOf(largest))));
}

// Both kinds of scores are quotients with an exponential of each logit; code that is not there need
// not be fetched.
template <int kPerLane>
__device__ __forceinline__ void TokenScores<kPerLane>::Score() {
  const float largest = p_.sigmoid ? 0.0F : LargestLogit();
  uint64_t negative = 0;  // bit i: of the lane's expert i
  // A wave of 32 has two partial sums in each lane.
  float even = 0.0F;
  float odd = 0.0F;
  const bool both = kWaveSize < kSoftmaxPartials;
#pragma unroll
  for (int i = 0; i < kPerLane; ++i) {
    const bool is_negative = !(scores_[i] >= 0.0F);
    if (is_negative) negative |= uint64_t{1} << i;
    const float power = is_negative ? scores_[i] : -scores_[i];
    scores_[i] = ExpOfNegative(p_.sigmoid ? power : scores_[i] - largest);
    if (Expert(i) >= p_.num_experts) continue;
    if (both && i % 2 == 1) {
      odd = odd + scores_[i];
    } else {
      even = even + scores_[i];
    }
  }
  float sum = even + odd;
  for (int mask = kWaveSize / 2; mask > 0; mask /= 2) sum = sum + ShuffleXor(sum, mask);
#pragma unroll
  for (int i = 0; i < kPerLane; ++i) {
    const bool is_negative = (negative >> i & 1) != 0;
    const float dividend = p_.sigmoid && !is_negative ? 1.0F : scores_[i];
    scores_[i] = dividend / (p_.sigmoid ? 1.0F + scores_[i] : sum);
  }
}

template <int kPerLane>
__device__ __forceinline__ float TokenScores<kPerLane>::SparsemixerWeight(
    const uint32_t (&orders)[kPerLane], int lane, int element, float chosen) const {
  float sums[2] = {};  // even and odd, as above
  const int odd = kWaveSize < kSoftmaxPartials ? 1 : 0;
#pragma unroll
  for (int i = 0; i < kPerLane; ++i) {
    const bool left = orders[i] != 0 || (Lane() == lane && element == i);
    if (!left || !IsNear(scores_[i], chosen, p_.near_limit)) continue;
    sums[i & odd] = sums[i & odd] + ExpOfNegative(scores_[i] - chosen);
  }
  float sum = sums[0] + sums[1];
  for (int mask = kWaveSize / 2; mask > 0; mask /= 2) sum = sum + ShuffleXor(sum, mask);
  return 1.0F / sum;
}

// The order of a group's score.
template <int kPerLane>
__device__ __forceinline__ uint32_t GroupOrder(const RouteParams& p,
                                               const uint32_t (&orders)[kPerLane], int group) {
  const int of_group = p.num_experts / p.groups;
  const int first = group * of_group;
  uint64_t best = 0;
  uint64_t second = 0;
#pragma unroll
  for (int i = 0; i < kPerLane; ++i) {
    const int expert = TokenScores<kPerLane>::Expert(i);
    if (orders[i] == 0 || expert < first || expert >= first + of_group) continue;
    const uint64_t mine = Candidate(orders[i], expert);
    second = Larger(second, mine < best ? mine : best);
    best = Larger(best, mine);
  }
  for (int mask = kWaveSize / 2; mask > 0; mask /= 2) {
    const uint64_t other = ShuffleXor(best, mask);
    const uint64_t other_second = ShuffleXor(second, mask);
    second = Larger(Larger(second, other_second), other < best ? other : best);
    best = Larger(best, other);
  }
  if (!p.sum_of_two_best) return OrderIn(best);
  return OrderOf(OfOrder(OrderIn(best)) + OfOrder(OrderIn(second)));
}

// Excludes the experts of all but the best groups.
template <int kPerLane>
__device__ __forceinline__ void KeepBestGroups(const RouteParams& p, uint32_t (&orders)[kPerLane]) {
  uint32_t groups[kPerLane] = {};
  for (int group = 0; group < p.groups; ++group) {
    const uint32_t order = GroupOrder(p, orders, group);
#pragma unroll
    for (int i = 0; i < kPerLane; ++i) {
      if (TokenScores<kPerLane>::Expert(i) == group) groups[i] = order;
    }
  }
  const int of_group = p.num_experts / p.groups;
  uint64_t kept = 0;  // bit i: of the lane's expert i
  for (int i = 0; i < p.top_groups; ++i) {
    int element = 0;
    const int lane = TakeLargest(groups, &element);
    const int first = (device::Shuffle(element, lane) * kWaveSize + lane) * of_group;
#pragma unroll
    for (int j = 0; j < kPerLane; ++j) {
      const int expert = TokenScores<kPerLane>::Expert(j);
      if (expert >= first && expert < first + of_group) kept |= uint64_t{1} << j;
    }
  }
#pragma unroll
  for (int j = 0; j < kPerLane; ++j) {
    if ((kept >> j & 1) == 0) orders[j] = 0;
  }
}

template <int kPerLane>
__device__ __forceinline__ void RouteToken(const RouteParams& p, int token) {
  TokenScores<kPerLane> scores(p, token);
  if (!p.sparsemixer) scores.Score();
  uint32_t orders[kPerLane];
  scores.Orders(orders);
  if (p.top_groups < p.groups) KeepBestGroups(p, orders);
  int my_expert = 0;
  float my_weight = 0.0F;
  float sum = 0.0F;
#pragma unroll 1
  for (int k = 0; k < p.topk; ++k) {
    int element = 0;
    const int lane = TakeLargest(orders, &element);
    const int expert = device::Shuffle(element, lane) * kWaveSize + lane;
    float weight = device::Shuffle(scores.Of(element), lane);
    if (p.sparsemixer) weight = scores.SparsemixerWeight(orders, lane, element, weight);
    sum = sum + weight;
    if (Lane() != k) continue;
    my_expert = expert;
    my_weight = weight;
  }
  if (Lane() >= p.topk) return;
  if (p.normalize) my_weight = my_weight / (sum + p.normalize_epsilon);
  const size_t at =
      static_cast<size_t>(token) * static_cast<size_t>(p.topk) + static_cast<size_t>(Lane());
  p.topk_idx[at] = my_expert;
  p.topk_weights[at] = my_weight * p.scaling;
}

}  // namespace routing
}  // namespace octet

#endif  // OCTET_KERNELS_ROUTER_ROUTE_DEVICE_H_
