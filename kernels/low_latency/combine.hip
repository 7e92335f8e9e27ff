// low_latency combine: what the experts of one rank made of a token crosses the link once.
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
// sums in float32, ascending, then the bias, and rounds. The weights have come with the dispatch.
// Order `flat`: each choice's row crosses as it is, to the slot of its k, and the origin weighs and
// adds them in ascending k.
//
// Send. A thread has a column of 16 bytes and runs through all rows of the batch, the next ones
// loaded ahead; nothing stops it between tokens. Then one release by the block, and all flags of
// the batch. Tokens are dealt to the blocks one by one, source by source in turn, so that all links
// are in use at all times.
// Receive. Waves share a token according to how many there are of both, wait for the token's flags
// and sum.
//
// Every block sends its share and then receives: nothing is to be done before the rows are there,
// and experts' rows come from memory twice as fast as to half of the blocks. Or both are launches
// of their own, between which another combine may be sent.
#include <hip/hip_runtime.h>

#include "device_ops.h"
#include "kernels/device/call_end.h"
#include "kernels/device/call_statistics_device.h"
#include "kernels/device/interleaved_walk.h"
#include "kernels/device/row_codec.h"
#include "kernels/device/row_copy.h"
#include "kernels/device/row_sum.h"
#include "kernels/device/wave_scan.h"
#include "kernels/low_latency/kernels.h"
#include "kernels/low_latency/phase.h"
#include "kernels/low_latency/protocol.h"
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

// Tokens whose rows a block sends before it sets their flags, and rows that this may be.
constexpr int kBatchTokens = 8;
constexpr int kMaxChoices = 32;
constexpr int kBatchRows = kBatchTokens * kMaxChoices;

// Rows that a sending thread has in flight, and a receiving one of a token: as many as registers
// hold with two blocks on a compute unit.
constexpr int kRowsAhead = 4;
constexpr int kRowsInFlight = 4;

// The rows of a batch, in the order in which they are added up. In shared memory.
struct Batch {
  const Vec16* from[kBatchRows];
  Vec16* to[kBatchRows];       // where the sum goes to of which this is the last row, or nullptr
  uint64_t* flag[kBatchRows];  // beside it
  float weight[kBatchRows];
  float scale[kBatchRows];  // expert_scale; only if there is one
};

// The items that a block sends: first, first + step, ... of the walk over all packets, except those
// of ranks that are not in `receivers`. Blocks may not agree on these, so the items of all ranks
// have numbers.
struct SendShare {
  int first;
  int step;
  int items;
  uint32_t receivers;
};

// Lists the rows of the share's next items, at most kBatchTokens. Returns their number to all
// threads; a barrier of the block must follow.
template <bool kPerRank>
__device__ int ListBatch(const CombineParams& p, const device::InterleavedWalk& walk,
                         const CombineSender& sender, const SendShare& share, Batch& batch) {
  const CommonParams& c = p.common;
  const Layout& layout = c.layout;
  // Every wave looks at all tokens of the batch, a lane at each, and lists the rows of some.
  device::InterleavedWalk::Item mine = {0, 0};
  int choices = 0;
  const int item = share.first + Lane() * share.step;
  if (Lane() < kBatchTokens && item < share.items) {
    mine = walk.At(item, layout.num_ranks, c.peers.rank);
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

// Each thread runs through all rows of the batch with its columns.
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
  // By the block with the fewest tokens.
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
    // The first batch is listed before it is known who is masked.
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

// Sums the tokens of one block, without the rows of ranks that are `masked`. Tokens whose rows do
// not come are left as they are.
template <typename Codec, bool kPerRank, bool kWatched, typename Trace>
__device__ void SumTokens(const CombineParams& p, const Role& role, uint64_t epoch,
                          device::MaskedInCall<kWatched> masked, const Trace& trace) {
  const CommonParams& c = p.common;
  const Layout& layout = c.layout;
  const CombineReceiver<kPerRank, kWatched> receiver(c, epoch);
  const int waves = static_cast<int>(blockDim.x) / device::kWaveSize;
  const int num_waves = role.count * waves;
  // With more waves than tokens, several waves share one: `shares` of them.
  const int most_shares = (layout.dtype_vecs + device::kWaveSize - 1) / device::kWaveSize;
  int shares = p.num_tokens > 0 ? num_waves / p.num_tokens : 1;
  shares = shares < 1 ? 1 : (shares < most_shares ? shares : most_shares);
  // Those of a token are neighbours, in one block if that has so many.
  const int first = role.index * waves + Wave();
  for (int i = first; i < p.num_tokens * shares; i += num_waves) {
    const int token = i / shares;
    const int share = i - token * shares;
    uint64_t start = trace.Start();
    typename CombineReceiver<kPerRank, kWatched>::Outputs rows = {};
    uint32_t last = device::kNoPeer;
    const int32_t id = Lane() < layout.topk ? p.topk_idx[token * layout.topk + Lane()] : -1;
    const bool came = receiver.Await(token, id, masked, &rows, &last);
    trace.Stop(start, static_cast<uint32_t>(Tag::kCombineWait), last);
    if (!came) return;
    start = trace.Start();
    const Vec16* vecs = receiver.Rows(token);
    const float* weights =
        kPerRank || p.topk_weights == nullptr ? nullptr : p.topk_weights + token * layout.topk;
    device::SumRows<Codec, 1, kRowsInFlight>(
        device::RowOf(p.y, token, layout.dtype_vecs), kPerRank ? layout.combine_slots : layout.topk,
        rows.present,
        [&](int row) { return device::RowOf(vecs, receiver.SlotOf(rows, row), layout.dtype_vecs); },
        [&](int row) { return weights != nullptr ? weights[row] : 1.0F; },
        static_cast<const Vec16*>(p.bias), share * device::kWaveSize, layout.dtype_vecs,
        shares * device::kWaveSize);
    trace.Stop(start, static_cast<uint32_t>(Tag::kReduce), static_cast<uint32_t>(token));
  }
}

template <typename Codec, bool kPerRank, bool kWatched, typename Trace>
__device__ void Receive(const CombineParams& p, const Role& role) {
  __shared__ uint32_t masked;
  const CommonParams& c = p.common;
  const Trace trace(c.trace);
  // One wave looks for all of the block, while the call begins: thousands that look at the same
  // words wait for each other.
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
    // First, so that the time of all silent ranks is up together.
    if (c.failure.masks != nullptr) {
      device::AwaitFlags<true>(c, c.layout.combine_begun, epoch, Site::kCombineSource);
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
  // Before anything else: the store's way to the host takes 1 us, which would otherwise be at the
  // end.
  if (kWatched && p.common.failure.masks != nullptr && Receives(p.common) && block == blocks - 1 &&
      Wave() == 0) {
    const uint32_t masked = device::MaskedRanks(p.common.failure);
    if (Lane() == 0) device::TellLeftOut(p.common.end, masked);
  }
  if (Sends(p.common)) {
    Send<Codec, kPerRank, Trace>(p, {true, block, blocks});
    __syncthreads();
  }
  // The first tokens are received by the blocks that have the fewest to send.
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
