// Computes where everything goes in a dispatch of `high_throughput`: counts the routing, has
// protocol.h exchange the counts, computes destination offsets from them, and keeps those for later
// calls with the same routing.
//
//   topk_idx [T][K] ── a block for each share ──► share_counts[C][blocks], routes within the share
//   share_counts ── a wave for each column ──────► before[C][blocks], their sums;
//                                                  counts[me][C]     (epoch and count in one word)
//   counts [R][C] ── every block ────────────────► first row of each (expert, source), first slots
//
// A block counts a run of neighbouring tokens. A choice's destination offset is therefore the sum
// of what the previous ranks, blocks and tokens have for that expert: ordered by (expert, source,
// token), the same in every run. A share's count carries its epoch and also announces that the
// routes of that share are stored; the word with this rank's own count also announces that the sums
// of that column are stored. So no grid barrier is needed.
//
// With a layout that is kept from an earlier call all of this is skipped. Then a credit says that
// the peer no longer needs the data that it received before, and which layout it dispatches with.
#ifndef OCTET_KERNELS_HIGH_THROUGHPUT_DISPATCH_LAYOUT_H_
#define OCTET_KERNELS_HIGH_THROUGHPUT_DISPATCH_LAYOUT_H_

#include <hip/hip_runtime.h>

#include "device_ops.h"
#include "kernels/ep/device/interleaved_walk.h"
#include "kernels/ep/device/routing_device.h"
#include "kernels/ep/device/wave_scan.h"
#include "kernels/high_throughput/kernels.h"
#include "kernels/high_throughput/phase.h"
#include "kernels/high_throughput/protocol.h"
#include "runtime/device/epoch.h"
#include "runtime/device/wait.h"

namespace octet::high_throughput {

// The most dynamic shared memory of a block, in 4-byte words: the 48 KiB that every GPU gives a
// kernel without being asked for more, less what the kernel itself declares.
inline constexpr int kMostSharedInts = 12 * 1024 - 256;

// The part of it in which a block's waves count.
inline constexpr int kCountInts = 9 * 1024;

// Returns how many waves of a block count. Each has counts of its own, and their sum follows them.
__host__ __device__ inline int CountWaves(const Layout& layout, int waves) {
  const int most = kCountInts / layout.num_counts;
  return waves < most ? waves : most;
}

// A block's dynamic shared memory after it has counted.
class LayoutShared {
 public:
  __device__ LayoutShared(int32_t* shared, const Layout& layout)
      : shared_(shared), layout_(layout) {}

  // [E] first row of this rank's choices of each expert, on the expert's rank.
  __device__ int32_t* base() const { return shared_; }
  // [E] first row of each expert, on its rank.
  __device__ int32_t* first_row() const { return base() + layout_.num_experts; }
  // [L] rows of this rank's experts.
  __device__ int32_t* counts() const { return first_row() + layout_.num_experts; }
  // [1] the end of this rank's rows.
  __device__ int32_t* end_row() const { return counts() + layout_.num_local_experts; }
  // [kMaxRanks] tokens from each source.
  __device__ int32_t* packets() const { return end_row() + 1; }
  // [kMaxRanks + 1] first token of each source, if the tokens of all sources are contiguous.
  __device__ int32_t* sources() const { return packets() + kMaxRanks; }
  // [kMaxRanks] the same number for this rank's tokens, by destination.
  __device__ int32_t* first_slots() const { return sources() + kMaxRanks + 1; }
  // [kMaxRanks] rows of each rank, padding included.
  __device__ int32_t* rank_rows() const { return first_slots() + kMaxRanks; }
  // [1] the rank that has the most; with Layout::bounded.
  __device__ int32_t* fullest() const { return rank_rows() + kMaxRanks; }
  // Walks over packets().
  __device__ device::InterleavedWalk& walk() const {
    return *reinterpret_cast<device::InterleavedWalk*>(fullest() + 1);
  }
  // [R][C] all counts, if HasRoomForCounts.
  __device__ int32_t* all_counts() const { return reinterpret_cast<int32_t*>(&walk() + 1); }

 private:
  int32_t* shared_;
  const Layout& layout_;
};

// The size of LayoutShared without all_counts().
__host__ __device__ inline int LayoutInts(const Layout& layout) {
  return 2 * layout.num_experts + layout.num_local_experts + 3 + 4 * kMaxRanks +
         static_cast<int>(sizeof(device::InterleavedWalk) / sizeof(int32_t));
}

// Returns whether a block keeps the counts of all ranks while it computes destination offsets from
// them; otherwise it reads them from memory again.
__host__ __device__ inline bool HasRoomForCounts(const Layout& layout) {
  return LayoutInts(layout) + layout.num_ranks * layout.num_counts <= kMostSharedInts;
}

inline size_t SharedInts(const Layout& layout, int waves) {
  const int count = (CountWaves(layout, waves) + 1) * layout.num_counts;
  const int offsets =
      LayoutInts(layout) + (HasRoomForCounts(layout) ? layout.num_ranks * layout.num_counts : 0);
  return static_cast<size_t>(count > offsets ? count : offsets);
}

// Returns the number of tokens of a block's share of the count.
__device__ __forceinline__ int ShareTokens(const DispatchParams& p) {
  const int blocks = static_cast<int>(gridDim.x);
  return (p.num_tokens + blocks - 1) / blocks;
}

// Returns the id of this lane's choice, counted from the first choice of token `token`; -1 from
// token `end` on.
__device__ __forceinline__ int32_t LoadId(const DispatchParams& p, int token, int end) {
  const int flat = token * p.common.layout.topk + device::Lane();
  return flat < end * p.common.layout.topk ? p.topk_idx[flat] : -1;
}

// Adds tokens [token, token + n) to the wave's counts ([E] choices of each expert, [R] tokens to
// each rank). Returns the route of this lane's choice, relative to all that the wave has counted.
// Called by all lanes, of which there must be at least n · K. `id`: LoadId.
__device__ inline Route CountTokens(const DispatchParams& p, int32_t* counts, int token, int n,
                                    int32_t id) {
  const Layout& layout = p.common.layout;
  const int lanes = n * layout.topk;
  const int lane = device::Lane();
  const int flat = token * layout.topk + lane;
  const device::LaneChoice mine =
      device::WaveCheckChoices(p.common, layout, flat, lane % layout.topk, lane < lanes ? id : -1);
  // Both are in one word, so that one exchange of the wave transfers both.
  constexpr int kNoRank = kMaxRanks;
  constexpr int kRankBits = 5;
  static_assert(kNoRank < 1 << kRankBits);
  const int key = mine.expert << kRankBits | (mine.first ? mine.rank : kNoRank);
  int row = 0;
  int slot = mine.first ? 0 : -1;  // the token has been counted with its first choice there
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
  if (mine.expert < 0) return {-1, 0, 0, 0};
  return {mine.expert, p.scatter_idx != nullptr ? p.scatter_idx[flat] : row, slot, 0};
}

// Replaces the waves' counts of each column by their sums over the previous waves, and appends the
// total.
__device__ inline void SumWaves(const Layout& layout, int32_t* shared, int waves) {
  const int columns = layout.num_counts;
  for (int c = threadIdx.x; c < columns; c += blockDim.x) {
    int32_t before = 0;
    for (int w = 0; w < waves; ++w) {
      const int32_t count = shared[w * columns + c];
      shared[w * columns + c] = before;
      before += count;
    }
    shared[waves * columns + c] = before;
  }
}

// The part of the routing that this block counts, and the calling wave's part of it.
struct Share {
  int waves;  // waves that count
  int first;  // tokens [first, last) of this wave
  int last;
  int at_once;  // tokens that it looks at together
  int32_t id;   // of the first of these: LoadId

  __device__ explicit Share(const DispatchParams& p)
      : at_once(device::kWaveSize / p.common.layout.topk) {
    const int tokens = p.new_layout ? p.num_tokens : 0;
    const int share = ShareTokens(p);
    const int block = static_cast<int>(blockIdx.x);
    const int begin = block * share < tokens ? block * share : tokens;
    const int end = begin + share < tokens ? begin + share : tokens;
    const int most = CountWaves(p.common.layout, static_cast<int>(blockDim.x) / device::kWaveSize);
    // Each wave gets neighbouring tokens: as many as it looks at together, if there are enough
    // waves.
    int run = (end - begin + most - 1) / most;
    run = run < at_once ? at_once : run;
    waves = (end - begin + run - 1) / run;
    first = device::Wave() < waves ? begin + device::Wave() * run : end;
    last = first + run < end ? first + run : end;
    id = LoadId(p, first, last);
  }
};

// Counts this block's share of the routing and computes the offsets of its choices within the
// share.
__device__ inline void CountShare(const DispatchParams& p, const Share& share, int32_t* shared,
                                  uint64_t epoch) {
  const Layout& layout = p.common.layout;
  const int columns = layout.num_counts;
  Route* routes = p.common.kept.routes;
  for (int i = threadIdx.x; i < share.waves * columns; i += blockDim.x) shared[i] = 0;
  __syncthreads();
  int32_t* mine = shared + (device::Wave() < share.waves ? device::Wave() : 0) * columns;
  // Routes relative to the wave's own wait in memory, except for those that it looked at last.
  int token = share.first;
  Route route = {-1, 0, 0, 0};
  for (int32_t id = share.id; token < share.last; id = LoadId(p, token, share.last)) {
    const int n = share.last - token < share.at_once ? share.last - token : share.at_once;
    route = CountTokens(p, mine, token, n, id);
    if (token + n == share.last) break;
    if (device::Lane() < n * layout.topk) routes[token * layout.topk + device::Lane()] = route;
    token += n;
  }
  __syncthreads();
  SumWaves(layout, shared, share.waves);
  __syncthreads();
  const auto store = [&](int flat, Route r) {
    if (r.expert >= 0) {
      if (p.scatter_idx == nullptr) r.row += mine[r.expert];
      r.slot += mine[layout.num_experts + layout.experts().RankOf(r.expert)];
    }
    routes[flat] = r;
  };
  for (int i = share.first * layout.topk + device::Lane(); i < token * layout.topk;
       i += device::kWaveSize) {
    store(i, routes[i]);
  }
  const int flat = token * layout.topk + device::Lane();
  if (flat < share.last * layout.topk) store(flat, route);
  device::SyncBlockStores();
  const int32_t* counts = shared + share.waves * columns;
  if (static_cast<int>(threadIdx.x) < columns) device::FenceRelease<device::Scope::kDevice>();
  for (int c = threadIdx.x; c < columns; c += blockDim.x) {
    device::StoreRelaxed<device::Scope::kDevice>(
        p.share_counts + static_cast<size_t>(c) * gridDim.x + blockIdx.x,
        device::PackEpochCount(epoch, static_cast<uint32_t>(counts[c])));
  }
  __syncthreads();  // the memory is used for something else now
}

// Sums each column over the previous blocks, and announces the totals to every rank. A column whose
// counts do not arrive is not announced.
//
// Always inline: clang copies the parameters of a kernel to scratch if the kernel calls a function
// with them.
__device__ __forceinline__ void SumColumns(const DispatchParams& p, uint64_t epoch) {
  const CommonParams& c = p.common;
  const Layout& layout = c.layout;
  const int blocks = static_cast<int>(gridDim.x);
  const int waves = static_cast<int>(blockDim.x) / device::kWaveSize;
  const int first = device::Wave() * blocks + static_cast<int>(blockIdx.x);
  if (first >= layout.num_counts) return;
  // For the peers that read the counts: this rank is done with all previous calls. This fence does
  // not follow the sums of a column, since it takes longer than they do.
  device::FenceRelease<device::Scope::kSystem>();
  const CountExchange exchange(c, epoch);
  for (int column = first; column < layout.num_counts; column += waves * blocks) {
    const uint64_t* words = p.share_counts + static_cast<size_t>(column) * blocks;
    int32_t* before = p.before + static_cast<size_t>(column) * blocks;
    uint64_t start = 0;
    bool came = true;
    const int32_t total = device::WaveExclusiveScan(
        blocks,
        [words](int block) { return device::LoadRelaxed<device::Scope::kDevice>(words + block); },
        [&](int block, uint64_t word) {
          if (device::EpochOf(word) < epoch) {
            const device::Site site = MakeSite(Site::kBlockCount, -1, static_cast<uint32_t>(block));
            came = device::PollUntil(c.failure, words + block, site,
                                     device::PackEpochCount(epoch, 0), &start,
                                     [&](uint64_t seen) {
                                       word = seen;
                                       return device::EpochOf(seen) >= epoch;
                                     }) &&
                   came;
          }
          return static_cast<int32_t>(device::CountOf(word));
        },
        [before](int block, int32_t sum) { before[block] = sum; });
    if (device::Ballot(!came) != 0) return;
    exchange.Announce(column, total);
  }
}

// Computes the destination offsets from the counts.
__device__ inline void ComputeOffsets(const DispatchParams& p, const LayoutShared& s,
                                      uint64_t epoch) {
  const CommonParams& c = p.common;
  const Layout& layout = c.layout;
  const int me = c.peers.rank;
  const int num_local = layout.num_local_experts;
  char* base = c.peers.base[me];
  const bool kept = HasRoomForCounts(layout);
  const auto count = [&](int source, int column) {
    if (kept) return s.all_counts()[source * layout.num_counts + column];
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
    if (layout.experts().RankOf(e) == me) s.counts()[layout.experts().LocalExpert(e, me)] = total;
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
    const int32_t rows =
        device::WaveExclusiveScan(s.first_row() + layout.experts().FirstExpert(rank), num_local);
    if (device::Lane() != 0) continue;
    s.rank_rows()[rank] = rows;
    if (rank == me) *s.end_row() = rows;
  }
  if (threadIdx.x == 0) {
    s.sources()[0] = 0;
    for (int r = 0; r < layout.num_ranks; ++r) s.sources()[r + 1] = s.sources()[r] + s.packets()[r];
  }
  __syncthreads();
  if (layout.bounded && threadIdx.x == blockDim.x - 1) {
    int fullest = 0;
    for (int r = 1; r < layout.num_ranks; ++r) {
      if (s.rank_rows()[r] > s.rank_rows()[fullest]) fullest = r;
    }
    *s.fullest() = fullest;
  }
  for (int e = threadIdx.x; e < layout.num_experts; e += blockDim.x) {
    s.base()[e] += s.first_row()[e];
  }
  s.walk().Init(s.packets(), layout.num_ranks);
  __syncthreads();
}

// After ComputeOffsets: returns whether all ranks have room for the rows that they will receive.
// All blocks of all ranks know the same counts, so all of them come to the same result.
__device__ inline bool AllRanksHaveRoom(const DispatchParams& p, const LayoutShared& s) {
  const Layout& layout = p.common.layout;
  if (!layout.bounded) return true;
  const int rank = *s.fullest();
  const int32_t rows = s.rank_rows()[rank];
  const bool room = rows <= layout.max_rows;
  if (blockIdx.x != 0 || threadIdx.x != 0) return room;
  if (p.rows_needed != nullptr) {
    device::StoreRelaxed<device::Scope::kSystem>(p.rows_needed,
                                                 kRowsKnown | static_cast<uint64_t>(rows));
  } else if (!room) {
    device::RefuseInput(p.common.failure, Site::kTooManyRows, rank, layout.max_rows, rows);
  }
  return room;
}

// Loads the destination offsets of a kept layout.
__device__ inline void LoadOffsets(const CommonParams& c, const LayoutShared& s) {
  const Layout& layout = c.layout;
  int32_t* first_row = s.first_row() + layout.experts().FirstExpert(c.peers.rank);
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

// Keeps the layout, or an empty one if `ok` is false. Called by the first block.
__device__ inline void KeepOffsets(const CommonParams& c, const LayoutShared& s, bool ok) {
  const Layout& layout = c.layout;
  const int32_t* first_row = s.first_row() + layout.experts().FirstExpert(c.peers.rank);
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

// One wave: stores the totals for the host.
__device__ inline void WriteTotals(const DispatchParams& p, const LayoutShared& s, uint64_t epoch) {
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

// Returns this lane's choice of the token with its final destination offset; expert -1 if there is
// none.
__device__ inline Route FinishRoute(const DispatchParams& p, const LayoutShared& s, uint64_t epoch,
                                    int token) {
  const CommonParams& c = p.common;
  const Layout& layout = c.layout;
  Route route = {-1, 0, 0, 0};
  if (device::Lane() >= layout.topk) return route;
  const int flat = token * layout.topk + device::Lane();
  route = c.kept.routes[flat];
  if (!p.new_layout || route.expert < 0) return route;
  const size_t blocks = gridDim.x;
  const int share = token / ShareTokens(p);
  const int rank = layout.experts().RankOf(route.expert);
  route.slot += p.before[static_cast<size_t>(layout.num_experts + rank) * blocks + share];
  if (p.scatter_idx == nullptr) {
    route.row += p.before[static_cast<size_t>(route.expert) * blocks + share];
  } else {
    const auto rows = static_cast<int>(device::CountOf(device::LoadRelaxed<device::Scope::kSystem>(
        layout.Count(c.peers.base[c.peers.rank], epoch, c.peers.rank, route.expert))));
    if (route.row < 0 || route.row >= rows) {
      device::RefuseInput(c.failure, Site::kScatterIndexOutOfRange, flat, rows, route.row);
      route.expert = -1;
    }
  }
  if (route.expert >= 0) route.row += s.base()[route.expert];
  c.kept.routes[flat] = route;
  return route;
}

}  // namespace octet::high_throughput

#endif  // OCTET_KERNELS_HIGH_THROUGHPUT_DISPATCH_LAYOUT_H_
