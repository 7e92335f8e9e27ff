// low_latency combine: each rank returns its experts' outputs for a token once over the link.
//
//   this rank                                             origin o of a token
//   ---------                                             -------------------
//   expert_out, kept packets ── a block for a batch of ─► combine_rows[token][slot][H]
//     tokens: p = Σ weight · y over the experts here      combine_flags[token][slot]
//
//   combine_rows, combine_flags ── waves that share ────► y [T][H] = Σ p over ranks (+ bias)
//                                  a token
//
// Order `per_rank`: Σ in float32 over k ascending, rounded to the dtype; the origin adds the ranks'
// sums in float32, ascending, then the bias, and rounds. The weights arrived with the dispatch.
// Order `flat`: each choice's row crosses the link unchanged, to the slot of its k; the origin
// weights the rows and adds them in ascending k.
//
// Send. A thread owns a column of 16 bytes and walks over all rows of the batch; it loads the next
// rows ahead and does not stop between tokens. Then the block releases once and sets all flags of
// the batch. Tokens are dealt to the blocks one by one, from the sources in turn, so that all links
// are always in use.
//
// Receive. The waves are divided among the tokens; the waves that share a token wait for its flags
// and sum. If rows of y leave while the kernel runs (kernels/ep/device/row_departures.h), both go
// from the last token to the first.
//
// Every block sends its share and then receives. There is nothing to receive before the rows
// arrive, and all blocks read the experts' rows from memory twice as fast as half of them.
// Alternatively, sending and receiving are separate launches, between which another combine may be
// sent.
#include <hip/hip_runtime.h>

#include "device_ops.h"
#include "kernels/ep/device/call_end.h"
#include "kernels/ep/device/call_statistics_device.h"
#include "kernels/ep/device/interleaved_walk.h"
#include "kernels/ep/device/row_copy.h"
#include "kernels/ep/device/row_departures_device.h"
#include "kernels/ep/device/row_sum.h"
#include "kernels/ep/device/wave_scan.h"
#include "kernels/low_latency/kernels.h"
#include "kernels/low_latency/phase.h"
#include "kernels/low_latency/protocol.h"
#include "kernels/types/row_codec.h"
#include "runtime/device/call_epoch_device.h"
#include "runtime/device/launch_cooperative.h"
#include "runtime/device/load_kernel.h"
#include "runtime/device/tracer.h"
#include "runtime/device/wait.h"

namespace octet::low_latency {
namespace {

using device::Lane;
using device::Shuffle;
using device::Vec16;
using device::Wave;

// Tokens whose rows a block sends before it sets their flags, and the most rows that these have.
constexpr int kBatchTokens = 8;
constexpr int kMaxChoices = 32;
constexpr int kBatchRows = kBatchTokens * kMaxChoices;

// Rows that a sending thread has in flight, and rows of a token that a receiving thread has in
// flight: as many as the registers hold with two blocks on a compute unit.
constexpr int kRowsAhead = 4;
constexpr int kRowsInFlight = 4;

// The rows of a batch, in the order in which they are added. In shared memory.
struct Batch {
  const Vec16* from[kBatchRows];
  Vec16* to[kBatchRows];       // destination of the sum that this row completes, or nullptr
  uint64_t* flag[kBatchRows];  // of that destination
  float weight[kBatchRows];
  float scale[kBatchRows];  // expert_scale; only if there is one
};

// The items that a block sends: first, first + step, ... of the walk over all packets, except those
// of ranks that are not in `receivers`. Blocks may disagree on the receivers, so the items of all
// ranks are numbered.
struct SendShare {
  int first;
  int step;
  int items;
  uint32_t receivers;
};

// Lists the rows of the share's next items, at most kBatchTokens. Returns the number of rows to all
// threads; a barrier of the block must follow.
template <bool kPerRank>
__device__ int ListBatch(const CombineParams& p, const device::InterleavedWalk& walk,
                         const CombineSender& sender, const SendShare& share, Batch& batch) {
  const CommonParams& c = p.common;
  const Layout& layout = c.layout;
  // Every wave looks at all tokens of the batch, one lane for each, and lists the rows of some
  // tokens.
  device::InterleavedWalk::Item mine = {0, 0};
  int choices = 0;
  const int item = share.first + Lane() * share.step;
  if (Lane() < kBatchTokens && item < share.items) {
    mine = walk.At(device::InOrderOfDeparture(p.departures, item, share.items), layout.num_ranks,
                   c.peers.rank);
    if (device::HasRank(share.receivers, mine.source)) {
      choices = static_cast<int>(device::CountOf(sender.Kept(mine.source, mine.index)->flag));
    }
  }
  const int end = device::WaveInclusiveSum(choices);
  const int waves = static_cast<int>(blockDim.x) / device::kWaveSize;
  for (int t = Wave(); t < kBatchTokens; t += waves) {
    const int source = Shuffle(mine.source, t);
    const int packet_slot = Shuffle(mine.index, t);
    const int n = Shuffle(choices, t);
    const int row = Shuffle(end, t) - n + Lane();
    if (Lane() >= n) continue;
    const Packet* packet = sender.Kept(source, packet_slot);
    const Choice choice = packet->choices()[Lane()];
    const auto to = sender.ReturnOf<kPerRank>(source, packet, Lane());
    const bool last = !kPerRank || Lane() == n - 1;
    batch.from[row] = device::RowOf(p.expert_out, choice.row, layout.dtype_vecs);
    batch.to[row] = last ? to.row : nullptr;
    batch.flag[row] = to.flag;
    batch.weight[row] = choice.weight;
    if (p.expert_scale != nullptr) {
      batch.scale[row] = p.expert_scale[LocalExpertOf(choice.origin)];
    }
  }
  return Shuffle(end, device::kWaveSize - 1);
}

// Sends all rows of the batch; each thread handles its own columns.
template <typename Codec, bool kPerRank>
__device__ void SendRows(const CombineParams& p, const Batch& batch, int rows) {
  const bool scaled = p.expert_scale != nullptr;
  const int vecs = p.common.layout.dtype_vecs;
  for (int column = threadIdx.x; column < vecs; column += blockDim.x) {
    float sum[device::kElementsPerVec] = {};
    Vec16 ahead[kRowsAhead];
#pragma unroll
    for (int u = 0; u < kRowsAhead; ++u) {
      if (u < rows) ahead[u] = device::LoadStream(batch.from[u] + column);
    }
#pragma unroll 1
    for (int row = 0; row < rows; row += kRowsAhead) {
#pragma unroll
      for (int u = 0; u < kRowsAhead; ++u) {
        const int i = row + u;
        if (i >= rows) break;
        Vec16 v = ahead[u];
        if (i + kRowsAhead < rows) {
          ahead[u] = device::LoadStream(batch.from[i + kRowsAhead] + column);
        }
        if (scaled) v = device::Scale<Codec>(v, batch.scale[i]);
        Vec16* to = batch.to[i];
        if constexpr (kPerRank) {
          device::Accumulate<Codec>(sum, v, batch.weight[i]);
          if (to == nullptr) continue;
          v = device::Round<Codec>(sum);
#pragma unroll
          for (float& element : sum) element = 0.0F;
        }
        device::StoreStream(to + column, v);
      }
    }
  }
}

template <typename Codec, bool kPerRank, typename Trace>
__device__ void Send(const CombineParams& p, const Role& role) {
  __shared__ Batch batch;
  __shared__ device::InterleavedWalk walk;
  __shared__ uint32_t granted;
  const CommonParams& c = p.common;
  const Layout& layout = c.layout;
  const Trace trace(c.trace);
  const device::Credits credits(c, layout.combine_credits);
  walk.Init(c.kept.received, layout.num_ranks);
  const uint64_t epoch =
      device::BeginCall(c.failure, &c.state->combine_send, static_cast<uint32_t>(role.count));
  if (epoch == 0) return;
  // The block with the fewest tokens gives the credits.
  if (role.index == role.count - 1) {
    device::GiveCredits(c, layout.combine_credits, Received(c, epoch, c.state->combine_receive));
  }
  credits.Await(c, CallBefore(epoch), Site::kCombineCredit, &granted);
  const CombineSender sender(c, epoch);
  SendShare share = {role.index, role.count, walk.Total(layout.num_ranks),
                     (1U << layout.num_ranks) - 1};
  if (c.failure.masks != nullptr && role.index == role.count - 1) {
    __syncthreads();
    sender.AnnounceBegin(granted);
  }
  for (; share.first < share.items; share.first += kBatchTokens * role.count) {
    const uint64_t start = trace.Start();
    int rows = ListBatch<kPerRank>(p, walk, sender, share, batch);
    __syncthreads();
    if (granted == 0) return;
    // The first batch is listed before it is known which ranks are masked.
    if (granted != share.receivers) {
      share.receivers = granted;
      rows = ListBatch<kPerRank>(p, walk, sender, share, batch);
      __syncthreads();
    }
    SendRows<Codec, kPerRank>(p, batch, rows);
    device::SyncBlockStores();
    for (int row = threadIdx.x; row < rows; row += blockDim.x) {
      if (batch.to[row] == nullptr) continue;
      sender.Publish(batch.flag[row]);
    }
    trace.Stop(start, static_cast<uint32_t>(Tag::kCombineSend), static_cast<uint32_t>(rows));
    __syncthreads();
  }
}

// Sums the tokens of one block, without the rows of ranks in `masked`. Tokens whose rows do not
// arrive are left unchanged.
template <typename Codec, bool kPerRank, bool kWatched, typename Trace>
__device__ void SumTokens(const CombineParams& p, const Role& role, uint64_t epoch,
                          device::MaskedInCall<kWatched> masked, const Trace& trace) {
  const CommonParams& c = p.common;
  const Layout& layout = c.layout;
  const CombineReceiver<kPerRank, kWatched> receiver(c, epoch);
  const int waves = static_cast<int>(blockDim.x) / device::kWaveSize;
  const int num_waves = role.count * waves;
  // If there are more waves than tokens, `shares` waves share each token.
  const int most_shares = (layout.dtype_vecs + device::kWaveSize - 1) / device::kWaveSize;
  int shares = p.num_tokens > 0 ? num_waves / p.num_tokens : 1;
  shares = shares < 1 ? 1 : (shares < most_shares ? shares : most_shares);
  // The waves that share a token are neighbours, in one block if it has enough waves.
  const int first = role.index * waves + Wave();
  for (int i = first; i < p.num_tokens * shares; i += num_waves) {
    const int next = device::InOrderOfDeparture(p.departures, i, p.num_tokens * shares);
    const int token = next / shares;
    const int share = next - token * shares;
    uint64_t start = trace.Start();
    typename CombineReceiver<kPerRank, kWatched>::Outputs rows = {};
    uint32_t last = device::kNoPeer;
    const int32_t id = Lane() < layout.topk ? p.topk_idx[token * layout.topk + Lane()] : -1;
    const bool came = receiver.Await(token, id, masked, &rows, &last);
    trace.Stop(start, static_cast<uint32_t>(Tag::kCombineWait), last);
    if (!came) return;
    start = trace.Start();
    const Vec16* vecs = receiver.Rows(token);
    const device::Columns columns = {share * device::kWaveSize, layout.dtype_vecs,
                                     shares * device::kWaveSize};
    const float* weights =
        kPerRank || p.topk_weights == nullptr ? nullptr : p.topk_weights + token * layout.topk;
    device::SumRows<Codec, 1, kRowsInFlight>(
        device::RowOf(p.y, token, layout.dtype_vecs),
        device::WeightedRows{kPerRank ? layout.combine_slots : layout.topk, rows.present,
                             [&](int row) {
                               return device::RowOf(vecs, receiver.SlotOf(rows, row),
                                                    layout.dtype_vecs);
                             },
                             [&](int row) { return weights != nullptr ? weights[row] : 1.0F; }},
        static_cast<const Vec16*>(p.bias), columns);
    device::MarkStored(p.departures, token, columns);
    trace.Stop(start, static_cast<uint32_t>(Tag::kReduce), static_cast<uint32_t>(token));
  }
}

template <typename Codec, bool kPerRank, bool kWatched, typename Trace>
__device__ void Receive(const CombineParams& p, const Role& role) {
  __shared__ uint32_t masked;
  const CommonParams& c = p.common;
  const Trace trace(c.trace);
  // One wave reads the masks for the whole block while the call begins. Thousands of waves that
  // read the same words would wait for each other.
  const auto look = [&] {
    if (!kWatched || device::Wave() != 0) return;
    const uint32_t ranks = device::MaskedRanks(c.failure);
    if (Lane() == 0) masked = ranks;
  };
  look();
  if constexpr (kWatched) device::ResetLongestWaits(c.failure);
  const uint64_t epoch =
      device::BeginCall(c.failure, &c.state->combine_receive, static_cast<uint32_t>(role.count));
  if (epoch == 0) return;
  if constexpr (!kWatched) {
    SumTokens<Codec, kPerRank, kWatched>(p, role, epoch, device::MaskedInCall<kWatched>(), trace);
    return;
  }
  if (role.index == role.count - 1) {  // the block with the fewest tokens to sum
    // First, so that the timeouts of all silent ranks expire together.
    if (c.failure.masks != nullptr) {
      device::AwaitFlags<true>(
          c, device::PeerFlags{c.layout.combine_begun, epoch, Site::kCombineBegun});
    }
    device::BeginStatistics(c.statistics, c.peers.num_ranks, epoch, role.count);
  }
  for (bool again = false;; again = true) {
    SumTokens<Codec, kPerRank, kWatched>(p, again ? Role{false, 0, 1} : role, epoch,
                                         device::MaskedInCall<kWatched>(masked), trace);
    if (c.failure.masks == nullptr ||
        device::EndCall(c, c.end, {role.count, again}) != device::CallEnd::kAgain) {
      break;
    }
    look();
    __syncthreads();
  }
  device::EndStatistics(c.statistics, c.peers.num_ranks, epoch);
}

template <typename Codec, bool kPerRank, bool kWatched, typename Trace>
__global__ void __launch_bounds__(kMaxThreads, 2) Combine(const CombineParams p) {
  const int blocks = static_cast<int>(gridDim.x);
  const int block = static_cast<int>(blockIdx.x);
  // Before everything else: the store takes 1 us to reach the host, which would otherwise add to
  // the end of the call.
  if (kWatched && p.common.failure.masks != nullptr && Receives(p.common) && block == blocks - 1 &&
      Wave() == 0) {
    const uint32_t masked = device::MaskedRanks(p.common.failure);
    if (Lane() == 0) device::TellLeftOut(p.common.end, masked);
  }
  if (Sends(p.common)) {
    Send<Codec, kPerRank, Trace>(p, {true, block, blocks});
    __syncthreads();
  }
  // The blocks with the fewest tokens to send receive the first tokens.
  if (Receives(p.common)) {
    Receive<Codec, kPerRank, kWatched, Trace>(p, {false, blocks - 1 - block, blocks});
  }
}

using Kernel = void (*)(CombineParams);

template <typename Codec, bool kPerRank, bool kWatched>
Kernel PickTrace(bool traced) {
  return traced ? Combine<Codec, kPerRank, kWatched, device::Tracer>
                : Combine<Codec, kPerRank, kWatched, device::NoTracer>;
}

template <typename Codec, bool kWatched>
Kernel PickOrder(const CombineVariant& variant) {
  return variant.per_rank ? PickTrace<Codec, true, kWatched>(variant.traced)
                          : PickTrace<Codec, false, kWatched>(variant.traced);
}

template <bool kWatched>
Kernel PickCodec(const CombineVariant& variant) {
  return variant.fp16 ? PickOrder<device::Fp16Codec, kWatched>(variant)
                      : PickOrder<device::Bf16Codec, kWatched>(variant);
}

Kernel PickKernel(const CombineVariant& variant) {
  return variant.watched ? PickCodec<true>(variant) : PickCodec<false>(variant);
}

}  // namespace

hipError_t LoadCombine(const CombineVariant& variant) {
  return device::LoadKernel(PickKernel(variant));
}

hipError_t LaunchCombine(const CombineParams& params, const CombineVariant& variant,
                         const LaunchShape& shape, hipStream_t stream) {
  return device::LaunchCooperative(PickKernel(variant), params,
                                   {.blocks = shape.blocks, .threads = shape.threads}, stream);
}

hipError_t CombineBlocksPerUnit(const CombineVariant& variant, const LaunchShape& shape,
                                int* blocks) {
  return device::BlocksPerUnit(PickKernel(variant),
                               {.blocks = shape.blocks, .threads = shape.threads}, blocks);
}

}  // namespace octet::low_latency
