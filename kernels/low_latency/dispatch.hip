// low_latency dispatch: a token goes once to each of its ranks, as soon as possible; everything
// that has to be known beforehand is worked out while its row is on its way from memory.
//
//   this rank                                       destination d
//   ---------                                       -------------
//   topk_idx [T][K] ── counted by every block ────► counts[me][L + 1]  epoch and count in one word
//   x [T] ── a block for each token: row loaded ──► rows[me][slot]     16-byte stores
//            once, quantised if asked for, stored   packets[me][slot]  choices, then the flag
//            to each of the token's ranks
//
//   counts[R][L + 1] ── every receiving block ──────► first row of each (expert, source)
//   packets, rows ── some waves for each token ─────► recv_x[row] of each of its choices, sources,
//                                                     kept packets
//
// Count. A token's slot on a rank is the number of this rank's tokens before it that go there; the
// row of a choice is the number of such choices of the same expert. Each block counts both by
// itself, which costs less than a grid barrier, and its first row is loaded meanwhile. It counts
// all tokens, too, and before it sends a row it tells the ranks some of the totals: behind rows
// they would come as late as those, and no row can be taken to its place without all of them. If
// an id cannot be right, all totals are zeros, and no row is sent.
// Send. The flags of a token follow one release by the whole block.
// Receive. All totals give the place of each (expert, source) in the layout that is wanted; the
// packet gives the place therein. Tokens are taken in the order in which the sources send them. A
// row is loaded once, too, and stored to the place of each of its choices.
//
// Both run side by side in one grid, in blocks of their own, or in two launches one after the
// other, between which another dispatch may be sent.
#include <hip/hip_runtime.h>

#include "device_ops.h"
#include "kernels/device/call_end.h"
#include "kernels/device/counts.h"
#include "kernels/device/interleaved_walk.h"
#include "kernels/device/row_codec.h"
#include "kernels/device/row_copy.h"
#include "kernels/device/token_packet_device.h"
#include "kernels/device/wave_scan.h"
#include "kernels/low_latency/kernels.h"
#include "kernels/low_latency/phase.h"
#include "kernels/low_latency/wire_row.h"
#include "runtime/device/call_epoch_device.h"
#include "runtime/device/tracer.h"
#include "runtime/device/wait.h"

namespace octet::low_latency {
namespace {

using device::Destinations;
using device::FetchAddRelaxed;
using device::Lane;
using device::Scope;
using device::Shuffle;
using device::StoreRelaxed;
using device::Vec16;
using device::Wave;

// Ids of the routing that a thread has in flight.
constexpr int kIdsInFlight = 8;

// What tokens have chosen.
struct Tally {
  int32_t* experts;  // [E] choices of each
  int32_t* ranks;    // [kMaxRanks] tokens to each

  static constexpr int Ints(int num_experts) { return num_experts + kMaxRanks; }
};

// A sending block's shared memory.
struct SendShared {
  Tally all;     // all of this rank's tokens
  Tally before;  // those before a certain one

  __device__ SendShared(int32_t* shared, int num_experts)
      : all{shared, shared + num_experts},
        before{shared + Tally::Ints(num_experts), shared + Tally::Ints(num_experts) + num_experts} {
  }
};

// A receiving block's.
struct ReceiveShared {
  int32_t* sums;  // [L][R], by Places::Index: rows of all (expert, source) before; then their total
  int32_t* tokens;  // [kMaxRanks] from each source

  __device__ ReceiveShared(int32_t* shared, int num_experts)
      : sums(shared), tokens(shared + num_experts + 1) {}
};

// More than a receiving block needs.
constexpr int SharedInts(int num_experts) { return 2 * Tally::Ints(num_experts); }

// A thread's token of tokens [from, to), and the ids that it has in flight of those: from k on, -1
// beyond the last.
__device__ __forceinline__ int TokenToCount(int from) {
  return from + static_cast<int>(threadIdx.x);
}
__device__ __forceinline__ void LoadIds(const DispatchParams& p, int token, int to, int k,
                                        int32_t (&ids)[kIdsInFlight]) {
  const int topk = p.common.layout.topk;
#pragma unroll
  for (int u = 0; u < kIdsInFlight; ++u) {
    ids[u] = token < to && k + u < topk ? p.topk_idx[token * topk + k + u] : -1;
  }
}

// Adds what tokens [from, to) have chosen, a thread for each: those below `first` to s.before, and,
// if all are wanted, each to s.all. Those are looked at, too: true in some threads of the block if
// an id cannot be right. `ids`: LoadIds(p, TokenToCount(from), to, 0, ids).
template <bool kAll>
__device__ bool CountTokens(const DispatchParams& p, const SendShared& s, int from, int to,
                            int first, int32_t (&ids)[kIdsInFlight]) {
  const Layout& layout = p.common.layout;
  bool refused = false;
  for (int token = TokenToCount(from); token - Lane() < to; token += static_cast<int>(blockDim.x)) {
    uint32_t ranks = 0;
    for (int k = 0; k < layout.topk; k += kIdsInFlight) {
      if (k > 0 || token != TokenToCount(from)) LoadIds(p, token, to, k, ids);
#pragma unroll
      for (int u = 0; u < kIdsInFlight; ++u) {
        const int32_t id = ids[u];
        const bool is_expert = layout.IsExpert(id);
        if constexpr (kAll) {
          bool twice = false;
#pragma unroll
          for (int w = 0; w < u; ++w) twice = twice || ids[w] == id;
          for (int w = 0; is_expert && w < k; ++w) {
            twice = twice || p.topk_idx[token * layout.topk + w] == id;
          }
          refused = refused || (id != -1 && (twice || !is_expert));
        }
        if (!is_expert) continue;
        ranks |= 1U << layout.RankOf(id);
        if constexpr (kAll) FetchAddRelaxed<Scope::kBlock>(&s.all.experts[id], 1);
        if (token < first) FetchAddRelaxed<Scope::kBlock>(&s.before.experts[id], 1);
      }
    }
    // One addition for the wave: there are few ranks.
    for (int r = 0; r < layout.num_ranks; ++r) {
      const bool goes = ((ranks >> r) & 1) != 0;
      const int before = __popcll(device::Ballot(goes && token < first));
      if (Lane() == r && before > 0) FetchAddRelaxed<Scope::kBlock>(&s.before.ranks[r], before);
      if constexpr (kAll) {
        const int all = __popcll(device::Ballot(goes));
        if (Lane() == r && all > 0) FetchAddRelaxed<Scope::kBlock>(&s.all.ranks[r], all);
      }
    }
  }
  return refused;
}

// Tells which ids cannot be right.
__device__ void ReportRefused(const DispatchParams& p) {
  const Layout& layout = p.common.layout;
  for (int token = threadIdx.x; token < p.num_tokens; token += blockDim.x) {
    const int32_t* chosen = p.topk_idx + token * layout.topk;
    for (int k = 0; k < layout.topk; ++k) {
      const int32_t id = chosen[k];
      const bool is_expert = layout.IsExpert(id);
      bool twice = false;
      for (int w = 0; w < k; ++w) twice = twice || (is_expert && chosen[w] == id);
      if (id == -1 || (is_expert && !twice)) continue;
      device::Fail(p.common.failure, device::FailureKind::kInput,
                   MakeSite(twice ? Site::kExpertTwice : Site::kExpertOutOfRange, -1,
                            static_cast<uint32_t>(token * layout.topk + k)),
                   static_cast<uint64_t>(layout.num_experts),
                   static_cast<uint64_t>(static_cast<int64_t>(id)), 0);
    }
  }
}

// The part of block `index` of `blocks` in telling the `granted` ranks how much they get from this
// one.
__device__ void SendTotals(const DispatchParams& p, const SendShared& s, uint64_t epoch,
                           uint32_t granted, bool refused, int index, int blocks) {
  const CommonParams& c = p.common;
  const Layout& layout = c.layout;
  const int totals = layout.num_experts + layout.num_ranks;
  const int step = static_cast<int>(blockDim.x) * blocks;
  // By the last threads, which have the least to do with the first row.
  const int thread = static_cast<int>(blockDim.x - 1 - threadIdx.x);
  for (int i = index + thread * blocks; i < totals; i += step) {
    const bool of_rank = i >= layout.num_experts;
    const int rank = of_rank ? i - layout.num_experts : layout.RankOf(i);
    if (!device::HasRank(granted, rank)) continue;
    const int column = of_rank ? layout.num_local_experts : i - rank * layout.num_local_experts;
    const int32_t total = of_rank ? s.all.ranks[rank] : s.all.experts[i];
    device::StoreCount(layout.Count(c.peers.base[rank], epoch, c.peers.rank, column), epoch,
                       refused ? 0 : total);
  }
}

// A thread's vectors of a row of x: chunk + threadIdx.x, and on by blockDim.x; zeros beyond its
// end.
__device__ __forceinline__ void LoadChunk(const DispatchParams& p, int token, int chunk,
                                          Vec16 (&v)[kRowUnroll]) {
  const int vecs = p.common.layout.dtype_vecs;
  const Vec16* row = static_cast<const Vec16*>(p.x) + static_cast<size_t>(token) * vecs;
  const int first = chunk + static_cast<int>(threadIdx.x);
  const int step = static_cast<int>(blockDim.x);
#pragma unroll
  for (int u = 0; u < kRowUnroll; ++u) {
    v[u] = first + u * step < vecs ? device::LoadStream(row + first + u * step) : Vec16{};
  }
}

__device__ __forceinline__ int32_t LoadId(const DispatchParams& p, int token) {
  const int topk = p.common.layout.topk;
  return Lane() < topk ? p.topk_idx[token * topk + Lane()] : -1;
}

// Stores a token's row and packets to all its ranks. All threads of the block hold the first chunk
// of the row in `v`, and each wave the ids in its lanes. The flags are still to follow.
template <typename Row>
__device__ void SendToken(const DispatchParams& p, uint64_t epoch, int token, int32_t expert,
                          int index, int slot, const Destinations& to, Vec16 (&v)[kRowUnroll]) {
  const CommonParams& c = p.common;
  const Layout& layout = c.layout;
  const int copies = __popc(to.firsts);
  const int step = static_cast<int>(blockDim.x);
  for (int chunk = 0; chunk < layout.dtype_vecs; chunk += kRowUnroll * step) {
    if (chunk > 0) LoadChunk(p, token, chunk, v);
    const Row row(layout, chunk, v);
#pragma unroll 1
    for (int i = 0; i < copies; ++i) {
      const int lane = device::NthBit(to.firsts, i);
      char* base = c.peers.base[Shuffle(to.rank, lane)];
      row.Store(layout, layout.Row(base, epoch, c.peers.rank, Shuffle(slot, lane)));
    }
  }
  if (Wave() != 0 || to.rank < 0) return;
  Packet* packet = layout.PacketOf(c.peers.base[to.rank], epoch, c.peers.rank, slot);
  const float weight =
      p.topk_weights != nullptr ? p.topk_weights[token * layout.topk + Lane()] : 1.0F;
  const int local = expert - to.rank * layout.num_local_experts;
  packet->choices()[to.index()] = Choice{index, weight, device::PackOrigin(token, Lane(), local)};
  if (to.index() == 0) packet->combine_slot = layout.CombineSlot(to.rank, 0, to.slot());
}

// The tokens of one sending block, to `granted` ranks. The first one's chunk of its row and its ids
// are there, and what tokens before it have chosen.
template <typename Row, typename Trace>
__device__ void SendTokens(const DispatchParams& p, const SendShared& s, uint64_t epoch,
                           uint32_t granted, const Role& role, Vec16 (&v)[kRowUnroll], int32_t id,
                           const Trace& trace) {
  const CommonParams& c = p.common;
  const Layout& layout = c.layout;
  int32_t ids[kIdsInFlight];
  for (int token = role.index; token < p.num_tokens; token += role.count) {
    uint64_t start = trace.Start();
    if (token != role.index) {
      CountTokens<false>(p, s, token - role.count, token, token, ids);
      __syncthreads();
      trace.Stop(start, static_cast<uint32_t>(Tag::kRoute));
      start = trace.Start();
    }
    const int32_t expert = layout.IsExpert(id) ? id : -1;
    const int rank = expert >= 0 ? layout.RankOf(expert) : -1;
    const Destinations to(rank >= 0 && device::HasRank(granted, rank) ? rank : -1,
                          layout.num_ranks);
    const int index = expert >= 0 ? s.before.experts[expert] : 0;
    const int slot = to.rank >= 0 ? s.before.ranks[to.rank] : 0;
    SendToken<Row>(p, epoch, token, expert, index, slot, to, v);
    if (token + role.count < p.num_tokens) {
      LoadChunk(p, token + role.count, 0, v);
      id = LoadId(p, token + role.count);
      LoadIds(p, TokenToCount(token), token + role.count, 0, ids);
    }
    device::SyncBlockStores();
    if (Wave() == 0 && to.rank >= 0 && to.index() == 0) {
      Packet* packet = layout.PacketOf(c.peers.base[to.rank], epoch, c.peers.rank, slot);
      device::FenceRelease<Scope::kSystem>();
      StoreRelaxed<Scope::kSystem>(
          &packet->flag, device::PackEpochCount(epoch, static_cast<uint32_t>(__popc(to.choices))));
    }
    trace.Stop(start, static_cast<uint32_t>(Tag::kSend), static_cast<uint32_t>(token));
  }
}

template <typename Row, typename Trace>
__device__ void Send(const DispatchParams& p, const Role& role, int32_t* shared) {
  __shared__ uint32_t granted;
  __shared__ int32_t refused;
  __shared__ bool began_last;
  const CommonParams& c = p.common;
  const Layout& layout = c.layout;
  const SendShared s(shared, layout.num_experts);
  const Trace trace(c.trace);
  const device::Credits credits(c, layout.dispatch_credits);
  Vec16 v[kRowUnroll];
  int32_t id = -1;
  if (role.index < p.num_tokens) {
    LoadChunk(p, role.index, 0, v);
    id = LoadId(p, role.index);
  }
  int32_t ids[kIdsInFlight];
  LoadIds(p, TokenToCount(0), p.num_tokens, 0, ids);
  for (int i = threadIdx.x; i < SharedInts(layout.num_experts); i += blockDim.x) shared[i] = 0;
  if (threadIdx.x == 0) refused = 0;
  const uint64_t epoch = device::BeginCall(c.failure, &c.state->dispatch_send,
                                           static_cast<uint32_t>(role.count), &began_last);
  if (epoch == 0) return;
  // By the block with the fewest tokens, and before it waits for the others' credits: they do the
  // same. Since it takes a fence, the other blocks tell the totals.
  if (role.index == role.count - 1) {
    device::GiveCredits(c, layout.dispatch_credits, Received(c, epoch, c.state->dispatch_receive));
  }
  const uint64_t start = trace.Start();
  credits.Await(c, CallBefore(epoch), Site::kDispatchCredit, &granted);
  if (CountTokens<true>(p, s, 0, p.num_tokens, role.index, ids)) {
    device::ExchangeRelaxed<Scope::kBlock>(&refused, 1);
  }
  __syncthreads();
  if (granted == 0) return;
  const int tellers = role.count > 1 ? role.count - 1 : 1;
  if (role.index < tellers) SendTotals(p, s, epoch, granted, refused != 0, role.index, tellers);
  trace.Stop(start, static_cast<uint32_t>(Tag::kRoute));
  if (refused != 0) {
    // A block that has yet to begin would take the report for the end of this rank.
    if (began_last) ReportRefused(p);
    return;
  }
  SendTokens<Row>(p, s, epoch, granted, role, v, id, trace);
}

// Waits for all counts, and makes of them the places of all rows. False if one did not come.
// `last`: the source that was missing last; as it was if none was.
template <bool kWatched>
__device__ bool ReceiveCounts(const DispatchParams& p, const ReceiveShared& s,
                              device::InterleavedWalk& walk, uint64_t epoch, uint32_t* last) {
  const CommonParams& c = p.common;
  const Layout& layout = c.layout;
  const uint64_t* words = layout.Count(c.peers.base[c.peers.rank], epoch, 0, 0);
  const int columns = layout.num_counts;
  const bool came = device::AwaitCounts<kWatched>(
      c, words, layout.num_ranks, columns, epoch, Site::kDispatchCount,
      [&](int i, uint32_t count) {
        const int source = i / columns;
        const int column = i - source * columns;
        int32_t& rows = column < layout.num_local_experts
                            ? s.sums[layout.places.Index(column, source)]
                            : s.tokens[source];
        rows = static_cast<int32_t>(count);
      },
      last);
  if (!came) return false;
  walk.Init(s.tokens, layout.num_ranks);
  const int32_t rows = device::BlockExclusiveScan(s.sums, layout.num_experts);
  if (threadIdx.x == 0) s.sums[layout.num_experts] = rows;
  __syncthreads();
  return true;
}

__device__ __forceinline__ int32_t RowsOf(const Layout& layout, const ReceiveShared& s, int expert,
                                          int source) {
  const int i = layout.places.Index(expert, source);
  return s.sums[i + 1] - s.sums[i];
}
__device__ __forceinline__ int32_t RowsOf(const Layout& layout, const ReceiveShared& s,
                                          int expert) {
  int32_t rows = 0;
  for (int source = 0; source < layout.num_ranks; ++source) {
    rows += RowsOf(layout, s, expert, source);
  }
  return rows;
}

// The first receiving block tells the caller what there is: after a failure nothing, so that what
// is enqueued behind this kernel finds no rows.
__device__ void DescribeRows(const DispatchParams& p, const ReceiveShared& s, bool ok) {
  const CommonParams& c = p.common;
  const Layout& layout = c.layout;
  const int num_ranks = layout.num_ranks;
  const int num_local = layout.num_local_experts;
  for (int i = threadIdx.x; i < num_local * num_ranks; i += blockDim.x) {
    const int source = layout.by_local_experts.Quotient(i);
    const int expert = i - source * num_local;
    const int32_t count = ok ? RowsOf(layout, s, expert, source) : 0;
    const int32_t first = ok ? layout.places.FirstRow(s.sums, expert, source) : 0;
    p.ranges[expert * num_ranks + source] = RowRange{first, count};
    if (p.split_counts != nullptr) p.split_counts[i] = count;
  }
  for (int e = threadIdx.x; e < num_local; e += blockDim.x) {
    p.expert_counts[e] = ok ? RowsOf(layout, s, e) : 0;
    if (p.expert_offsets != nullptr) {
      p.expert_offsets[e] = ok ? layout.places.FirstRow(s.sums, e, 0) : 0;
    }
  }
  if (threadIdx.x == 0 && p.expert_offsets != nullptr) {
    const int rows = layout.places.group_rows == 0 ? s.sums[layout.num_experts] : layout.max_rows;
    p.expert_offsets[num_local] = ok ? rows : 0;
  }
  const int source = static_cast<int>(threadIdx.x);
  if (source < num_ranks) c.kept.received[source] = ok ? s.tokens[source] : 0;
}

// Takes one part of a token's row to the places of its choices. False if it did not come.
template <typename Trace, bool kWatched>
__device__ bool ReceiveToken(const DispatchParams& p, const ReceiveShared& s, uint64_t epoch,
                             int source, int slot, int part, const Trace& trace) {
  const CommonParams& c = p.common;
  const Layout& layout = c.layout;
  char* base = c.peers.base[c.peers.rank];
  const Packet* packet = layout.PacketOf(base, epoch, source, slot);
  uint64_t start = trace.Start();
  const int choices = device::WaveAwaitPacket<kWatched>(
      c.failure, packet, epoch,
      MakeSite(Site::kDispatchPacket, source, static_cast<uint32_t>(slot)));
  trace.Stop(start, static_cast<uint32_t>(Tag::kPacketWait), static_cast<uint32_t>(source));
  if (choices == 0) return false;
  start = trace.Start();
  Choice mine = {};
  if (Lane() < choices) {
    mine = packet->choices()[Lane()];
    mine.row += layout.places.FirstRow(s.sums, LocalExpertOf(mine.origin), source);
  }
  char* staged = layout.Row(base, epoch, source, slot);
  device::WaveCopyRowToMany<device::kCopyUnroll>(
      reinterpret_cast<const Vec16*>(staged), device::PartOfRow(part, p.row_waves, layout.row_vecs),
      choices, [&](int i) {
        return static_cast<Vec16*>(p.recv_x) +
               static_cast<size_t>(Shuffle(mine.row, i)) * layout.row_vecs;
      });
  if (part == 0) {
    if (layout.scale_words > 0) {
      device::WaveCopyWordsToMany(layout.Scales(staged), layout.scale_words, choices, [&](int i) {
        return p.recv_scales + static_cast<size_t>(Shuffle(mine.row, i)) * layout.scale_words;
      });
    }
    Packet* kept = layout.KeptPacket(c.kept, source, slot);
    if (Lane() < choices) {
      kept->choices()[Lane()] = mine;
      p.sources[mine.row] =
          RowSource{source, TokenOf(mine.origin), TopkOf(mine.origin), LocalExpertOf(mine.origin)};
    }
    if (Lane() == 0) {
      // The flag itself is not among what it guards: what it said is kept, not read again.
      kept->flag = device::PackEpochCount(epoch, static_cast<uint32_t>(choices));
      kept->combine_slot = packet->combine_slot;
    }
  }
  trace.Stop(start, static_cast<uint32_t>(Tag::kCopy), static_cast<uint32_t>(choices));
  return true;
}

// What one block receives, or what is there for all blocks (`alone`). True if the call has come to
// its end (kernels/device/call_end.h).
template <typename Trace, bool kWatched>
__device__ bool ReceivePart(const DispatchParams& p, bool alone, const ReceiveShared& s,
                            uint64_t epoch, const Trace& trace) {
  __shared__ device::InterleavedWalk walk;
  const CommonParams& c = p.common;
  const Layout& layout = c.layout;
  const Role role = kWatched && alone ? Role{false, 0, 1} : RoleOf(c);
  const uint64_t start = trace.Start();
  uint32_t last = device::kNoPeer;
  const bool counted = ReceiveCounts<kWatched>(p, s, walk, epoch, &last);
  trace.Stop(start, static_cast<uint32_t>(Tag::kCountWait), last);
  if (role.index == 0) DescribeRows(p, s, counted);
  if (!counted) return true;
  // Neighbouring tokens are taken by different blocks.
  const int groups = static_cast<int>(blockDim.x) / device::kWaveSize / p.row_waves;
  const int group = Wave() / p.row_waves;
  const int part = Wave() - group * p.row_waves;
  const int tokens = group < groups ? walk.Total(layout.num_ranks) : 0;
  device::MaskedInCall<kWatched> masked;
  for (int i = group * role.count + role.index; i < tokens; i += groups * role.count) {
    const auto item = walk.At(i, layout.num_ranks, c.peers.rank);
    if (masked.Has(item.source)) continue;
    if (!ReceiveToken<Trace, kWatched>(p, s, epoch, item.source, item.index, part, trace) &&
        !masked.Look(c.failure, item.source)) {
      break;
    }
  }
  if constexpr (!kWatched) return true;
  const device::CallEnd end = device::EndCall(c, c.end, static_cast<uint32_t>(role.count));
  if (end == device::CallEnd::kLast && p.expert_rows != nullptr) {
    for (int e = threadIdx.x; e < layout.num_local_experts; e += blockDim.x) {
      p.expert_rows[e] += RowsOf(layout, s, e);
    }
  }
  return end != device::CallEnd::kAgain;
}

template <typename Trace, bool kWatched>
__device__ void Receive(const DispatchParams& p, const Role& role, int32_t* shared) {
  const CommonParams& c = p.common;
  const ReceiveShared s(shared, c.layout.num_experts);
  const Trace trace(c.trace);
  const uint64_t epoch =
      device::BeginCall(c.failure, &c.state->dispatch_receive, static_cast<uint32_t>(role.count));
  if (epoch == 0) {
    if (role.index == 0) DescribeRows(p, s, false);
    return;
  }
  for (bool alone = false; !ReceivePart<Trace, kWatched>(p, alone, s, epoch, trace); alone = true) {
  }
}

template <typename Row, typename Trace, bool kWatched>
__global__ void __launch_bounds__(kMaxThreads, 2) Dispatch(const DispatchParams p) {
  HIP_DYNAMIC_SHARED(int32_t, shared);
  const Role role = RoleOf(p.common);
  if (role.sends) {
    Send<Row, Trace>(p, role, shared);
  } else {
    Receive<Trace, kWatched>(p, role, shared);
  }
}

using Kernel = void (*)(DispatchParams);

template <typename Row, bool kWatched>
Kernel PickTrace(bool traced) {
  return traced ? Dispatch<Row, device::Tracer, kWatched>
                : Dispatch<Row, device::NoTracer, kWatched>;
}

template <bool kWatched>
Kernel PickRow(const DispatchVariant& variant) {
  if (!variant.quantized) return PickTrace<PlainRow, kWatched>(variant.traced);
  return variant.fp16 ? PickTrace<Fp8Row<device::Fp16Codec>, kWatched>(variant.traced)
                      : PickTrace<Fp8Row<device::Bf16Codec>, kWatched>(variant.traced);
}

Kernel PickKernel(const DispatchVariant& variant) {
  return variant.watched ? PickRow<true>(variant) : PickRow<false>(variant);
}

}  // namespace

size_t DispatchSharedBytes(const Layout& layout) {
  return static_cast<size_t>(SharedInts(layout.num_experts)) * sizeof(int32_t);
}

hipError_t LaunchDispatch(const DispatchParams& params, const DispatchVariant& variant,
                          const LaunchShape& shape, hipStream_t stream) {
  DispatchParams p = params;
  void* args[] = {&p};
  return hipLaunchCooperativeKernel(PickKernel(variant), dim3(static_cast<unsigned>(shape.blocks)),
                                    dim3(static_cast<unsigned>(shape.threads)), args,
                                    static_cast<unsigned>(shape.shared_bytes), stream);
}

hipError_t DispatchBlocksPerUnit(const DispatchVariant& variant, const LaunchShape& shape,
                                 int* blocks) {
  return hipOccupancyMaxActiveBlocksPerMultiprocessor(blocks, PickKernel(variant), shape.threads,
                                                      shape.shared_bytes);
}

}  // namespace octet::low_latency
