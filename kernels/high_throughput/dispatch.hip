// high_throughput dispatch: all places are worked out first; then every token goes once to each of
// its ranks, straight to where the caller finds it.
//
//   this rank                                        every rank
//   ---------                                        ----------
//   topk_idx [T][K] ── a block for each share ──► before[C][blocks], routes (within the share)
//                              grid barrier
//   before ── a wave for each column, summed ────► counts[me][C]     (epoch and count in one word)
//   counts [R][C] ── every block ────────────────► first row of each (expert, source), first slots
//
//   x [T] ── a wave for each token ──────────────► rows[place]       16-byte stores, read once
//                                                  packets[me][slot] choices, then the flag
//   packets, rows ── other waves, side by side ──► rows of its other choices, sources
//
// Layout. A block counts a run of neighbouring tokens, so that a choice's place is the sum of what
// the ranks before, the blocks before and the tokens before have for that expert: (expert, source,
// token) in order, the same in every run. The word that brings this rank its own count also says
// that the sums of that column are there, which spares a second grid barrier.
// Send. Tokens are taken in order by all blocks together, and a token's copies leave together. One
// release for all of them; the flags after it are relaxed, since a second release would wait for
// the first flag's way to the peer.
// Receive. Packets are taken in the order in which the sources send them. The row of a token with
// several choices here is copied to the other places while it is likely still in the cache.
//
// With a layout that is kept from an earlier call everything up to the rows is skipped; then a
// credit says that the peer has no use any more for what it received before.
#include <hip/hip_runtime.h>

#include "device_ops.h"
#include "kernels/device/interleaved_walk.h"
#include "kernels/device/row_copy.h"
#include "kernels/device/wave_scan.h"
#include "kernels/high_throughput/kernels.h"
#include "kernels/high_throughput/phase.h"
#include "runtime/device/call_epoch_device.h"
#include "runtime/device/grid_barrier_device.h"
#include "runtime/device/tracer.h"
#include "runtime/device/wait.h"

namespace octet::high_throughput {
namespace {

using device::FetchAddRelaxed;
using device::Lane;
using device::LoadRelaxed;
using device::Scope;
using device::Shuffle;
using device::StoreRelaxed;
using device::Vec16;
using device::Wave;

// Vectors of a row that a lane has in flight, beside all that it must know of a token's places:
// more do not fit into the registers of kMaxThreads threads.
constexpr int kRowUnroll = 4;

// Choices whose places within the block's share are worked out at a time.
constexpr int kTileChoices = 256;

// A block's dynamic shared memory while it counts, ...
struct CountShared {
  int32_t* expert_before;  // [E] choices of each expert before the tile
  int32_t* rank_before;    // [kMaxRanks] tokens for each rank before the tile
  int32_t* id;             // [kTileChoices]
  int32_t* expert;         // [kTileChoices] -1: not sent
  int32_t* rank;           // [kTileChoices] -1: not the token's first choice there

  __device__ CountShared(int32_t* shared, int num_experts)
      : expert_before(shared),
        rank_before(expert_before + num_experts),
        id(rank_before + kMaxRanks),
        expert(id + kTileChoices),
        rank(expert + kTileChoices) {}
};

// ... and afterwards.
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

constexpr size_t SharedInts(int num_experts, int num_local_experts) {
  const size_t experts = static_cast<size_t>(num_experts);
  const size_t count = experts + kMaxRanks + 3 * kTileChoices;
  const size_t place = 2 * experts + static_cast<size_t>(num_local_experts) + 2 + 3 * kMaxRanks +
                       sizeof(device::InterleavedWalk) / sizeof(int32_t);
  return count > place ? count : place;
}

// Tokens of a block's share of the count.
__device__ __forceinline__ int ShareTokens(const DispatchParams& p) {
  const int blocks = static_cast<int>(gridDim.x);
  return (p.num_tokens + blocks - 1) / blocks;
}

__device__ void Refuse(const DispatchParams& p, Site site, int flat, int expected, int32_t seen) {
  device::Fail(p.common.failure, device::FailureKind::kInput,
               MakeSite(site, -1, static_cast<uint32_t>(flat)), static_cast<uint64_t>(expected),
               static_cast<uint64_t>(static_cast<int64_t>(seen)), 0);
}

// Of the tile's choice i: the expert (-1 if it is not sent), and the rank if the token has no
// choice there before this one. An id that cannot be right is reported and not sent.
__device__ void CheckChoice(const DispatchParams& p, const CountShared& s, int first, int i) {
  const Layout& layout = p.common.layout;
  const int32_t id = s.id[i];
  const int expert = id >= 0 && id < layout.num_experts ? id : -1;
  const int rank = expert >= 0 ? expert / layout.num_local_experts : -1;
  bool twice = false;
  bool first_there = expert >= 0;
  for (int before = i - i % layout.topk; before < i; ++before) {
    const int32_t other = s.id[before];
    if (other < 0 || other >= layout.num_experts) continue;
    twice = twice || other == expert;
    first_there = first_there && other / layout.num_local_experts != rank;
  }
  if (id < -1 || id >= layout.num_experts) {
    Refuse(p, Site::kExpertOutOfRange, first + i, layout.num_experts, id);
  }
  if (twice) Refuse(p, Site::kExpertTwice, first + i, layout.num_experts, id);
  s.expert[i] = twice ? -1 : expert;
  s.rank[i] = first_there ? rank : -1;
}

// The route of the tile's choice i, row and slot counted from the beginning of the block's share.
__device__ void PlaceChoice(const DispatchParams& p, const CountShared& s, int first, int i) {
  const Layout& layout = p.common.layout;
  Route route = {s.expert[i], 0, 0, 0};
  if (route.expert >= 0) {
    const int rank = route.expert / layout.num_local_experts;
    int row = s.expert_before[route.expert];
    int slot = s.rank_before[rank] - (s.rank[i] < 0 ? 1 : 0);
    for (int j = 0; j < i; ++j) {
      row += s.expert[j] == route.expert ? 1 : 0;
      slot += s.rank[j] == rank ? 1 : 0;
    }
    route.row = p.scatter_idx != nullptr ? p.scatter_idx[first + i] : row;
    route.slot = slot;
  }
  p.common.kept.routes[first + i] = route;
}

// Counts this block's share of the routing and places its choices within the share.
__device__ void CountShare(const DispatchParams& p, const CountShared& s) {
  const Layout& layout = p.common.layout;
  const int threads = static_cast<int>(blockDim.x);
  const int thread = static_cast<int>(threadIdx.x);
  const int share = ShareTokens(p);
  const int block = static_cast<int>(blockIdx.x);
  const int begin = block * share < p.num_tokens ? block * share : p.num_tokens;
  const int end = begin + share < p.num_tokens ? begin + share : p.num_tokens;
  const int tile_tokens = kTileChoices / layout.topk;
  for (int i = thread; i < layout.num_experts + kMaxRanks; i += threads) s.expert_before[i] = 0;
  for (int token = begin; token < end; token += tile_tokens) {
    const int first = token * layout.topk;
    const int n = (end - token < tile_tokens ? end - token : tile_tokens) * layout.topk;
    for (int i = thread; i < n; i += threads) s.id[i] = p.topk_idx[first + i];
    __syncthreads();
    for (int i = thread; i < n; i += threads) CheckChoice(p, s, first, i);
    __syncthreads();
    for (int i = thread; i < n; i += threads) PlaceChoice(p, s, first, i);
    __syncthreads();
    for (int i = thread; i < n; i += threads) {
      if (s.expert[i] >= 0) FetchAddRelaxed<Scope::kBlock>(&s.expert_before[s.expert[i]], 1);
      if (s.rank[i] >= 0) FetchAddRelaxed<Scope::kBlock>(&s.rank_before[s.rank[i]], 1);
    }
    __syncthreads();
  }
  __syncthreads();
  for (int c = thread; c < layout.num_counts(); c += threads) {
    p.before[static_cast<size_t>(c) * gridDim.x + blockIdx.x] = s.expert_before[c];
  }
}

// Sums each column over the blocks before, and tells every rank the whole.
__device__ void SumColumns(const DispatchParams& p, uint64_t epoch) {
  const CommonParams& c = p.common;
  const Layout& layout = c.layout;
  const int blocks = static_cast<int>(gridDim.x);
  const int waves = static_cast<int>(blockDim.x) / device::kWaveSize;
  for (int column = Wave() * blocks + static_cast<int>(blockIdx.x); column < layout.num_counts();
       column += waves * blocks) {
    const int32_t total =
        device::WaveExclusiveScan(p.before + static_cast<size_t>(column) * blocks, blocks);
    if (Lane() < layout.num_ranks) {
      device::FenceRelease<Scope::kSystem>();
      StoreRelaxed<Scope::kSystem>(layout.Count(c.peers.base[Lane()], epoch, c.peers.rank, column),
                                   device::PackEpochCount(epoch, static_cast<uint32_t>(total)));
    }
  }
}

// Looks at all counts until none is missing; between looks one thread waits for one that is. False
// if that did not come.
__device__ bool AwaitCounts(const CommonParams& c, uint64_t epoch) {
  __shared__ int32_t missing;
  __shared__ int32_t failed;
  const Layout& layout = c.layout;
  const uint64_t* words = layout.Count(c.peers.base[c.peers.rank], epoch, 0, 0);
  const int num_words = layout.num_ranks * layout.num_counts();
  uint64_t start = 0;
  if (threadIdx.x == 0) failed = 0;
  for (;;) {
    if (threadIdx.x == 0) missing = -1;
    __syncthreads();
    for (int i = threadIdx.x; i < num_words; i += blockDim.x) {
      // An exchange, since checkers of shared memory take two stores for a race.
      if (device::EpochOf(LoadRelaxed<Scope::kSystem>(words + i)) < epoch) {
        device::ExchangeRelaxed<Scope::kBlock>(&missing, i);
      }
    }
    __syncthreads();
    const int first_missing = missing;
    if (first_missing < 0) break;
    if (threadIdx.x == 0) {
      const int source = first_missing / layout.num_counts();
      const bool came = device::WaitUntil(
          c.failure, words + first_missing,
          MakeSite(Site::kDispatchCount, source,
                   static_cast<uint32_t>(first_missing - source * layout.num_counts())),
          device::PackEpochCount(epoch, 0), &start,
          [epoch](uint64_t word) { return device::EpochOf(word) >= epoch; });
      if (!came) failed = 1;
    }
    __syncthreads();
    if (failed != 0) return false;
  }
  // Behind this rank's own words are the sums of its columns; behind the others' the end of what
  // they did with the rows of the call before.
  for (int i = threadIdx.x; i < num_words; i += blockDim.x) {
    device::AcquirePolled<Scope::kSystem>(words + i);
  }
  __syncthreads();
  return true;
}

// Makes places of the counts.
__device__ void MakePlaces(const DispatchParams& p, const PlaceShared& s, uint64_t epoch) {
  const CommonParams& c = p.common;
  const Layout& layout = c.layout;
  const int me = c.peers.rank;
  const int num_local = layout.num_local_experts;
  char* base = c.peers.base[me];
  const auto count = [&](int source, int column) {
    return static_cast<int32_t>(
        device::CountOf(LoadRelaxed<Scope::kSystem>(layout.Count(base, epoch, source, column))));
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
  for (int rank = Wave(); rank < layout.num_ranks; rank += waves) {
    const int32_t rows = device::WaveExclusiveScan(s.first_row() + rank * num_local, num_local);
    if (rank == me && Lane() == 0) *s.end_row() = rows;
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
__device__ void LoadPlaces(const CommonParams& c, const PlaceShared& s) {
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
__device__ void KeepPlaces(const CommonParams& c, const PlaceShared& s, bool ok) {
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
__device__ void WriteTotals(const DispatchParams& p, const PlaceShared& s, uint64_t epoch) {
  const Layout& layout = p.common.layout;
  if (p.totals == nullptr || Wave() != 0) return;
  for (int e = Lane(); e < layout.num_local_experts; e += device::kWaveSize) {
    p.totals->expert_counts[e] = s.counts()[e];
  }
  if (Lane() == 0) {
    p.totals->rows = *s.end_row();
    p.totals->tokens = s.sources()[layout.num_ranks];
  }
  device::WavePublish(&p.totals->epoch, epoch);
}

// Everything up to the rows. False if a peer did not come.
template <typename Trace>
__device__ bool MakeLayoutKnown(const DispatchParams& p, int32_t* shared, const PlaceShared& s,
                                uint64_t epoch, const Trace& trace) {
  const CommonParams& c = p.common;
  // All kernels before this one in the stream, and so all that this rank read, are done.
  const uint64_t combines = c.state->combine.epoch - 1;
  GiveCredits(c, c.layout.combine_credits, combines);
  // What peers are to write, they may still be pulling from.
  bool ok =
      !c.layout.pull || AwaitCredits(c, c.layout.combine_credits, combines, Site::kCombineCredit);
  if (ok) GiveCredits(c, c.layout.dispatch_credits, epoch, /*fence=*/c.layout.pull);
  if (p.fresh) {
    uint64_t start = trace.Start();
    CountShare(p, CountShared(shared, c.layout.num_experts));
    ok = device::GridBarrier(c.failure, &c.state->barrier, gridDim.x, epoch,
                             MakeSite(Site::kGridBarrier, -1, blockIdx.x)) &&
         ok;
    trace.Stop(start, static_cast<uint32_t>(Tag::kCount));
    start = trace.Start();
    if (ok) SumColumns(p, epoch);
    ok = ok && AwaitCounts(c, epoch);
    if (ok) MakePlaces(p, s, epoch);
    if (blockIdx.x == 0) KeepPlaces(c, s, ok);
    trace.Stop(start, static_cast<uint32_t>(Tag::kExchange));
  } else {
    ok = ok && AwaitCredits(c, c.layout.dispatch_credits, epoch, Site::kDispatchCredit);
    if (ok) LoadPlaces(c, s);
  }
  if (ok && blockIdx.x == 0) WriteTotals(p, s, epoch);
  return ok;
}

// This lane's choice of the token, with its final place; expert -1 where there is none.
__device__ Route FinishRoute(const DispatchParams& p, const PlaceShared& s, uint64_t epoch,
                             int token) {
  const CommonParams& c = p.common;
  const Layout& layout = c.layout;
  Route route = {-1, 0, 0, 0};
  if (Lane() >= layout.topk) return route;
  const int flat = token * layout.topk + Lane();
  route = c.kept.routes[flat];
  if (!p.fresh || route.expert < 0) return route;
  const size_t blocks = gridDim.x;
  const int share = token / ShareTokens(p);
  const int rank = route.expert / layout.num_local_experts;
  route.slot += p.before[static_cast<size_t>(layout.num_experts + rank) * blocks + share];
  if (p.scatter_idx == nullptr) {
    route.row += p.before[static_cast<size_t>(route.expert) * blocks + share];
  } else {
    const auto rows = static_cast<int>(device::CountOf(LoadRelaxed<Scope::kSystem>(
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

// Copies one row to several places, `to(i)` for i of [0, n). Called by all lanes of a wave with the
// same arguments; `to` may shuffle.
template <typename To>
__device__ __forceinline__ void WaveCopyRowToMany(const Vec16* src, int vecs, int n, To to) {
  const int step = device::kWaveSize;
  for (int chunk = 0; chunk < vecs; chunk += kRowUnroll * step) {
    const int first = chunk + Lane();
    Vec16 v[kRowUnroll];
#pragma unroll
    for (int u = 0; u < kRowUnroll; ++u) {
      if (first + u * step < vecs) v[u] = device::LoadStream(src + first + u * step);
    }
#pragma unroll 1
    for (int i = 0; i < n; ++i) {
      Vec16* dst = to(i);
#pragma unroll
      for (int u = 0; u < kRowUnroll; ++u) {
        if (first + u * step < vecs) device::StoreStream(dst + first + u * step, v[u]);
      }
    }
  }
}

// The same for the 4-byte words of scales.
template <typename To>
__device__ __forceinline__ void WaveCopyWordsToMany(const uint32_t* src, int words, int n, To to) {
  for (int i = 0; i < n; ++i) {
    uint32_t* dst = to(i);
    for (int w = Lane(); w < words; w += device::kWaveSize) dst[w] = src[w];
  }
}

template <typename Trace>
__device__ void SendToken(const DispatchParams& p, const PlaceShared& s, uint64_t epoch, int token,
                          const Trace& trace) {
  const CommonParams& c = p.common;
  const Layout& layout = c.layout;
  const uint64_t start = trace.Start();
  const Route route = FinishRoute(p, s, epoch, token);
  const Destinations to(layout, route.expert);
  int place = route.row;
  if (to.rank >= 0) {
    if (layout.token_major) place = s.first_slots()[to.rank] + route.slot;
    Packet* packet =
        layout.PacketOf(c.peers.base[to.rank] + layout.packets, c.peers.rank, route.slot);
    const float weight =
        p.topk_weights != nullptr ? p.topk_weights[token * layout.topk + Lane()] : 1.0F;
    const int local = route.expert - to.rank * layout.num_local_experts;
    packet->choices()[to.index()] = Choice{route.row, weight, PackOrigin(token, Lane(), local)};
    if (to.index() == 0) packet->combine_slot = to.slot();
  }
  const int copies = __popc(to.firsts);
  WaveCopyRowToMany(static_cast<const Vec16*>(p.x) + static_cast<size_t>(token) * layout.row_vecs,
                    layout.row_vecs, copies, [&](int i) {
                      const int lane = NthBit(to.firsts, i);
                      char* base = c.peers.base[Shuffle(to.rank, lane)];
                      return reinterpret_cast<Vec16*>(layout.Row(base, Shuffle(place, lane)));
                    });
  if (layout.scale_words > 0) {
    WaveCopyWordsToMany(p.x_scales + static_cast<size_t>(token) * layout.scale_words,
                        layout.scale_words, copies, [&](int i) {
                          const int lane = NthBit(to.firsts, i);
                          char* base = c.peers.base[Shuffle(to.rank, lane)];
                          return layout.Scales(base, Shuffle(place, lane));
                        });
  }
  device::SyncWave();
  if (Lane() == 0) device::FenceRelease<Scope::kSystem>();
  const int choices = __popc(to.choices);
  for (int i = 0; i < copies; ++i) {
    const int lane = NthBit(to.firsts, i);
    const int rank = Shuffle(to.rank, lane);
    const int slot = Shuffle(route.slot, lane);
    const int n = Shuffle(choices, lane);
    if (Lane() != 0) continue;
    Packet* packet = layout.PacketOf(c.peers.base[rank] + layout.packets, c.peers.rank, slot);
    StoreRelaxed<Scope::kSystem>(&packet->flag,
                                 device::PackEpochCount(epoch, static_cast<uint32_t>(n)));
  }
  trace.Stop(start, static_cast<uint32_t>(Tag::kSend), static_cast<uint32_t>(token));
}

// Waits for a packet; the number of its choices, 0 if it did not come.
__device__ int AwaitPacket(const CommonParams& c, uint64_t epoch, const Packet* packet, int source,
                           int slot) {
  int choices = 0;
  if (Lane() == 0) {
    uint64_t start = 0;
    const bool came =
        device::WaitUntil(c.failure, &packet->flag,
                          MakeSite(Site::kDispatchPacket, source, static_cast<uint32_t>(slot)),
                          device::PackEpochCount(epoch, 0), &start,
                          [epoch](uint64_t word) { return device::EpochOf(word) >= epoch; });
    if (came) {
      choices = static_cast<int>(device::CountOf(LoadRelaxed<Scope::kSystem>(&packet->flag)));
    }
  }
  device::SyncWave();
  return Shuffle(choices, 0);
}

// What the caller learns about a token's rows: `mine` is this lane's choice of `choices`, `place`
// where the row is.
__device__ void Describe(const DispatchParams& p, const Choice& mine, int choices, int source,
                         int place) {
  const Layout& layout = p.common.layout;
  const RowSource origin = {source, TokenOf(mine.origin), TopkOf(mine.origin),
                            LocalExpertOf(mine.origin)};
  const bool has_choice = Lane() < choices;
  if (has_choice && p.recv_topk_idx == nullptr) p.sources[mine.row] = origin;
  if (has_choice && p.row_index != nullptr) p.row_index[mine.row] = place;
  if (p.recv_topk_idx == nullptr) return;
  if (Lane() == 0) p.sources[place] = origin;
  int expert = -1;
  float weight = 0.0F;
  for (int i = 0; i < choices; ++i) {
    const int k = Shuffle(origin.k, i);
    const int local = Shuffle(origin.local_expert, i);
    const float w = Shuffle(mine.weight, i);
    if (k == Lane()) {
      expert = local;
      weight = w;
    }
  }
  if (Lane() < layout.topk) {
    const size_t i = static_cast<size_t>(place) * layout.topk + Lane();
    p.recv_topk_idx[i] = expert;
    p.recv_topk_weights[i] = weight;
  }
}

// Takes one token to all its places. False if it did not come.
template <typename Trace>
__device__ bool ReceiveToken(const DispatchParams& p, const PlaceShared& s, uint64_t epoch,
                             int source, int slot, const Trace& trace) {
  const CommonParams& c = p.common;
  const Layout& layout = c.layout;
  char* base = c.peers.base[c.peers.rank];
  const Packet* packet = layout.PacketOf(base + layout.packets, source, slot);
  uint64_t start = trace.Start();
  const int choices = AwaitPacket(c, epoch, packet, source, slot);
  trace.Stop(start, static_cast<uint32_t>(Tag::kWait), static_cast<uint32_t>(source));
  if (choices == 0) return false;
  start = trace.Start();
  const Choice mine = Lane() < choices ? packet->choices()[Lane()] : Choice{};
  // The flag itself is not among what it guards: what it said is kept, not read again.
  Packet* kept = layout.PacketOf(c.kept.packets, source, slot);
  if (Lane() < choices) kept->choices()[Lane()] = mine;
  if (Lane() == 0) {
    kept->flag = device::PackEpochCount(epoch, static_cast<uint32_t>(choices));
    kept->combine_slot = packet->combine_slot;
  }
  const int place = layout.token_major ? s.sources()[source] + slot : Shuffle(mine.row, 0);
  if (!layout.token_major && choices > 1) {
    WaveCopyRowToMany(reinterpret_cast<const Vec16*>(layout.Row(base, place)), layout.row_vecs,
                      choices - 1, [&](int i) {
                        return reinterpret_cast<Vec16*>(layout.Row(base, Shuffle(mine.row, i + 1)));
                      });
    if (layout.scale_words > 0) {
      WaveCopyWordsToMany(layout.Scales(base, place), layout.scale_words, choices - 1,
                          [&](int i) { return layout.Scales(base, Shuffle(mine.row, i + 1)); });
    }
  }
  Describe(p, mine, choices, source, place);
  trace.Stop(start, static_cast<uint32_t>(Tag::kFill), static_cast<uint32_t>(choices));
  return true;
}

// Zeros between the last row of an expert and the first of the next.
__device__ void ZeroPadding(const DispatchParams& p, const PlaceShared& s, const Share& share) {
  const CommonParams& c = p.common;
  const Layout& layout = c.layout;
  char* base = c.peers.base[c.peers.rank];
  const int32_t* first_row = s.first_row() + c.peers.rank * layout.num_local_experts;
  const int num_local = layout.num_local_experts;
  for (int i = share.first; i < num_local * layout.expert_alignment; i += share.step) {
    const int expert = i / layout.expert_alignment;
    const int row = first_row[expert] + s.counts()[expert] + i - expert * layout.expert_alignment;
    if (row >= (expert + 1 < num_local ? first_row[expert + 1] : *s.end_row())) continue;
    if (Lane() == 0 && p.recv_topk_idx == nullptr) p.sources[row] = RowSource{-1, -1, -1, -1};
    if (Lane() == 0 && p.row_index != nullptr) p.row_index[row] = -1;
    if (layout.token_major) continue;
    auto* vecs = reinterpret_cast<Vec16*>(layout.Row(base, row));
    for (int v = Lane(); v < layout.row_vecs; v += device::kWaveSize) {
      device::StoreStream(vecs + v, Vec16{});
    }
    for (int w = Lane(); w < layout.scale_words; w += device::kWaveSize) {
      layout.Scales(base, row)[w] = 0;
    }
  }
}

template <typename Trace>
__global__ void __launch_bounds__(kMaxThreads, 1) Dispatch(const DispatchParams p) {
  HIP_DYNAMIC_SHARED(int32_t, shared);
  const CommonParams& c = p.common;
  const Layout& layout = c.layout;
  const PlaceShared s(shared, layout);
  const Trace trace(c.trace);
  uint64_t epoch = 0;
  bool ok = true;
  if (c.send_waves > 0) {
    epoch = device::BeginCall(&c.state->dispatch, gridDim.x);
    ok = MakeLayoutKnown(p, shared, s, epoch, trace);
  } else {
    epoch = c.state->dispatch.epoch - 1;
    LoadPlaces(c, s);
  }
  if (!ok) return;
  const Share send = SendShare(c);
  if (send.first >= 0) {
    for (int token = send.first; token < p.num_tokens; token += send.step) {
      SendToken(p, s, epoch, token, trace);
    }
  }
  const Share receive = ReceiveShare(c);
  if (receive.first >= 0) {
    if (layout.expert_alignment > 1) ZeroPadding(p, s, receive);
    const int packets = s.walk().Total(layout.num_ranks);
    for (int i = receive.first; i < packets && ok; i += receive.step) {
      const auto item = s.walk().At(i, layout.num_ranks, c.peers.rank);
      ok = ReceiveToken(p, s, epoch, item.source, item.index, trace);
    }
  }
}

}  // namespace

size_t DispatchSharedBytes(const Layout& layout) {
  return SharedInts(layout.num_experts, layout.num_local_experts) * sizeof(int32_t);
}

hipError_t LaunchDispatch(const DispatchParams& params, bool traced, const LaunchShape& shape,
                          hipStream_t stream) {
  DispatchParams p = params;
  void* args[] = {&p};
  return hipLaunchCooperativeKernel(traced ? Dispatch<device::Tracer> : Dispatch<device::NoTracer>,
                                    dim3(static_cast<unsigned>(shape.blocks)),
                                    dim3(static_cast<unsigned>(shape.threads)), args,
                                    static_cast<unsigned>(shape.shared_bytes), stream);
}

hipError_t DispatchBlocksPerUnit(bool traced, const LaunchShape& shape, int* blocks) {
  return hipOccupancyMaxActiveBlocksPerMultiprocessor(
      blocks, traced ? Dispatch<device::Tracer> : Dispatch<device::NoTracer>, shape.threads,
      shape.shared_bytes);
}

}  // namespace octet::high_throughput
