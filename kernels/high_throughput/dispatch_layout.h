// Where everything goes in a dispatch of `high_throughput`: the routing counted, the counts
// exchanged, places made of them, and kept for later calls with the same routing.
//
//   topk_idx [T][K] ── a block for each share ──► before[C][blocks], routes (within the share)
//                              grid barrier
//   before ── a wave for each column, summed ────► counts[me][C]     (epoch and count in one word)
//   counts [R][C] ── every block ────────────────► first row of each (expert, source), first slots
//
// A block counts a run of neighbouring tokens, so that a choice's place is the sum of what the
// ranks before, the blocks before and the tokens before have for that expert: (expert, source,
// token) in order, the same in every run. The word that brings this rank its own count also says
// that the sums of that column are there, which spares a second grid barrier.
//
// With a layout that is kept from an earlier call all of this is skipped; then a credit says that
// the peer has no use any more for what it received before.
#ifndef OCTET_KERNELS_HIGH_THROUGHPUT_DISPATCH_LAYOUT_H_
#define OCTET_KERNELS_HIGH_THROUGHPUT_DISPATCH_LAYOUT_H_

#include <hip/hip_runtime.h>

#include "device_ops.h"
#include "kernels/device/counts.h"
#include "kernels/device/interleaved_walk.h"
#include "kernels/device/wave_scan.h"
#include "kernels/high_throughput/kernels.h"
#include "kernels/high_throughput/phase.h"
#include "runtime/device/epoch.h"
#include "runtime/device/wait.h"

namespace octet::high_throughput {

// Shared memory that a block counts in, in 4-byte words.
inline constexpr int kCountInts = 9 * 1024;

// Waves of a block that count: each has counts of its own.
__host__ __device__ inline int CountWaves(const Layout& layout, int waves) {
  const int most = kCountInts / layout.num_counts;
  return waves < most ? waves : most;
}

// A block's dynamic shared memory after it has counted.
class PlaceShared {
 public:
  __device__ PlaceShared(int32_t* shared, const Layout& layout)
      : shared_(shared), layout_(layout) {}

  // [E] first row of this rank's choices of each expert, on the expert's rank.
  __device__ int32_t* base() const { return shared_; }
  // [E] first row of each expert, on its rank.
  __device__ int32_t* first_row() const { return base() + layout_.num_experts; }
  // [L] rows of this rank's experts.
  __device__ int32_t* counts() const { return first_row() + layout_.num_experts; }
  // [1] of this rank's rows.
  __device__ int32_t* end_row() const { return counts() + layout_.num_local_experts; }
  // [kMaxRanks] tokens from each source.
  __device__ int32_t* packets() const { return end_row() + 1; }
  // [kMaxRanks + 1] first token of each, if all are laid side by side.
  __device__ int32_t* sources() const { return packets() + kMaxRanks; }
  // [kMaxRanks] that number for this rank's tokens, by destination.
  __device__ int32_t* first_slots() const { return sources() + kMaxRanks + 1; }
  // Over packets().
  __device__ device::InterleavedWalk& walk() const {
    return *reinterpret_cast<device::InterleavedWalk*>(first_slots() + kMaxRanks);
  }

 private:
  int32_t* shared_;
  const Layout& layout_;
};

inline size_t SharedInts(const Layout& layout, int waves) {
  const auto experts = static_cast<size_t>(layout.num_experts);
  const size_t count = static_cast<size_t>(CountWaves(layout, waves) * layout.num_counts);
  const size_t place = 2 * experts + static_cast<size_t>(layout.num_local_experts) + 2 +
                       3 * kMaxRanks + sizeof(device::InterleavedWalk) / sizeof(int32_t);
  return count > place ? count : place;
}

// Tokens of a block's share of the count.
__device__ __forceinline__ int ShareTokens(const DispatchParams& p) {
  const int blocks = static_cast<int>(gridDim.x);
  return (p.num_tokens + blocks - 1) / blocks;
}

__device__ inline void Refuse(const DispatchParams& p, Site site, int flat, int expected,
                              int32_t seen) {
  device::Fail(p.common.failure, device::FailureKind::kInput,
               MakeSite(site, -1, static_cast<uint32_t>(flat)), static_cast<uint64_t>(expected),
               static_cast<uint64_t>(static_cast<int64_t>(seen)), 0);
}

// A lane's choice, among those of the tokens that its wave looks at together.
struct LaneChoice {
  int expert;  // -1: not sent
  int rank;    // of the expert; -1: none
  bool first;  // the token has no choice there before this one
};

// The choice of lane `lane` = token · K + k. An id that cannot be right is reported and not sent.
__device__ inline LaneChoice CheckChoice(const DispatchParams& p, int flat, int k, int32_t id) {
  const Layout& layout = p.common.layout;
  const int expert = id >= 0 && id < layout.num_experts ? id : -1;
  const int rank = expert >= 0 ? expert / layout.num_local_experts : -1;
  bool twice = false;
  bool first = expert >= 0;
  for (int d = 1; d < layout.topk; ++d) {
    const int other = device::ShuffleUp(expert, d);
    const int other_rank = device::ShuffleUp(rank, d);
    if (d > k || other < 0) continue;
    twice = twice || other == expert;
    first = first && other_rank != rank;
  }
  if (id < -1 || id >= layout.num_experts) {
    Refuse(p, Site::kExpertOutOfRange, flat, layout.num_experts, id);
  }
  if (twice) Refuse(p, Site::kExpertTwice, flat, layout.num_experts, id);
  return {twice ? -1 : expert, rank, first};
}

// Adds tokens [token, token + n) to the wave's counts ([E] choices of each expert, [R] tokens to
// each rank), and places their choices among all that the wave has counted. Called by all lanes;
// n · K is not more than there are.
__device__ inline void CountTokens(const DispatchParams& p, int32_t* counts, int token, int n) {
  const Layout& layout = p.common.layout;
  const int lanes = n * layout.topk;
  const int lane = device::Lane();
  const int flat = token * layout.topk + lane;
  const bool has_choice = lane < lanes;
  const LaneChoice mine =
      CheckChoice(p, flat, lane % layout.topk, has_choice ? p.topk_idx[flat] : -1);
  // Both in one word, so that one exchange of the wave shows both.
  constexpr int kNoRank = kMaxRanks;
  constexpr int kRankBits = 5;
  static_assert(kNoRank < 1 << kRankBits);
  const int key = mine.expert << kRankBits | (mine.first ? mine.rank : kNoRank);
  int row = 0;
  int slot = mine.first ? 0 : -1;  // its token has been counted with its first choice there
  for (int d = 1; d < lanes; ++d) {
    const int other = device::ShuffleUp(key, d);
    if (d > lane) continue;
    row += other >> kRankBits == mine.expert ? 1 : 0;
    slot += (other & ((1 << kRankBits) - 1)) == mine.rank ? 1 : 0;
  }
  int32_t* of_expert = mine.expert >= 0 ? counts + mine.expert : nullptr;
  int32_t* of_rank = mine.rank >= 0 ? counts + layout.num_experts + mine.rank : nullptr;
  if (of_expert != nullptr) row += *of_expert;
  if (of_rank != nullptr) slot += *of_rank;
  device::SyncWave();
  if (of_expert != nullptr) device::FetchAddRelaxed<device::Scope::kBlock>(of_expert, 1);
  if (mine.first) device::FetchAddRelaxed<device::Scope::kBlock>(of_rank, 1);
  device::SyncWave();
  if (!has_choice) return;
  Route route = {mine.expert, 0, 0, 0};
  if (mine.expert >= 0) {
    route.row = p.scatter_idx != nullptr ? p.scatter_idx[flat] : row;
    route.slot = slot;
  }
  p.common.kept.routes[flat] = route;
}

// Of each column the sums over the waves before, and the block's own for the others to add up.
__device__ inline void SumWaves(const DispatchParams& p, int32_t* shared, int waves) {
  const int columns = p.common.layout.num_counts;
  for (int c = threadIdx.x; c < columns; c += blockDim.x) {
    int32_t before = 0;
    for (int w = 0; w < waves; ++w) {
      const int32_t count = shared[w * columns + c];
      shared[w * columns + c] = before;
      before += count;
    }
    p.before[static_cast<size_t>(c) * gridDim.x + blockIdx.x] = before;
  }
}

// Counts this block's share of the routing and places its choices within the share.
__device__ inline void CountShare(const DispatchParams& p, int32_t* shared) {
  const Layout& layout = p.common.layout;
  const int columns = layout.num_counts;
  const int waves = CountWaves(layout, static_cast<int>(blockDim.x) / device::kWaveSize);
  const int share = ShareTokens(p);
  const int block = static_cast<int>(blockIdx.x);
  const int begin = block * share < p.num_tokens ? block * share : p.num_tokens;
  const int end = begin + share < p.num_tokens ? begin + share : p.num_tokens;
  // A run of neighbouring tokens for each wave.
  const int run = (end - begin + waves - 1) / waves;
  const bool counts = device::Wave() < waves;
  const int first =
      !counts || begin + device::Wave() * run > end ? end : begin + device::Wave() * run;
  const int last = first + run < end ? first + run : end;
  int32_t* mine = shared + (counts ? device::Wave() : 0) * columns;
  for (int i = threadIdx.x; i < waves * columns; i += blockDim.x) shared[i] = 0;
  __syncthreads();
  const int at_once = device::kWaveSize / layout.topk;
  for (int token = first; token < last; token += at_once) {
    CountTokens(p, mine, token, last - token < at_once ? last - token : at_once);
  }
  __syncthreads();
  SumWaves(p, shared, waves);
  __syncthreads();
  for (int i = first * layout.topk + device::Lane(); i < last * layout.topk;
       i += device::kWaveSize) {
    Route route = p.common.kept.routes[i];
    if (route.expert < 0) continue;
    if (p.scatter_idx == nullptr) route.row += mine[route.expert];
    route.slot += mine[layout.num_experts + route.expert / layout.num_local_experts];
    p.common.kept.routes[i] = route;
  }
  __syncthreads();  // the memory is used for something else now
}

// Sums each column over the blocks before, and tells every rank the whole.
__device__ inline void SumColumns(const DispatchParams& p, uint64_t epoch) {
  const CommonParams& c = p.common;
  const Layout& layout = c.layout;
  const int blocks = static_cast<int>(gridDim.x);
  const int waves = static_cast<int>(blockDim.x) / device::kWaveSize;
  for (int column = device::Wave() * blocks + static_cast<int>(blockIdx.x);
       column < layout.num_counts; column += waves * blocks) {
    const int32_t total =
        device::WaveExclusiveScan(p.before + static_cast<size_t>(column) * blocks, blocks);
    if (device::Lane() < layout.num_ranks) {
      device::FenceRelease<device::Scope::kSystem>();
      device::StoreCount(layout.Count(c.peers.base[device::Lane()], epoch, c.peers.rank, column),
                         epoch, total);
    }
  }
}

// Waits for all counts. False if some did not come.
__device__ inline bool AwaitCounts(const CommonParams& c, uint64_t epoch) {
  const Layout& layout = c.layout;
  const uint64_t* words = layout.Count(c.peers.base[c.peers.rank], epoch, 0, 0);
  const int num_words = layout.num_ranks * layout.num_counts;
  if (!device::AwaitCounts(c, words, layout.num_ranks, layout.num_counts, epoch,
                           Site::kDispatchCount, [](int, uint32_t) {})) {
    return false;
  }
  // Behind this rank's own words are the sums of its columns; behind the others' the end of what
  // they did with the rows of the call before.
  for (int i = threadIdx.x; i < num_words; i += blockDim.x) {
    device::AcquirePolled<device::Scope::kSystem>(words + i);
  }
  __syncthreads();
  return true;
}

// Makes places of the counts.
__device__ inline void MakePlaces(const DispatchParams& p, const PlaceShared& s, uint64_t epoch) {
  const CommonParams& c = p.common;
  const Layout& layout = c.layout;
  const int me = c.peers.rank;
  const int num_local = layout.num_local_experts;
  char* base = c.peers.base[me];
  const auto count = [&](int source, int column) {
    return static_cast<int32_t>(device::CountOf(
        device::LoadRelaxed<device::Scope::kSystem>(layout.Count(base, epoch, source, column))));
  };
  for (int e = threadIdx.x; e < layout.num_experts; e += blockDim.x) {
    int32_t total = 0;
    int32_t before = 0;
    for (int source = 0; source < layout.num_ranks; ++source) {
      const int32_t rows = count(source, e);
      total += rows;
      if (source < me) before += rows;
    }
    const int padded = total + layout.expert_alignment - 1;
    s.base()[e] = before;
    s.first_row()[e] = padded - padded % layout.expert_alignment;
    if (e / num_local == me) s.counts()[e - me * num_local] = total;
  }
  if (static_cast<int>(threadIdx.x) < layout.num_ranks) {
    const int rank = static_cast<int>(threadIdx.x);
    int32_t before = 0;
    for (int source = 0; source < me; ++source) before += count(source, layout.num_experts + rank);
    s.first_slots()[rank] = before;
    s.packets()[rank] = count(rank, layout.num_experts + me);
  }
  __syncthreads();
  const int waves = static_cast<int>(blockDim.x) / device::kWaveSize;
  for (int rank = device::Wave(); rank < layout.num_ranks; rank += waves) {
    const int32_t rows = device::WaveExclusiveScan(s.first_row() + rank * num_local, num_local);
    if (rank == me && device::Lane() == 0) *s.end_row() = rows;
  }
  if (threadIdx.x == 0) {
    s.sources()[0] = 0;
    for (int r = 0; r < layout.num_ranks; ++r) s.sources()[r + 1] = s.sources()[r] + s.packets()[r];
  }
  __syncthreads();
  for (int e = threadIdx.x; e < layout.num_experts; e += blockDim.x)
    s.base()[e] += s.first_row()[e];
  s.walk().Init(s.packets(), layout.num_ranks);
  __syncthreads();
}

// Places of a layout that is kept.
__device__ inline void LoadPlaces(const CommonParams& c, const PlaceShared& s) {
  const Layout& layout = c.layout;
  int32_t* first_row = s.first_row() + c.peers.rank * layout.num_local_experts;
  for (int e = threadIdx.x; e < layout.num_local_experts; e += blockDim.x) {
    first_row[e] = c.kept.expert_offsets[e];
    s.counts()[e] = c.kept.expert_counts[e];
  }
  if (threadIdx.x == 0) *s.end_row() = c.kept.expert_offsets[layout.num_local_experts];
  for (int r = threadIdx.x; r <= layout.num_ranks; r += blockDim.x) {
    s.sources()[r] = c.kept.source_offsets[r];
    if (r == layout.num_ranks) continue;
    s.packets()[r] = c.kept.packet_counts[r];
    s.first_slots()[r] = c.kept.first_slots[r];
  }
  __syncthreads();
  s.walk().Init(s.packets(), layout.num_ranks);
  __syncthreads();
}

// The first block keeps the layout; after a failure an empty one, so that what is enqueued behind
// this kernel finds nothing.
__device__ inline void KeepPlaces(const CommonParams& c, const PlaceShared& s, bool ok) {
  const Layout& layout = c.layout;
  const int32_t* first_row = s.first_row() + c.peers.rank * layout.num_local_experts;
  for (int e = threadIdx.x; e < layout.num_local_experts; e += blockDim.x) {
    c.kept.expert_offsets[e] = ok ? first_row[e] : 0;
    c.kept.expert_counts[e] = ok ? s.counts()[e] : 0;
  }
  if (threadIdx.x == 0) {
    c.kept.expert_offsets[layout.num_local_experts] = ok ? *s.end_row() : 0;
  }
  for (int r = threadIdx.x; r <= layout.num_ranks; r += blockDim.x) {
    c.kept.source_offsets[r] = ok ? s.sources()[r] : 0;
    if (r == layout.num_ranks) continue;
    c.kept.packet_counts[r] = ok ? s.packets()[r] : 0;
    c.kept.first_slots[r] = ok ? s.first_slots()[r] : 0;
  }
}

// One wave tells the host.
__device__ inline void WriteTotals(const DispatchParams& p, const PlaceShared& s, uint64_t epoch) {
  const Layout& layout = p.common.layout;
  if (p.totals == nullptr || device::Wave() != 0) return;
  for (int e = device::Lane(); e < layout.num_local_experts; e += device::kWaveSize) {
    p.totals->expert_counts[e] = s.counts()[e];
  }
  if (device::Lane() == 0) {
    p.totals->rows = *s.end_row();
    p.totals->tokens = s.sources()[layout.num_ranks];
  }
  device::WavePublish(&p.totals->epoch, epoch);
}

// This lane's choice of the token, with its final place; expert -1 where there is none.
__device__ inline Route FinishRoute(const DispatchParams& p, const PlaceShared& s, uint64_t epoch,
                                    int token) {
  const CommonParams& c = p.common;
  const Layout& layout = c.layout;
  Route route = {-1, 0, 0, 0};
  if (device::Lane() >= layout.topk) return route;
  const int flat = token * layout.topk + device::Lane();
  route = c.kept.routes[flat];
  if (!p.fresh || route.expert < 0) return route;
  const size_t blocks = gridDim.x;
  const int share = token / ShareTokens(p);
  const int rank = route.expert / layout.num_local_experts;
  route.slot += p.before[static_cast<size_t>(layout.num_experts + rank) * blocks + share];
  if (p.scatter_idx == nullptr) {
    route.row += p.before[static_cast<size_t>(route.expert) * blocks + share];
  } else {
    const auto rows = static_cast<int>(device::CountOf(device::LoadRelaxed<device::Scope::kSystem>(
        layout.Count(c.peers.base[c.peers.rank], epoch, c.peers.rank, route.expert))));
    if (route.row < 0 || route.row >= rows) {
      Refuse(p, Site::kScatterIndexOutOfRange, flat, rows, route.row);
      route.expert = -1;
    }
  }
  if (route.expert >= 0) route.row += s.base()[route.expert];
  c.kept.routes[flat] = route;
  return route;
}

}  // namespace octet::high_throughput

#endif  // OCTET_KERNELS_HIGH_THROUGHPUT_DISPATCH_LAYOUT_H_
