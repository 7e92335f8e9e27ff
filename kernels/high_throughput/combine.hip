// high_throughput combine: each rank returns its experts' outputs for a token once over the link.
//
//   this rank                                            origin o of a token
//   ---------                                            -------------------
//   expert_out, packets ── a wave for each part of ────► combine_rows[token][slot][H]
//     a token: p = Σ weight · y over its experts here    combine_flags[token][part][slot]
//
//   combine_rows, combine_flags ── other waves, ───────► y [T][H] = Σ p over ranks (+ bias)
//                                  side by side
//
// Order `per_rank`: Σ in float32 over k ascending, rounded to the dtype; the origin adds the ranks'
// sums in float32, ascending, then the bias, and rounds. The weights arrived with the dispatch.
// Order `flat`: each choice's row crosses the link unchanged, to the slot of its k; the origin
// weights the rows and adds them in ascending k. If the caller works on rows of tokens
// (Output::kDeduplicated), it has already computed the first sum.
//
// With CombineMethod::kPull the rows stay on the experts' rank, in the memory of received rows, and
// the origin loads them from there after their flags.
//
// Rows are cut into parts, each with its own flag and wave, so that little work is left when the
// last part arrives. Waves take the parts from queues, in order, since sums of one row and of eight
// take very different times. Waves that find nothing left to send receive.
//
// Packets are taken from the sources in turn, so that the links to all origins carry equal load,
// and by ascending token, which is the order in which the origins sum.
#include <hip/hip_runtime.h>

#include "device_ops.h"
#include "kernels/device/interleaved_walk.h"
#include "kernels/device/row_codec.h"
#include "kernels/device/row_copy.h"
#include "kernels/device/row_sum.h"
#include "kernels/high_throughput/kernels.h"
#include "kernels/high_throughput/phase.h"
#include "kernels/high_throughput/protocol.h"
#include "runtime/device/call_epoch_device.h"
#include "runtime/device/launch_cooperative.h"
#include "runtime/device/load_kernel.h"
#include "runtime/device/tracer.h"

namespace octet::high_throughput {
namespace {

using device::BitsBelow;
using device::Destinations;
using device::FirstWork;
using device::Lane;
using device::NextWork;
using device::RenewWork;
using device::Shuffle;
using device::Vec16;

// Vectors and rows that a lane has in flight while it sums: as many as the registers of a thread
// hold with kCombineMaxThreads threads.
constexpr int kSendVecs = 7;
constexpr int kSendRows = 1;
constexpr int kReceiveVecs = 4;
constexpr int kReceiveRows = 4;

template <CombineRows kRows>
// NOLINTNEXTLINE(google-readability-casting): not a C cast, but an instantiated template shows one
constexpr bool kPerRank = kRows != CombineRows::kChoices;

__device__ __forceinline__ const Vec16* OutputRow(const CombineParams& p, int row) {
  return device::RowOf(p.expert_out, row, p.common.layout.combine_vecs);
}

// Returns one choice's row.
template <typename Codec>
__device__ void SendRow(const CombineParams& p, Vec16* dst, int row, int local_expert,
                        device::RowPart part) {
  if (p.expert_scale == nullptr && OutputRow(p, row) == dst) return;
  if (p.expert_scale != nullptr) {
    const float scale = p.expert_scale[local_expert];
    device::WaveTransformRow(dst, OutputRow(p, row), part,
                             [scale](const Vec16& v) { return device::Scale<Codec>(v, scale); });
  } else {
    device::WaveCopyRow(dst, OutputRow(p, row), part);
  }
}

// Returns the weighted sum of a token's rows on this rank; `mine` is this lane's choice of
// `choices`.
template <typename Codec>
__device__ void SendSum(const CombineParams& p, Vec16* dst, const Choice& mine, int choices,
                        device::RowPart part) {
  device::SumScaledRows<Codec, kSendVecs, kSendRows>(
      dst,
      device::WeightedRows{choices, BitsBelow(choices),
                           [&](int i) { return OutputRow(p, Shuffle(mine.row, i)); },
                           [&](int i) { return Shuffle(mine.weight, i); }},
      device::RowScale{
          p.expert_scale != nullptr,
          [&](int i) { return p.expert_scale[LocalExpertOf(Shuffle(mine.origin, i))]; }},
      nullptr, device::Columns{part.begin, part.end, device::kWaveSize});
}

// A part of the rows of a packet.
struct PacketPart {
  int source;
  int slot;
  int part;
};

// Returns the rows of `item` to the token's origin.
template <typename Codec, CombineRows kRows, typename Trace>
__device__ void SendToken(const CombineParams& p, const CombineSender& sender,
                          const PacketPart& item, const Trace& trace) {
  const CommonParams& c = p.common;
  const Layout& layout = c.layout;
  const Packet* packet = sender.Kept(item.source, item.slot);
  const int choices = static_cast<int>(device::CountOf(packet->flag));
  const uint64_t start = trace.Start();
  Choice mine = Lane() < choices ? packet->choices()[Lane()] : Choice{};
  if (!p.weighted) mine.weight = 1.0F;
  const CombineSender::Token to = {item.source, TokenOf(Shuffle(mine.origin, 0)),
                                   c.kept.source_offsets[item.source] + item.slot};
  const device::RowPart columns =
      device::PartOfRow(item.part, layout.combine_parts, layout.combine_vecs);
  if constexpr (kRows == CombineRows::kChoices) {
    for (int i = 0; i < choices; ++i) {
      const uint32_t origin = Shuffle(mine.origin, i);
      const int row = Shuffle(mine.row, i);
      SendRow<Codec>(p, sender.At(to, row, TopkOf(origin)), row, LocalExpertOf(origin), columns);
    }
    sender.PublishChoices(to, mine, choices, item.part);
  } else {
    Vec16* dst = sender.At(to, Shuffle(mine.row, 0), packet->combine_slot);
    if constexpr (kRows == CombineRows::kReduced) {
      SendRow<Codec>(p, dst, to.token_row, 0, columns);
    } else {
      SendSum<Codec>(p, dst, mine, choices, columns);
    }
    sender.Publish(to, packet->combine_slot, item.part);
  }
  trace.Stop(start, static_cast<uint32_t>(Tag::kCombineSend), static_cast<uint32_t>(item.source));
}

// Waits for a part of all rows of a token and sums it. Returns false if some did not arrive.
template <typename Codec, CombineRows kRows, bool kPull, typename Trace>
__device__ bool ReceiveToken(const CombineParams& p,
                             const CombineReceiver<kPerRank<kRows>>& receiver, int token, int part,
                             const Trace& trace) {
  const CommonParams& c = p.common;
  const Layout& layout = c.layout;
  uint64_t start = trace.Start();
  const int flat = token * layout.topk;
  Route route = {-1, 0, 0, 0};
  if (Lane() < layout.topk) route = c.kept.routes[flat + Lane()];
  const Destinations from = DestinationsOf(layout, route.expert);
  typename CombineReceiver<kPerRank<kRows>>::Outputs rows = {};
  const bool came = receiver.Await(token, part, from, &rows);
  uint32_t last = device::kNoPeer;
  if constexpr (Trace::kRecords) {
    if (rows.last_lane >= 0) last = static_cast<uint32_t>(Shuffle(rows.peer, rows.last_lane));
  }
  trace.Stop(start, static_cast<uint32_t>(Tag::kCombineWait), last);
  if (!came) return false;
  start = trace.Start();
  const float* weights = kPerRank<kRows> ? nullptr : p.topk_weights;
  const device::RowPart columns =
      device::PartOfRow(part, layout.combine_parts, layout.combine_vecs);
  const auto sum = [&](auto row) {
    device::SumRows<Codec, kReceiveVecs, kReceiveRows>(
        device::RowOf(p.y, token, layout.combine_vecs),
        device::WeightedRows{
            layout.combine_slots, rows.present, row,
            [&](int slot) { return weights != nullptr ? weights[flat + slot] : 1.0F; }},
        static_cast<const Vec16*>(p.bias),
        device::Columns{columns.begin, columns.end, device::kWaveSize});
  };
  if constexpr (kPull) {
    const uint64_t mine = receiver.PulledFrom(route, from);
    sum([&](int slot) { return reinterpret_cast<const Vec16*>(Shuffle(mine, slot)); });
  } else {
    const Vec16* vecs = receiver.Rows(token);
    sum([&](int slot) { return device::RowOf(vecs, slot, layout.combine_vecs); });
  }
  trace.Stop(start, static_cast<uint32_t>(Tag::kReduce), static_cast<uint32_t>(token));
  return true;
}

template <typename Codec, CombineRows kRows, typename Trace>
__global__ void __launch_bounds__(kCombineMaxThreads, 1) Combine(const CombineParams p) {
  __shared__ device::InterleavedWalk walk;
  const CommonParams& c = p.common;
  const Layout& layout = c.layout;
  const Trace trace(c.trace, TracedWave(c));
  uint64_t epoch = 0;
  if (c.send_waves > 0) {
    walk.Init(c.kept.packet_counts, layout.num_ranks);
    epoch = device::BeginCall(c.failure, &c.state->combine, gridDim.x);
    if (epoch == 0) return;
    if (blockIdx.x == 0 && threadIdx.x == 0) {
      RenewWork(&c.state->combine_sends, epoch);
      RenewWork(&c.state->combine_receives, epoch);
    }
    if (blockIdx.x == 0) device::GiveCredits(c, layout.combine_credits, epoch - 1);
    if (!device::AwaitFlags(
            c, device::PeerFlags{layout.combine_credits, epoch - 1, Site::kCombineCredit})) {
      return;
    }
  } else {
    epoch = device::BegunCall(c.failure, &c.state->combine);
    if (epoch == 0) return;
  }
  const int parts = layout.combine_parts;
  if (device::Wave() < c.send_waves) {
    const int items = walk.Total(layout.num_ranks) * parts;
    const device::WorkTeam team = SendTeam(c);
    device::WorkQueue* queue = &c.state->combine_sends;
    const CombineSender sender(c, epoch);
    for (int i = FirstWork(queue, epoch, team); i < items; i = NextWork(queue, epoch, team)) {
      const int packet = i / parts;
      const auto item = walk.At(packet, layout.num_ranks, c.peers.rank);
      SendToken<Codec, kRows>(p, sender, {item.source, item.index, i - packet * parts}, trace);
    }
  }
  if (!c.receives) return;
  bool ok = true;
  const device::WorkTeam team = ReceiveTeam(c);
  device::WorkQueue* queue = &c.state->combine_receives;
  const CombineReceiver<kPerRank<kRows>> receiver(c, epoch);
  for (int i = FirstWork(queue, epoch, team); i < p.num_tokens * parts && ok;
       i = NextWork(queue, epoch, team)) {
    const int token = i / parts;
    const int part = i - token * parts;
    ok = layout.pull ? ReceiveToken<Codec, kRows, true>(p, receiver, token, part, trace)
                     : ReceiveToken<Codec, kRows, false>(p, receiver, token, part, trace);
  }
}

using Kernel = void (*)(CombineParams);

template <typename Codec, typename Trace>
Kernel PickRows(CombineRows rows) {
  switch (rows) {
    case CombineRows::kChoices:
      return Combine<Codec, CombineRows::kChoices, Trace>;
    case CombineRows::kSums:
      return Combine<Codec, CombineRows::kSums, Trace>;
    case CombineRows::kReduced:
      break;
  }
  return Combine<Codec, CombineRows::kReduced, Trace>;
}

Kernel PickKernel(const CombineVariant& variant) {
  if (variant.fp16) {
    return variant.traced ? PickRows<device::Fp16Codec, device::Tracer>(variant.rows)
                          : PickRows<device::Fp16Codec, device::NoTracer>(variant.rows);
  }
  return variant.traced ? PickRows<device::Bf16Codec, device::Tracer>(variant.rows)
                        : PickRows<device::Bf16Codec, device::NoTracer>(variant.rows);
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

}  // namespace octet::high_throughput
