// How a block routes a token, whose experts its waves share: sooner than a wave (route_device.h),
// with the same results to the bit.
//
//   scores   softmax over all of them, sigmoid of each, or the logits
//   groups   the two best of each group, then whether it is one of the best groups: by a wave
//   choice   a wave ranks its experts, and has its K best as candidates; the rank of a candidate
//            among all of them, if it is below K, is its place in the choice
//   weights  the chosen scores; with sparsemixer, their shares: a choice by a wave
#ifndef OCTET_KERNELS_ROUTER_ROUTE_BLOCK_H_
#define OCTET_KERNELS_ROUTER_ROUTE_BLOCK_H_

#include <hip/hip_runtime.h>

#include <cstddef>
#include <cstdint>

#include "device_ops.h"
#include "kernels/router/route.h"
#include "kernels/router/router_math.h"

namespace octet::routing {

// Of a block of kWaves waves, in which a lane has at most kPerLane experts. All threads of the
// block call all functions.
template <int kWaves, int kPerLane>
class BlockRouter {
  static constexpr int kMostTopk = 32;
  static constexpr int kMostLanes = 64;  // of a wave
  static constexpr int kMostOrders = kWaves * kPerLane * kMostLanes;

 public:
  // In the block's shared memory.
  struct Shared {
    uint32_t largest[kWaves];  // orders of logits
    union {
      float powers[kMostOrders];     // what a softmax adds up; with sparsemixer, the logits
      uint32_t groups[kMostOrders];  // orders, later
    };
    alignas(16) uint32_t orders[kMostOrders];
    // Those of each wave come before those of the next one.
    alignas(16) uint32_t candidates[kWaves * kMostTopk];  // orders; 0: none
    int32_t experts[kWaves * kMostTopk];                  // of candidates
    float scores[kWaves * kMostTopk];                     // of candidates
    float weights[kMostTopk];                             // chosen
    int32_t chosen[kMostTopk];                            // experts
  };

  // Experts that follow each other belong to a wave.
  static __device__ __forceinline__ int Expert(int i) {
    return device::Wave() * kPerLane * device::kWaveSize + PlaceInWave(i);
  }

  // Reads what does not depend on the token, and begins without candidates. `of_group`: experts of
  // a group.
  __device__ __forceinline__ BlockRouter(const RouteParams& p, int of_group, Shared& shared)
      : p_(p), of_group_(of_group), shared_(shared) {
#pragma unroll
    for (int i = 0; i < kPerLane; ++i) {
      bias_[i] = p.bias != nullptr && Exists(i) ? p.bias[Expert(i)] : 0.0F;
    }
    const int lane = device::Lane();
    if (lane < p.topk) shared.candidates[device::Wave() * p.topk + lane] = 0;
  }

  // Routes a token with these logits of the experts Expert(i). Once.
  __device__ __forceinline__ void Route(const float (&logits)[kPerLane], int token) const {
    float scores[kPerLane];
    Score(logits, scores);
#pragma unroll
    for (int i = 0; i < kPerLane; ++i) {
      shared_.orders[Expert(i)] = Exists(i) ? OrderOf(scores[i] + bias_[i]) : 0;
    }
    if (p_.top_groups < p_.groups) KeepBestGroups();
    ListCandidates(scores);
    __syncthreads();
    ChooseCandidates(token);
    __syncthreads();
    if (p_.sparsemixer) {
      WeighByShares();
      __syncthreads();
    }
    StoreWeights(token);
  }

 private:
  using Vec16 = device::Vec16;
  static constexpr int kVecOrders = 4;
  static_assert(kWaves % kVecOrders == 0);  // so that all candidates are in whole vectors

  static __device__ __forceinline__ int PlaceInWave(int i) {
    return i * device::kWaveSize + device::Lane();
  }
  __device__ __forceinline__ bool Exists(int i) const { return Expert(i) < p_.num_experts; }

  __device__ __forceinline__ void Score(const float (&logits)[kPerLane],
                                        float (&scores)[kPerLane]) const {
    if (p_.sparsemixer) {
#pragma unroll
      for (int i = 0; i < kPerLane; ++i) {
        scores[i] = logits[i];
        if (Exists(i)) shared_.powers[Expert(i)] = logits[i];
      }
      return;
    }
    const float largest = p_.sigmoid ? 0.0F : LargestLogit(logits);
    float powers[kPerLane];
#pragma unroll
    for (int i = 0; i < kPerLane; ++i) {
      const float logit = Exists(i) ? logits[i] : -INFINITY;  // at most the largest
      const float power = logit >= 0.0F ? -logit : logit;
      powers[i] = ExpOfNegative(p_.sigmoid ? power : logit - largest);
    }
    const float sum = p_.sigmoid ? 0.0F : SumOfPowers(powers);
#pragma unroll
    for (int i = 0; i < kPerLane; ++i) {
      const float dividend = p_.sigmoid && logits[i] >= 0.0F ? 1.0F : powers[i];
      scores[i] = dividend / (p_.sigmoid ? 1.0F + powers[i] : sum);
    }
  }

  // The largest of all logits.
  __device__ __forceinline__ float LargestLogit(const float (&logits)[kPerLane]) const {
    float largest = -INFINITY;
#pragma unroll
    for (int i = 0; i < kPerLane; ++i) {
      if (Exists(i) && logits[i] > largest) largest = logits[i];
    }
    const auto of_wave = static_cast<uint32_t>(device::LargestOfWave(OrderOf(largest)));
    if (device::Lane() == 0) shared_.largest[device::Wave()] = of_wave;
    __syncthreads();
    uint32_t order = 0;
#pragma unroll
    for (const uint32_t other : shared_.largest) order = other > order ? other : order;
    return OfOrder(order);
  }

  __device__ __forceinline__ float SumOfPowers(const float (&powers)[kPerLane]) const {
#pragma unroll
    for (int i = 0; i < kPerLane; ++i) {
      if (Exists(i)) shared_.powers[Expert(i)] = powers[i];
    }
    __syncthreads();
    return Sum([&](int e) { return shared_.powers[e]; });
  }

  // The weight of each choice by what is left without those before it.
  __device__ __forceinline__ void WeighByShares() const {
#pragma unroll 1
    for (int k = device::Wave(); k < p_.topk; k += kWaves) {
      const float chosen = shared_.weights[k];
      const float sum = Sum([&](int e) {
        const float logit = shared_.powers[e];
        bool counts = IsNear(logit, chosen, p_.near_limit);
#pragma unroll 1
        for (int before = 0; before < k; ++before) {
          counts = counts && shared_.chosen[before] != e;
        }
        return counts ? ExpOfNegative(logit - chosen) : 0.0F;
      });
      device::SyncWave();
      if (device::Lane() == 0) shared_.weights[k] = 1.0F / sum;
    }
  }

  // The sum of of_expert(e) over all experts, added up as kSoftmaxPartials says; in all lanes of a
  // wave, which calls it as a whole.
  template <typename OfExpert>
  __device__ __forceinline__ float Sum(OfExpert of_expert) const {
    // A wave of 32 has two partial sums in each lane.
    float even = 0.0F;
    float odd = 0.0F;
    const bool both = device::kWaveSize < kSoftmaxPartials;
#pragma unroll 2
    for (int e = device::Lane(); e < p_.num_experts; e += kSoftmaxPartials) {
      even = even + of_expert(e);
      const int other = e + device::kWaveSize;
      if (both && other < p_.num_experts) odd = odd + of_expert(other);
    }
    float sum = even + odd;
    for (int mask = device::kWaveSize / 2; mask > 0; mask /= 2) {
      sum = sum + device::ShuffleXor(sum, mask);
    }
    return sum;
  }

  // Excludes the experts of all but the best groups.
  __device__ __forceinline__ void KeepBestGroups() const {
    __syncthreads();
#pragma unroll 1
    for (int group = device::Wave(); group < p_.groups; group += kWaves) {
      const uint32_t order = GroupOrder(group);
      if (device::Lane() == 0) shared_.groups[group] = order;
    }
    __syncthreads();
#pragma unroll 1
    for (int group = device::Wave(); group < p_.groups; group += kWaves) {
      if (BetterGroups(group) < p_.top_groups) continue;
#pragma unroll 1
      for (int i = device::Lane(); i < of_group_; i += device::kWaveSize) {
        shared_.orders[group * of_group_ + i] = 0;
      }
    }
    __syncthreads();
  }

  // The order of a group's score.
  __device__ __forceinline__ uint32_t GroupOrder(int group) const {
    uint32_t best = 0;
    uint32_t second = 0;
#pragma unroll 1
    for (int i = device::Lane(); i < of_group_; i += device::kWaveSize) {
      const uint32_t order = shared_.orders[group * of_group_ + i];
      const uint32_t smaller = order < best ? order : best;
      second = smaller > second ? smaller : second;
      best = order > best ? order : best;
    }
    const auto best_of_all = static_cast<uint32_t>(device::LargestOfWave(best));
    if (!p_.sum_of_two_best) return best_of_all;
    // Where several lanes have the best, the second is as good.
    const uint64_t lanes = device::Ballot(best == best_of_all);
    const bool only_mine = best == best_of_all && (lanes & (lanes - 1)) == 0;
    const auto second_of_all =
        static_cast<uint32_t>(device::LargestOfWave(only_mine ? second : best));
    return OrderOf(OfOrder(best_of_all) + OfOrder(second_of_all));
  }

  __device__ __forceinline__ int BetterGroups(int group) const {
    const uint64_t mine = Key(shared_.groups[group], group);
    int better = 0;
#pragma unroll 1
    for (int first = 0; first < p_.groups; first += device::kWaveSize) {
      const int other = first + device::Lane();
      const bool is_better = other < p_.groups && Key(shared_.groups[other], other) > mine;
      better += __popcll(device::Ballot(is_better));
    }
    return better;
  }

  // Orders as the choice does: the lower place is above others of the same order.
  static __device__ __forceinline__ uint64_t Key(uint32_t order, int place) {
    constexpr int kOrderShift = 32;
    constexpr int kAbovePlaces = 1 << 20;
    return static_cast<uint64_t>(order) << kOrderShift |
           static_cast<uint32_t>(kAbovePlaces - place);
  }

  // The wave's K best.
  __device__ __forceinline__ void ListCandidates(const float (&scores)[kPerLane]) const {
    device::SyncWave();
    const int first = device::Wave() * kPerLane * device::kWaveSize;
    const auto* const vecs = reinterpret_cast<const Vec16*>(shared_.orders + first);
#pragma unroll
    for (int i = 0; i < kPerLane; ++i) {
      const uint32_t order = shared_.orders[Expert(i)];
      const uint64_t mine = Key(order, PlaceInWave(i));
      int rank = 0;
#pragma unroll 8
      for (int v = 0; v < kPerLane * device::kWaveSize / kVecOrders; ++v) {
        rank += CountAbove(mine, vecs[v], v * kVecOrders);
      }
      if (order == 0 || rank >= p_.topk) continue;
      const int candidate = device::Wave() * p_.topk + rank;
      shared_.candidates[candidate] = order;
      shared_.experts[candidate] = Expert(i);
      shared_.scores[candidate] = scores[i];
    }
  }

  // Returns how many of the orders, at `first_place` and behind it, are above `mine`.
  static __device__ __forceinline__ int CountAbove(uint64_t mine, const Vec16& orders,
                                                   int first_place) {
    int above = 0;
#pragma unroll
    for (int i = 0; i < kVecOrders; ++i) {
      if (Key(orders.w[i], first_place + i) > mine) ++above;
    }
    return above;
  }

  // Four lanes rank a candidate.
  __device__ __forceinline__ void ChooseCandidates(int token) const {
    constexpr int kShare = 4;
    const auto thread = static_cast<int>(threadIdx.x);
    const int share = thread % kShare;
    const int candidates = kWaves * p_.topk;
    const auto* const vecs = reinterpret_cast<const Vec16*>(shared_.candidates);
#pragma unroll 1
    for (int first = 0; first < candidates; first += static_cast<int>(blockDim.x) / kShare) {
      const int candidate = first + thread / kShare;
      const uint32_t order = candidate < candidates ? shared_.candidates[candidate] : 0;
      const uint64_t mine = Key(order, candidate);
      int rank = 0;
#pragma unroll 4
      for (int v = share; v < candidates / kVecOrders; v += kShare) {
        rank += CountAbove(mine, vecs[v], v * kVecOrders);
      }
      for (int mask = 1; mask < kShare; mask *= 2) rank += device::ShuffleXor(rank, mask);
      if (order == 0 || share != 0 || rank >= p_.topk) continue;
      p_.topk_idx[At(token, rank)] = shared_.experts[candidate];
      shared_.chosen[rank] = shared_.experts[candidate];
      shared_.weights[rank] = shared_.scores[candidate];
    }
  }

  __device__ __forceinline__ void StoreWeights(int token) const {
    const auto k = static_cast<int>(threadIdx.x);
    if (k >= p_.topk) return;
    float weight = shared_.weights[k];
    if (p_.normalize) {
      float sum = 0.0F;
#pragma unroll 4
      for (int i = 0; i < p_.topk; ++i) sum = sum + shared_.weights[i];
      weight = weight / (sum + p_.normalize_epsilon);
    }
    p_.topk_weights[At(token, k)] = weight * p_.scaling;
  }

  __device__ __forceinline__ size_t At(int token, int k) const {
    return static_cast<size_t>(token) * static_cast<size_t>(p_.topk) + static_cast<size_t>(k);
  }

  const RouteParams& p_;
  const int of_group_;
  Shared& shared_;
  float bias_[kPerLane];  // of the lane's experts
};

}  // namespace octet::routing

#endif  // OCTET_KERNELS_ROUTER_ROUTE_BLOCK_H_
