// low_latency dispatch: a token goes once to each of its ranks, as soon as possible. Everything
// that must be known before that is computed while its row is loaded from memory.
//
//   this rank                                       destination d
//   ---------                                       -------------
//   topk_idx [T][K] ── counted by one block ──────► counts[me][L + 1]  epoch and count in one word
//   x [T] ── a block for each token: row loaded ──► rows[me][slot]     16-byte stores
//            once, quantised if asked for, stored   packets[me][slot]  choices, then the flag
//            to each of the token's ranks
//
//   counts[R][L + 1] ── every receiving block ──────► first row of each (expert, source)
//   packets, rows ── some waves for each token ─────► recv_x[row] of each of its choices, sources,
//                                                     kept packets
//
// Send. A token's slot on a rank is the number of this rank's earlier tokens that go there; the row
// of a choice is the number of such choices of the same expert. Each block counts both itself, from
// its last token to its next one. This costs less than a grid barrier, and the row is loaded
// meanwhile. The flags of a token follow one release by the whole block.
//
// Counts. The first block counts everything, checks every id and announces to all ranks how much to
// expect, long before the rows arrive. If an id is wrong, this rank announces nothing, and
// receivers ignore what it sends.
//
// Receive. The counts of all sources determine the first row of each (expert, source) in the
// requested output; the index in the packet is relative to it. Tokens are taken in the order in
// which the sources send them. A row is loaded once here as well, and stored to the destination
// offset of each of its choices.
//
// Both run concurrently in one grid, in separate blocks, or in two launches one after the other,
// between which another dispatch may be sent.
#include <hip/hip_runtime.h>

#include "device_ops.h"
#include "kernels/ep/device/call_end.h"
#include "kernels/ep/device/call_statistics_device.h"
#include "kernels/ep/device/delivery.h"
#include "kernels/ep/device/interleaved_walk.h"
#include "kernels/ep/device/load_counters_device.h"
#include "kernels/ep/device/routing_device.h"
#include "kernels/ep/device/row_arrivals_device.h"
#include "kernels/ep/device/row_copy.h"
#include "kernels/ep/device/wave_scan.h"
#include "kernels/low_latency/kernels.h"
#include "kernels/low_latency/phase.h"
#include "kernels/low_latency/protocol.h"
#include "kernels/low_latency/wire_row.h"
#include "kernels/types/row_codec.h"
#include "runtime/device/call_epoch_device.h"
#include "runtime/device/launch_cooperative.h"
#include "runtime/device/load_kernel.h"
#include "runtime/device/tracer.h"
#include "runtime/device/wait.h"

namespace octet::low_latency {
namespace {

using device::Destinations;
using device::FetchAddRelaxed;
using device::Lane;
using device::Scope;
using device::Shuffle;
using device::Vec16;
using device::Wave;

// Ids of the routing that a thread has in flight.
constexpr int kIdsInFlight = 8;

// Vectors of a row that a receiving lane has in flight if ranks may be masked or waits are
// measured. With kCopyUnroll vectors the registers do not suffice, and 256 tokens on two H200s take
// 1.5 us longer.
constexpr int kWatchedCopyUnroll = 3;

// The shared memory of a sending block: counts of the choices of this rank's tokens before a given
// one.
struct SendShared {
  int32_t* experts;  // [E] choices of each
  int32_t* ranks;    // [kMaxRanks] tokens to each

  __device__ SendShared(int32_t* shared, int num_experts)
      : experts(shared), ranks(shared + num_experts) {}
};

// The shared memory of a receiving block.
struct ReceiveShared {
  int32_t*
      sums;  // [L][R], by RowOffsets::Index: rows of all (expert, source) before; then their total
  int32_t* tokens;  // [kMaxRanks] from each source

  __device__ ReceiveShared(int32_t* shared, int num_experts)
      : sums(shared), tokens(shared + num_experts + 1) {}
};

constexpr size_t SharedInts(int num_experts) {
  return static_cast<size_t>(num_experts) + 1 + kMaxRanks;
}

// Reports those of a token's choices k, k + 1, ... whose bits are set in `choices`. Their ids are
// wrong.
__device__ void Refuse(const DispatchParams& p, int token, int k, uint32_t choices) {
  const Layout& layout = p.common.layout;
  for (; choices != 0; choices &= choices - 1) {
    const int flat = token * layout.topk + k + device::NthBit(choices, 0);
    device::RefuseChoice(p.common.failure, layout.experts(), flat, p.topk_idx[flat]);
  }
}

// Counts the choices of tokens [from, to), one thread for each token. kRefuse: reports wrong ids;
// the result is then true in some threads of the block.
template <bool kRefuse>
__device__ bool CountTokens(const DispatchParams& p, const SendShared& s, int from, int to) {
  const Layout& layout = p.common.layout;
  bool refused = false;
  for (int wave = from + Wave() * device::kWaveSize; wave < to;
       wave += static_cast<int>(blockDim.x)) {
    const int token = wave + Lane();
    const int32_t* chosen = p.topk_idx + token * layout.topk;
    uint32_t ranks = 0;
    for (int k = 0; k < layout.topk; k += kIdsInFlight) {
      int32_t ids[kIdsInFlight];
      uint32_t wrong = 0;
#pragma unroll
      for (int u = 0; u < kIdsInFlight; ++u) {
        ids[u] = token < to && k + u < layout.topk ? chosen[k + u] : -1;
      }
#pragma unroll
      for (int u = 0; u < kIdsInFlight; ++u) {
        const int32_t id = ids[u];
        const bool is_expert = layout.experts().IsExpert(id);
        ranks |= is_expert ? 1U << layout.experts().RankOf(id) : 0U;
        if (is_expert) FetchAddRelaxed<Scope::kBlock>(&s.experts[id], 1);
        if constexpr (kRefuse) {
          bool refuse = !is_expert;
#pragma unroll
          for (int before = 0; before < u; ++before) refuse = refuse || ids[before] == id;
          const bool before = is_expert && device::ChosenBefore(chosen, k, id);
          refuse = refuse || before;
          wrong |= refuse && id != -1 ? 1U << u : 0U;
        }
      }
      if (kRefuse && wrong != 0) {
        Refuse(p, token, k, wrong);
        refused = true;
      }
    }
    // One addition for the whole wave, since there are few ranks.
    for (int r = 0; r < layout.num_ranks; ++r) {
      const int tokens = __popcll(device::Ballot(((ranks >> r) & 1) != 0));
      if (Lane() == r && tokens > 0) FetchAddRelaxed<Scope::kBlock>(&s.ranks[r], tokens);
    }
  }
  return refused;
}

// A call, and the credits of the ranks whose memory it may write.
struct SendCall {
  uint64_t epoch;
  const device::Credits& credits;
};

// Announces to every rank how much it gets from this one. Called by the first block.
__device__ void SendCounts(const DispatchParams& p, const SendShared& s, const SendCall& call) {
  __shared__ uint32_t granted;
  __shared__ int32_t refused;
  const CommonParams& c = p.common;
  const Layout& layout = c.layout;
  if (threadIdx.x == 0) refused = 0;
  call.credits.Await(c, CallBefore(call.epoch), Site::kDispatchCredit, &granted);
  __syncthreads();
  if (CountTokens<true>(p, s, 0, p.num_tokens)) {
    device::ExchangeRelaxed<Scope::kBlock>(&refused, 1);
  }
  __syncthreads();
  if (granted == 0) return;
  const DispatchSender sender(c, call.epoch);
  for (int e = threadIdx.x; e < layout.num_experts; e += blockDim.x) {
    const int rank = layout.experts().RankOf(e);
    if (!device::HasRank(granted, rank)) continue;
    sender.AnnounceRows(rank, e, refused != 0 ? 0 : s.experts[e]);
  }
  const int rank = static_cast<int>(threadIdx.x);
  if (rank < layout.num_ranks && device::HasRank(granted, rank)) {
    sender.AnnounceTokens(rank, refused != 0 ? 0 : s.ranks[rank]);
  }
}

// Loads a thread's vectors of a row of x: chunk + threadIdx.x, and every blockDim.x-th after it;
// zeros beyond the end of the row.
__device__ __forceinline__ void LoadChunk(const DispatchParams& p, int token, int chunk,
                                          Vec16 (&v)[kRowUnroll]) {
  const int vecs = p.common.layout.dtype_vecs;
  const Vec16* row = device::RowOf(p.x, token, vecs);
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

// The destinations of a token of which this lane has a choice.
struct LaneRoute {
  Destinations to;
  int32_t expert;  // -1: this lane has none
  int index;       // among this rank's rows to that expert
  int slot;        // of the token, among this rank's tokens to that expert's rank
};

// Stores a token's row and packets to all its ranks. All threads of the block hold the first chunk
// of the row in `v`, and the lanes of each wave hold the choices. The caller sets the flags
// afterwards.
template <typename Row>
__device__ void SendToken(const DispatchParams& p, const DispatchSender& sender, int token,
                          const LaneRoute& route, Vec16 (&v)[kRowUnroll]) {
  const Layout& layout = p.common.layout;
  const Destinations& to = route.to;
  const int copies = to.copies();
  const int step = static_cast<int>(blockDim.x);
  for (int chunk = 0; chunk < layout.dtype_vecs; chunk += kRowUnroll * step) {
    if (chunk > 0) LoadChunk(p, token, chunk, v);
    const Row row(layout, chunk, v);
#pragma unroll 1
    for (int i = 0; i < copies; ++i) {
      const int lane = to.LaneOfCopy(i);
      row.Store(layout, sender.RowAt(Shuffle(to.rank, lane), Shuffle(route.slot, lane)));
    }
  }
  if (Wave() != 0 || to.rank < 0 || to.index() >= layout.max_choices) return;
  const float weight =
      p.topk_weights != nullptr ? p.topk_weights[token * layout.topk + Lane()] : 1.0F;
  const int local = layout.experts().LocalExpert(route.expert, to.rank);
  sender.StoreChoice(to, route.slot,
                     Choice{route.index, weight, device::PackOrigin(token, Lane(), local)});
}

// The tokens of one sending block: first, first + step, ...
struct SendShare {
  int first;
  int step;
  // This thread's vectors of the first token's row, and this lane's id. They are loaded before
  // their destinations are known.
  Vec16 v[kRowUnroll];
  int32_t id;
};

// Loads what a block needs of `token`, if there is that one. Returns false if its row does not
// come. Called by all threads.
__device__ __forceinline__ bool LoadToken(const DispatchParams& p, int token, SendShare& share) {
  if (token >= p.num_tokens) return true;
  if (!device::BlockAwaitRow(p.arrivals, token)) return false;
  LoadChunk(p, token, 0, share.v);
  share.id = LoadId(p, token);
  return true;
}

// Sends the tokens of the share. `share.v` and `share.id` then hold the data of the next token.
template <typename Row, typename Trace>
__device__ void SendTokens(const DispatchParams& p, const SendShared& s, const SendCall& call,
                           SendShare& share, const Trace& trace) {
  __shared__ uint32_t granted;
  const CommonParams& c = p.common;
  const Layout& layout = c.layout;
  const DispatchSender sender(c, call.epoch);
  uint64_t start = trace.Start();
  int counted = 0;
  for (int token = share.first; token < p.num_tokens; token += share.step) {
    CountTokens<false>(p, s, counted, token);
    counted = token;
    if (token == share.first) {
      call.credits.Await(c, CallBefore(call.epoch), Site::kDispatchCredit, &granted);
    }
    __syncthreads();
    if (granted == 0) return;
    trace.Stop(start, static_cast<uint32_t>(Tag::kRoute));
    start = trace.Start();
    const int32_t expert = layout.experts().IsExpert(share.id) ? share.id : -1;
    const int rank = expert >= 0 ? layout.experts().RankOf(expert) : -1;
    const Destinations to(rank >= 0 && device::HasRank(granted, rank) ? rank : -1,
                          layout.num_ranks);
    const LaneRoute route = {to, expert, expert >= 0 ? s.experts[expert] : 0,
                             to.rank >= 0 ? s.ranks[to.rank] : 0};
    SendToken<Row>(p, sender, token, route, share.v);
    // A row that may not have come yet must not delay this one.
    const bool early = p.arrivals.num_chunks == 0;
    const int next = token + share.step;
    if (early) LoadToken(p, next, share);
    device::SyncBlockStores();
    if (Wave() == 0) sender.Publish(route.to, route.slot);
    if (!early && !LoadToken(p, next, share)) return;
    trace.Stop(start, static_cast<uint32_t>(Tag::kSend), static_cast<uint32_t>(token));
    start = trace.Start();
  }
}

template <typename Row, typename Trace>
__device__ void Send(const DispatchParams& p, const Role& role, int32_t* shared) {
  const CommonParams& c = p.common;
  const Layout& layout = c.layout;
  const SendShared s(shared, layout.num_experts);
  const Trace trace(c.trace);
  const device::Credits credits(c, layout.dispatch_credits);
  // If there are several blocks, the first one sends no tokens, so that the counts are sent early.
  SendShare share;
  share.first = role.count > 1 ? role.index - 1 : 0;
  share.step = role.count > 1 ? role.count - 1 : 1;
  share.id = -1;
  const bool early = p.arrivals.num_chunks == 0;
  if (share.first >= 0 && early) LoadToken(p, share.first, share);
  const auto clear = [&] {
    for (int i = threadIdx.x; i < layout.num_experts + kMaxRanks; i += blockDim.x) shared[i] = 0;
  };
  clear();
  const uint64_t epoch =
      device::BeginCall(c.failure, &c.state->dispatch_send, static_cast<uint32_t>(role.count));
  if (epoch == 0) return;
  const SendCall call = {epoch, credits};
  // The block with the fewest tokens gives the credits, since the fence would delay the counts.
  if (role.index == role.count - 1) {
    device::GiveCredits(c, layout.dispatch_credits, Received(c, epoch, c.state->dispatch_receive));
  }
  if (role.index == 0) {
    const uint64_t start = trace.Start();
    SendCounts(p, s, call);
    trace.Stop(start, static_cast<uint32_t>(Tag::kRoute));
    if (role.count == 1) {
      __syncthreads();
      clear();
      __syncthreads();
    }
  }
  if (share.first < 0 || (!early && !LoadToken(p, share.first, share))) return;
  SendTokens<Row>(p, s, call, share, trace);
}

// Waits for all counts, and computes the first rows of all (expert, source) from them. Returns
// false if a count did not arrive. `last` is set to the source that was missing last; it is
// unchanged if none was.
template <bool kWatched>
__device__ bool ReceiveCounts(const DispatchParams& p, const ReceiveShared& s,
                              const DispatchReceiver<kWatched>& receiver,
                              device::InterleavedWalk& walk, uint32_t* last) {
  const Layout& layout = p.common.layout;
  const bool came = receiver.AwaitCounts(
      [&](int source, int column, int32_t count) {
        int32_t& rows = column < layout.num_local_experts
                            ? s.sums[layout.row_offsets.Index(column, source)]
                            : s.tokens[source];
        rows = count;
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
  const int i = layout.row_offsets.Index(expert, source);
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

// Writes the description of the received rows for the caller; zeros unless `ok`. Called by thread
// `begin` of `step`.
__device__ void DescribeRows(const DispatchParams& p, const ReceiveShared& s, bool ok, int begin,
                             int step) {
  const CommonParams& c = p.common;
  const Layout& layout = c.layout;
  const int num_ranks = layout.num_ranks;
  const int num_local = layout.num_local_experts;
  for (int i = begin; i < num_local * num_ranks; i += step) {
    const int source = layout.experts().RankOf(i);  // pairs are in the order of experts
    const int expert = layout.experts().LocalExpert(i, source);
    const int32_t count = ok ? RowsOf(layout, s, expert, source) : 0;
    const int32_t first = ok ? layout.row_offsets.FirstRow(s.sums, expert, source) : 0;
    p.ranges[expert * num_ranks + source] = RowRange{first, count};
    if (p.split_counts != nullptr) p.split_counts[i] = count;
  }
  for (int e = begin; e < num_local; e += step) {
    p.expert_counts[e] = ok ? RowsOf(layout, s, e) : 0;
    if (p.expert_offsets != nullptr) {
      p.expert_offsets[e] = ok ? layout.row_offsets.FirstRow(s.sums, e, 0) : 0;
    }
  }
  if (begin == 0 && p.expert_offsets != nullptr) {
    const int rows =
        layout.row_offsets.group_rows == 0 ? s.sums[layout.num_experts] : layout.max_rows;
    p.expert_offsets[num_local] = ok ? rows : 0;
  }
  for (int source = begin; source < num_ranks; source += step) {
    c.kept.received[source] = ok ? s.tokens[source] : 0;
  }
}

// A part of the row of a token.
struct TokenPart {
  int source;
  int slot;
  int part;
};

// Copies the item to the destination offsets of the token's choices. Returns false if it did not
// arrive.
template <typename Trace, bool kWatched>
__device__ bool ReceiveToken(const DispatchParams& p, const ReceiveShared& s,
                             const DispatchReceiver<kWatched>& receiver, const TokenPart& item,
                             const Trace& trace) {
  const Layout& layout = p.common.layout;
  uint64_t start = trace.Start();
  const auto token = receiver.Await(item.source, item.slot);
  const int choices = token.choices;
  trace.Stop(start, static_cast<uint32_t>(Tag::kPacketWait), static_cast<uint32_t>(item.source));
  if (choices == 0) return false;
  start = trace.Start();
  Choice mine = receiver.ChoiceOf(token);
  if (Lane() < choices) {
    mine.row += layout.row_offsets.FirstRow(s.sums, LocalExpertOf(mine.origin), item.source);
  }
  char* staged = receiver.RowAt(item.source, item.slot);
  device::WaveCopyRowToMany<kWatched ? kWatchedCopyUnroll : device::kCopyUnroll>(
      reinterpret_cast<const Vec16*>(staged),
      device::PartOfRow(item.part, p.row_waves, layout.row_vecs), choices,
      [&](int i) { return device::RowOf(p.recv_x, Shuffle(mine.row, i), layout.row_vecs); });
  if (item.part == 0) {
    if (layout.scale_words > 0) {
      device::WaveCopyWordsToMany(layout.Scales(staged), layout.scale_words, choices, [&](int i) {
        return p.recv_scales + static_cast<size_t>(Shuffle(mine.row, i)) * layout.scale_words;
      });
    }
    receiver.Keep(item.source, item.slot, token, mine);
    if (Lane() < choices) {
      p.sources[mine.row] = RowSource{item.source, TokenOf(mine.origin), TopkOf(mine.origin),
                                      LocalExpertOf(mine.origin)};
    }
  }
  trace.Stop(start, static_cast<uint32_t>(Tag::kCopy), static_cast<uint32_t>(choices));
  return true;
}

// Called by all threads of one block.
__device__ __forceinline__ void CountRows(const CommonParams& c, const ReceiveShared& s,
                                          uint64_t epoch) {
  device::CountLoads(c.loads, epoch, static_cast<int>(threadIdx.x), static_cast<int>(blockDim.x),
                     [&](int e) { return RowsOf(c.layout, s, e); });
}

// The block with the fewest tokens writes the description for the caller.
__device__ __forceinline__ bool Describes(const Role& role) { return role.index == role.count - 1; }

enum class PartEnd {
  kUncounted,  // the call has failed before all counts were there
  kReceived,
  kAgain,  // by one block alone (kernels/ep/device/call_end.h)
};

// Receives one block's part of a dispatch, or the parts of all blocks (`alone`).
template <typename Trace, bool kWatched>
__device__ PartEnd ReceivePart(const DispatchParams& p, bool alone, const ReceiveShared& s,
                               uint64_t epoch, const Trace& trace) {
  __shared__ device::InterleavedWalk walk;
  const CommonParams& c = p.common;
  const Layout& layout = c.layout;
  const Role role = kWatched && alone ? Role{false, 0, 1} : RoleOf(c);
  const DispatchReceiver<kWatched> receiver(c, epoch);
  const uint64_t start = trace.Start();
  uint32_t last = device::kNoPeer;
  const bool counted = ReceiveCounts(p, s, receiver, walk, &last);
  trace.Stop(start, static_cast<uint32_t>(Tag::kCountWait), last);
  const auto describe = [&](bool known, int begin, int step) {
    DescribeRows(p, s, known, begin, step);
  };
  device::DescribeDelivery(&c.state->delivery, epoch, Describes(role), counted, describe);
  if (!counted) return PartEnd::kUncounted;
  // Early, and by a block that others are still at work beside. If ranks may be left out, their
  // rows are known at the end.
  if (!kWatched && Describes(role)) CountRows(c, s, epoch);
  // Different blocks take neighbouring tokens.
  const int groups = static_cast<int>(blockDim.x) / device::kWaveSize / p.row_waves;
  const int group = Wave() / p.row_waves;
  const int part = Wave() - group * p.row_waves;
  const int tokens = group < groups ? walk.Total(layout.num_ranks) : 0;
  device::MaskedInCall<kWatched> masked;
  for (int i = group * role.count + role.index; i < tokens; i += groups * role.count) {
    const auto item = walk.At(i, layout.num_ranks, c.peers.rank);
    if (masked.Has(item.source)) continue;
    if (!ReceiveToken(p, s, receiver, {item.source, item.index, part}, trace) &&
        !masked.Look(c.failure, item.source)) {
      device::WithdrawDelivery(&c.state->delivery, epoch, describe);
      break;
    }
  }
  if constexpr (!kWatched) return PartEnd::kReceived;
  if (c.failure.masks != nullptr &&
      device::EndCall(c, c.end, {RoleOf(c).count, alone}) == device::CallEnd::kAgain) {
    return PartEnd::kAgain;
  }
  device::EndStatistics(c.statistics, layout.num_ranks, epoch);
  return PartEnd::kReceived;
}

template <typename Trace, bool kWatched>
__device__ void Receive(const DispatchParams& p, const Role& role, int32_t* shared) {
  const CommonParams& c = p.common;
  const ReceiveShared s(shared, c.layout.num_experts);
  const Trace trace(c.trace);
  if constexpr (kWatched) device::ResetLongestWaits(c.failure);
  uint64_t epoch = 0;
  if (!device::BeginCall(c.failure, &c.state->dispatch_receive, static_cast<uint32_t>(role.count),
                         &epoch)) {
    device::DescribeDelivery(
        &c.state->delivery, epoch, Describes(role), false,
        [&](bool known, int begin, int step) { DescribeRows(p, s, known, begin, step); });
    return;
  }
  if (Describes(role)) {
    device::PrefetchLoads(c.loads, static_cast<int>(threadIdx.x), static_cast<int>(blockDim.x));
  }
  if constexpr (kWatched) {
    if (role.index == 0 && device::Wave() == 0 && c.failure.masks != nullptr) {
      const uint32_t masked = device::MaskedRanks(c.failure);
      if (Lane() == 0) device::TellLeftOut(c.end, masked);
    }
    // The block with the fewest tokens.
    if (role.index == role.count - 1) {
      device::BeginStatistics(c.statistics, c.layout.num_ranks, epoch, role.count);
    }
  }
  PartEnd end = PartEnd::kAgain;
  for (bool alone = false; end == PartEnd::kAgain; alone = true) {
    end = ReceivePart<Trace, kWatched>(p, alone, s, epoch, trace);
  }
  if (kWatched && role.index == 0 && end != PartEnd::kUncounted) CountRows(c, s, epoch);
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
  return SharedInts(layout.num_experts) * sizeof(int32_t);
}

hipError_t LoadDispatch(const DispatchVariant& variant) {
  return device::LoadKernel(PickKernel(variant));
}

hipError_t LaunchDispatch(const DispatchParams& params, const DispatchVariant& variant,
                          const LaunchShape& shape, hipStream_t stream) {
  return device::LaunchCooperative(PickKernel(variant), params, shape, stream);
}

hipError_t DispatchBlocksPerUnit(const DispatchVariant& variant, const LaunchShape& shape,
                                 int* blocks) {
  return device::BlocksPerUnit(PickKernel(variant), shape, blocks);
}

}  // namespace octet::low_latency
