// The experts of all tokens, which every block finds for itself from the logits of all tokens, and
// the list of this rank's experts that somebody chose.
//
// A pair is a token and one of its experts on this rank. Pairs are in order of their experts, and
// of their tokens; each entry of the list has its pairs. The shared experts, which every token
// chose, come last, with entry and pairs of their own.
//
// With dense pairs, where a product has room for all tokens anyway, an entry has a pair for every
// token, in their order, and those that nobody chose have the weight kNotChosen.
#ifndef OCTET_KERNELS_DECODE_CHOSEN_H_
#define OCTET_KERNELS_DECODE_CHOSEN_H_

#include <cstdint>

#include "device_ops.h"
#include "kernels/decode/kernels.h"
#include "kernels/decode/layout.h"
#include "kernels/decode/tokens.h"
#include "kernels/ep/device/load_counters_device.h"
#include "kernels/ep/device/wave_scan.h"
#include "kernels/placement/table_device.h"
#include "kernels/router/route_device.h"
#include "kernels/router/router_math.h"

namespace octet::decode {

// The tokens that chose a local expert, and the first of its pairs. Not with dense pairs.
struct ExpertTokens {
  uint32_t bits[kMostTokens / 32];
  int32_t first_pair;

  __device__ __forceinline__ int count() const { return __popc(bits[0]) + __popc(bits[1]); }
  // Returns how many of them come before `token`.
  __device__ __forceinline__ int Below(int token) const {
    const uint32_t below = (1U << token % 32) - 1;
    return token < 32 ? __popc(bits[0] & below) : __popc(bits[0]) + __popc(bits[1] & below);
  }
};

// A block's arrays, in its shared memory.
struct Chosen {
  int32_t* topk_idx;
  float* topk_weights;
  ExpertTokens* tokens;  // [local experts]
  Entry* entries;
  float* pair_weights;
  uint8_t* pair_tokens;

  __device__ __forceinline__ Chosen(const SharedLayout& layout, char* shared)
      : topk_idx(reinterpret_cast<int32_t*>(shared + layout.topk_idx)),
        topk_weights(reinterpret_cast<float*>(shared + layout.topk_weights)),
        tokens(reinterpret_cast<ExpertTokens*>(shared + layout.chosen)),
        entries(reinterpret_cast<Entry*>(shared + layout.entries)),
        pair_weights(reinterpret_cast<float*>(shared + layout.pair_weights)),
        pair_tokens(reinterpret_cast<uint8_t*>(shared + layout.pair_tokens)) {}
};

// No weight of a router: a NaN that no arithmetic makes.
inline constexpr uint32_t kNotChosen = 0xffffffffU;

// The base of both kinds of lists. All threads of a block call its functions.
class Choices {
 public:
  // `num_tokens`: of all ranks.
  __device__ __forceinline__ Choices(const DecodeParams& p, const Chosen& chosen, int num_tokens)
      : p_(p), chosen_(chosen), num_tokens_(num_tokens) {}

  // Finds the experts and weights of all tokens. A barrier follows.
  __device__ __forceinline__ void Route() const {
    constexpr int kFew = 4;
    constexpr int kSome = 8;
    constexpr int kMost = kMostExperts / device::kMinWaveSize;
    const int per_lane = (p_.route.num_experts + device::kWaveSize - 1) / device::kWaveSize;
    if (per_lane <= kFew) {
      RouteTokens<kFew>(p_.route, chosen_, num_tokens_);
    } else if (kMost <= kSome || per_lane <= kSome) {
      RouteManyExperts<kSome>(p_.route, chosen_, num_tokens_);
    } else {
      RouteManyExperts<(kMost > kSome ? kMost : kSome)>(p_.route, chosen_, num_tokens_);
    }
    __syncthreads();
  }

  // By one block, after List: counts the rows of the rank's experts. No barrier is needed after it.
  template <bool kDense>
  __device__ __forceinline__ void CountRows(uint64_t epoch) const {
    if (p_.loads.totals == nullptr) return;
    device::CountLoads(p_.loads, epoch, Thread(), Threads(), [this](int e) {
      if constexpr (!kDense) return chosen_.tokens[e].count();
      const int32_t expert = p_.peers.rank * p_.num_local_experts + e;
      int rows = 0;
#pragma unroll 1
      for (int i = 0; i < num_tokens_ * p_.route.topk; ++i) {
        rows += chosen_.topk_idx[i] == expert ? 1 : 0;
      }
      return rows;
    });
    __syncthreads();
  }

  // By one block, after Route and before Place. This rank's tokens are `first_own` and those behind
  // it.
  __device__ __forceinline__ void StoreOwn(int first_own, int num_own) const {
    const int topk = p_.route.topk;
#pragma unroll 1
    for (int i = Thread(); i < num_own * topk; i += Threads()) {
      p_.route.topk_idx[i] = chosen_.topk_idx[first_own * topk + i];
      p_.route.topk_weights[i] = chosen_.topk_weights[first_own * topk + i];
    }
  }

  // Puts the physical experts in the place of the logical ones, if there is a placement: what is
  // not on this rank is another replica's. Each rank finds the same ones. Before List.
  __device__ __forceinline__ void Place() const {
    if (p_.placement.ranges == nullptr) return;
    __syncthreads();  // StoreOwn has read them
#pragma unroll 1
    for (int i = Thread(); i < num_tokens_ * p_.route.topk; i += Threads()) {
      const Tokens::Place token = Tokens::PlaceOf(i / p_.route.topk);
      chosen_.topk_idx[i] =
          placement::PhysicalOf(p_.placement, chosen_.topk_idx[i], {token.rank, token.number});
    }
    __syncthreads();
  }

 protected:
  static __device__ __forceinline__ int Thread() { return static_cast<int>(threadIdx.x); }
  static __device__ __forceinline__ int Threads() { return static_cast<int>(blockDim.x); }

  // Calls `use(expert, token, weight)` for all choices of local experts.
  template <typename Use>
  __device__ __forceinline__ void ForChoices(Use use) const {
#pragma unroll 1
    for (int i = Thread(); i < num_tokens_ * p_.route.topk; i += Threads()) {
      const int expert = chosen_.topk_idx[i] - p_.peers.rank * p_.num_local_experts;
      if (expert < 0 || expert >= p_.num_local_experts) continue;
      use(expert, i / p_.route.topk, chosen_.topk_weights[i]);
    }
  }

  // The pairs of the shared experts, from `first` on.
  template <bool kDense>
  __device__ __forceinline__ void PutSharedPairs(int first) const {
    if (p_.shared_experts.columns == 0) return;
#pragma unroll 1
    for (int token = Thread(); token < num_tokens_; token += Threads()) {
      chosen_.pair_weights[first + token] = SharedWeight(
          p_.shared_gate ? p_.route.logits + token * p_.route.stride + p_.route.num_experts
                         : nullptr);
      if constexpr (!kDense) chosen_.pair_tokens[first + token] = static_cast<uint8_t>(token);
    }
  }

  const DecodeParams& p_;
  const Chosen& chosen_;
  const int num_tokens_;

 private:
  // kPerLane: at least the experts of a lane.
  template <int kPerLane>
  static __device__ __forceinline__ void RouteTokens(RouteParams route, const Chosen& chosen,
                                                     int num_tokens) {
    route.topk_idx = chosen.topk_idx;
    route.topk_weights = chosen.topk_weights;
#pragma unroll 1
    for (int token = device::Wave(); token < num_tokens; token += Threads() / device::kWaveSize) {
      routing::RouteToken<kPerLane>(route, token);
    }
  }
  // `logit`: of the gate; nullptr if there is none.
  static __device__ OCTET_OUT_OF_LINE float SharedWeight(const float* logit) {
    return logit == nullptr ? 1.0F : Sigmoid(*logit);
  }
  template <int kPerLane>
  static __device__ OCTET_OUT_OF_LINE void RouteManyExperts(RouteParams route, Chosen chosen,
                                                            int num_tokens) {
    RouteTokens<kPerLane>(route, chosen, num_tokens);
  }
};

// Makes the list. Prepare comes before Route, and a barrier between; List comes after it and
// returns the number of routed entries, after a barrier.
template <bool kDense>
class Choice : public Choices {
 public:
  using Choices::Choices;

  __device__ __forceinline__ void Prepare() const {
#pragma unroll 1
    for (int i = Thread(); i < p_.num_local_experts; i += Threads()) chosen_.tokens[i] = {};
  }

  __device__ __forceinline__ int List() const {
    ForChoices([this](int expert, int token, float /*weight*/) {
      atomicOr(&chosen_.tokens[expert].bits[token / 32], 1U << token % 32);
    });
    __syncthreads();
    const int entries = ListEntries();
    ForChoices([this](int expert, int token, float weight) {
      const ExpertTokens& tokens = chosen_.tokens[expert];
      const int pair = tokens.first_pair + tokens.Below(token);
      chosen_.pair_weights[pair] = weight;
      chosen_.pair_tokens[pair] = static_cast<uint8_t>(token);
    });
    PutSharedPairs<kDense>(chosen_.entries[entries].first_pair);
    __syncthreads();
    return entries;
  }

 private:
  __device__ __forceinline__ int ListEntries() const {
    __shared__ int32_t num_entries;
    if (device::Wave() == 0) {
      int listed = 0;
      int pairs = 0;
#pragma unroll 1
      for (int first = 0; first < p_.num_local_experts; first += device::kWaveSize) {
        const int expert = first + device::Lane();
        const int tokens = expert < p_.num_local_experts ? chosen_.tokens[expert].count() : 0;
        const uint64_t has = device::Ballot(tokens > 0);
        const int before = device::WaveInclusiveSum(tokens) - tokens;
        const uint64_t below = (uint64_t{1} << device::Lane()) - 1;
        if (tokens > 0) {
          chosen_.entries[listed + __popcll(has & below)] = {expert, pairs + before, tokens};
          chosen_.tokens[expert].first_pair = pairs + before;
        }
        listed += __popcll(has);
        pairs += device::Shuffle(before + tokens, device::kWaveSize - 1);
      }
      if (device::Lane() == 0) {
        num_entries = listed;
        chosen_.entries[listed] = {0, pairs, num_tokens_};  // the shared experts
      }
    }
    __syncthreads();
    return num_entries;
  }
};

template <>
class Choice<true> : public Choices {
 public:
  using Choices::Choices;

  __device__ __forceinline__ void Prepare() const {
    if (Thread() < kWords) Words()[Thread()] = 0;
    const int most = Smaller(num_tokens_ * p_.route.topk, p_.num_local_experts);
#pragma unroll 1
    for (int i = Thread(); i < most * num_tokens_; i += Threads()) {
      reinterpret_cast<uint32_t*>(chosen_.pair_weights)[i] = kNotChosen;
    }
  }

  __device__ __forceinline__ int List() const {
    if (num_tokens_ == 1) return ListOne();
    ForChoices([](int expert, int /*token*/, float /*weight*/) {
      atomicOr(&Words()[expert / 32], 1U << expert % 32);
    });
    __syncthreads();
    ForChoices([this](int expert, int token, float weight) {
      chosen_.pair_weights[Below(expert) * num_tokens_ + token] = weight;
    });
#pragma unroll 1
    for (int expert = Thread(); expert < p_.num_local_experts; expert += Threads()) {
      if ((Words()[expert / 32] >> expert % 32 & 1) == 0) continue;
      const int entry = Below(expert);
      chosen_.entries[entry] = {expert, entry * num_tokens_, num_tokens_};
    }
    const int entries = Below(kMostExperts);
    // The shared experts.
    if (Thread() == 0) chosen_.entries[entries] = {0, entries * num_tokens_, num_tokens_};
    PutSharedPairs<true>(entries * num_tokens_);
    __syncthreads();
    return entries;
  }

 private:
  // The list of one token, by one wave: its experts differ, so each is an entry.
  __device__ __forceinline__ int ListOne() const {
    __shared__ int32_t num_entries;
    if (device::Wave() == 0) {
      const int lane = device::Lane();
      const bool chosen = lane < p_.route.topk;
      const int expert =
          chosen ? chosen_.topk_idx[lane] - p_.peers.rank * p_.num_local_experts : -1;
      const bool local = expert >= 0 && expert < p_.num_local_experts;
      const uint64_t locals = device::Ballot(local);
      int entry = 0;
      for (int k = 0; k < p_.route.topk; ++k) {
        const int other = device::Shuffle(expert, k);
        entry += (locals >> k & 1) != 0 && other < expert ? 1 : 0;
      }
      if (local) {
        chosen_.entries[entry] = {expert, entry, 1};
        chosen_.pair_weights[entry] = chosen_.topk_weights[lane];
      }
      const int entries = __popcll(locals);
      if (lane == 0) {
        num_entries = entries;
        chosen_.entries[entries] = {0, entries, 1};  // the shared experts
      }
      PutSharedPairs<true>(entries);
    }
    __syncthreads();
    return num_entries;
  }

  static constexpr int kWords = kMostExperts / 32;
  // A bit for each local expert that somebody chose.
  static __device__ __forceinline__ uint32_t* Words() {
    __shared__ uint32_t words[kWords];
    return words;
  }
  // Returns how many come before `expert`.
  __device__ __forceinline__ int Below(int expert) const {
    int below = 0;
    const int words = (p_.num_local_experts + 31) / 32;
#pragma unroll 1
    for (int i = 0; i < words; ++i) {
      const int bits = expert - i * 32;
      if (bits <= 0) break;
      below += __popc(bits >= 32 ? Words()[i] : Words()[i] & ((1U << bits) - 1));
    }
    return below;
  }
};

}  // namespace octet::decode

#endif  // OCTET_KERNELS_DECODE_CHOSEN_H_
