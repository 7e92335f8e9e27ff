// The device side of routing.h: checks a routing and finds the destinations of a token.
//
// A choice is wrong if its id is not in [-1, E), or if its token has chosen the same expert before.
// A wrong choice is reported as FailureKind::kInput with its flat index and its id; the check
// changes nothing else. Kernels read routings in different ways, so there is one form of the check
// for a thread with one choice, and one for a wave whose lanes have one choice each.
#ifndef OCTET_KERNELS_EP_DEVICE_ROUTING_DEVICE_H_
#define OCTET_KERNELS_EP_DEVICE_ROUTING_DEVICE_H_

#include <cstdint>

#include "device_ops.h"
#include "kernels/ep/device/call_layout.h"
#include "kernels/ep/device/call_params.h"
#include "kernels/ep/device/credits.h"
#include "kernels/ep/device/routing.h"
#include "kernels/ep/device/site.h"
#include "runtime/device/wait.h"

namespace octet::device {

// Returns the bits below bit n, which may be 32.
__device__ __forceinline__ uint32_t BitsBelow(int n) { return n < 32 ? (1U << n) - 1 : ~0U; }

// Returns the position of the n-th set bit.
__device__ __forceinline__ int NthBit(uint32_t bits, int n) {
  for (; n > 0; --n) bits &= bits - 1;
  return __ffs(static_cast<int>(bits)) - 1;
}

// Reports that the caller's input has `seen` at flat index `flat`; `expected` is the bound.
// `check`: RoutingCheck, or one of a strategy's sites.
template <typename Check>
__device__ inline void RefuseInput(const FailurePort& port, Check check, int flat, int expected,
                                   int32_t seen) {
  Fail(port, FailureKind::kInput, MakeSite(check, -1, static_cast<uint32_t>(flat)),
       static_cast<uint64_t>(expected), static_cast<uint64_t>(static_cast<int64_t>(seen)), 0);
}

// Reports a wrong choice. If its id is an expert, the token has chosen that expert twice.
__device__ inline void RefuseChoice(const FailurePort& port, const ExpertMap& experts, int flat,
                                    int32_t id) {
  RefuseInput(port,
              experts.IsExpert(id) ? RoutingCheck::kExpertTwice : RoutingCheck::kExpertOutOfRange,
              flat, experts.num_experts, id);
}

// Returns whether one of the first `k` of a token's choices is `id`. `chosen`: all of them.
__device__ __forceinline__ bool ChosenBefore(const int32_t* chosen, int k, int32_t id) {
  bool before = false;
  for (int i = 0; i < k; ++i) before = before || chosen[i] == id;
  return before;
}

// Checks the choice `topk_idx[flat]`, which is `id`. Returns whether it may be sent. An expert that
// is chosen twice may be sent, since it has been counted.
__device__ inline bool CheckChoice(const CallParams& c, const CallLayout& layout,
                                   const int32_t* topk_idx, int flat, int32_t id) {
  const int k = flat % layout.topk;
  const bool twice = id >= 0 && ChosenBefore(topk_idx + (flat - k), k, id);
  const bool in_range = id == -1 || layout.experts().IsExpert(id);
  if (!in_range || twice) RefuseChoice(c.failure, layout.experts(), flat, id);
  return in_range;
}

// A lane's choice, among those of the tokens that its wave checks together.
struct LaneChoice {
  int expert;  // -1: not sent
  int rank;    // of the expert; -1: none
  bool first;  // this is the token's first choice on that rank
};

// Checks the choice `id` of the calling lane, the `k`-th of its token, whose other choices the
// neighbouring lanes have. Called by all lanes of a wave. A wrong choice is not sent.
__device__ inline LaneChoice WaveCheckChoices(const CallParams& c, const CallLayout& layout,
                                              int flat, int k, int32_t id) {
  const int expert = layout.experts().IsExpert(id) ? id : -1;
  const int rank = expert >= 0 ? layout.experts().RankOf(expert) : -1;
  bool twice = false;
  bool first = expert >= 0;
  for (int d = 1; d < layout.topk; ++d) {
    const int other = ShuffleUp(expert, d);
    const int other_rank = ShuffleUp(rank, d);
    if (d > k || other < 0) continue;
    twice = twice || other == expert;
    first = first && other_rank != rank;
  }
  const bool in_range = id == -1 || expert >= 0;
  if (!in_range || twice) RefuseChoice(c.failure, layout.experts(), flat, id);
  return {twice ? -1 : expert, rank, first};
}

// The destination ranks of a wave's token, computed from the choices that its lanes hold.
struct Destinations {
  int rank;          // of this lane's choice
  uint32_t ranks;    // all destination ranks, a bit each
  uint32_t choices;  // lanes with the same rank as this one
  uint32_t firsts;   // the first lane of each rank

  // `rank_of_lane`: -1 in lanes without a choice; at most 32 lanes have one.
  __device__ Destinations(int rank_of_lane, int num_ranks)
      : rank(rank_of_lane), ranks(0), choices(0) {
    for (int r = 0; r < num_ranks; ++r) {
      const auto lanes = static_cast<uint32_t>(Ballot(rank == r));
      if (lanes != 0) ranks |= 1U << r;
      if (rank == r) choices = lanes;
    }
    firsts = static_cast<uint32_t>(Ballot(rank >= 0 && index() == 0));
  }

  // Return this lane's position among the choices of its rank, and its rank's position among the
  // token's ranks.
  __device__ int index() const { return __popc(choices & BitsBelow(Lane() & 31)); }
  __device__ int slot() const { return __popc(ranks & BitsBelow(rank)); }
  // Returns the number of destination ranks; each gets one copy of the token.
  __device__ int copies() const { return __popc(firsts); }
  // Returns the lane that holds the first choice of the i-th copy's rank.
  __device__ int LaneOfCopy(int i) const { return NthBit(firsts, i); }
};

}  // namespace octet::device

#endif  // OCTET_KERNELS_EP_DEVICE_ROUTING_DEVICE_H_
