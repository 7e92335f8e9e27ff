// high_throughput dispatch: first all destination offsets are computed (dispatch_layout.h); then
// every token goes once to each of its ranks, directly to the row where the caller reads it.
//
//   this rank                                        every rank
//   ---------                                        ----------
//   topk_idx [T][K] ── dispatch_layout.h ────────► counts[me][C], and with all ranks' counts the
//                                                  destination offset of each token
//   x [T] ── a wave for each token ──────────────► rows[offset]       16-byte stores, read once
//                                                  packets[me][slot] choices, then the flag
//   packets, rows ── other waves, side by side ──► rows of its other choices, sources
//
// Send. All blocks together take the tokens in order, and a token's copies are sent together. One
// release covers all of them; the flags after it are relaxed, since a second release would wait
// until the first flag has reached the peer.
//
// Receive. Packets are taken in the order in which the sources send them. If a token has several
// choices here, its row is copied to the other destination offsets while it is likely still in the
// cache.
//
// Waves take both kinds of work from queues; waves that find nothing left to send receive.
#include <hip/hip_runtime.h>

#include "device_ops.h"
#include "kernels/ep/device/delivery.h"
#include "kernels/ep/device/interleaved_walk.h"
#include "kernels/ep/device/row_arrivals_device.h"
#include "kernels/high_throughput/dispatch_begin.h"
#include "kernels/high_throughput/dispatch_layout.h"
#include "kernels/high_throughput/kernels.h"
#include "kernels/high_throughput/phase.h"
#include "kernels/high_throughput/protocol.h"
#include "kernels/high_throughput/row_mover.h"
#include "runtime/device/call_epoch_device.h"
#include "runtime/device/launch_cooperative.h"
#include "runtime/device/load_kernel.h"
#include "runtime/device/tracer.h"

namespace octet::high_throughput {
namespace {

using device::Destinations;
using device::FirstWork;
using device::Lane;
using device::NextWork;
using device::RenewWork;
using device::Shuffle;
using device::Vec16;

template <typename Mover, typename Trace>
__device__ void SendToken(const Call& call, int token, Mover& mover, const Trace& trace) {
  const auto& [p, s, epoch] = call;
  const Layout& layout = p.common.layout;
  const DispatchSender sender(p.common, epoch);
  const uint64_t start = trace.Start();
  const Route route = FinishRoute(p, s, epoch, token);
  const Destinations to = DestinationsOf(layout, route.expert);
  int offset = route.row;
  if (to.rank >= 0) {
    if (layout.token_major) offset = s.first_slots()[to.rank] + route.slot;
    const float weight =
        p.topk_weights != nullptr ? p.topk_weights[token * layout.topk + Lane()] : 1.0F;
    const int local = layout.experts().LocalExpert(route.expert, to.rank);
    sender.StoreChoice(to, route.slot, Choice{route.row, weight, PackOrigin(token, Lane(), local)});
  }
  const int copies = to.copies();
  mover.CopyToMany(device::RowOf(p.x, token, layout.row_vecs), layout.row_vecs, copies, [&](int i) {
    const int lane = to.LaneOfCopy(i);
    return sender.RowAt(Shuffle(to.rank, lane), Shuffle(offset, lane));
  });
  if (layout.scale_words > 0) {
    device::WaveCopyWordsToMany(p.x_scales + static_cast<size_t>(token) * layout.scale_words,
                                layout.scale_words, copies, [&](int i) {
                                  const int lane = to.LaneOfCopy(i);
                                  return sender.ScalesAt(Shuffle(to.rank, lane),
                                                         Shuffle(offset, lane));
                                });
  }
  mover.Finish();
  sender.Publish(to, route.slot);
  trace.Stop(start, static_cast<uint32_t>(Tag::kSend), static_cast<uint32_t>(token));
}

// Writes the description of a token's rows for the caller. `mine` is this lane's choice of
// `choices`, `offset` the row's destination offset.
__device__ void Describe(const DispatchParams& p, const Choice& mine, int choices, int source,
                         int offset) {
  const Layout& layout = p.common.layout;
  const RowSource origin = {source, TokenOf(mine.origin), TopkOf(mine.origin),
                            LocalExpertOf(mine.origin)};
  const bool has_choice = Lane() < choices;
  if (has_choice && p.recv_topk_idx == nullptr) {
    p.sources[mine.row] = origin;
    p.row_weights[mine.row] = mine.weight;
  }
  if (has_choice && p.row_index != nullptr) p.row_index[mine.row] = offset;
  if (p.recv_topk_idx == nullptr) return;
  if (Lane() == 0) p.sources[offset] = origin;
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
    const size_t i = static_cast<size_t>(offset) * layout.topk + Lane();
    p.recv_topk_idx[i] = expert;
    p.recv_topk_weights[i] = weight;
  }
}

// Copies token `slot` of `source` to all its destination offsets. Returns false if it did not
// arrive.
template <typename Mover, typename Trace>
__device__ bool ReceiveToken(const Call& call, int source, int slot, Mover& mover,
                             const Trace& trace) {
  const auto& [p, s, epoch] = call;
  const Layout& layout = p.common.layout;
  const DispatchReceiver receiver(p.common, epoch);
  uint64_t start = trace.Start();
  const auto token = receiver.Await(source, slot);
  const int choices = token.choices;
  trace.Stop(start, static_cast<uint32_t>(Tag::kWait), static_cast<uint32_t>(source));
  if (choices == 0) return false;
  start = trace.Start();
  const Choice mine = receiver.ChoiceOf(token);
  receiver.Keep(source, slot, token, mine);
  const int offset = layout.token_major ? s.sources()[source] + slot : Shuffle(mine.row, 0);
  if (!layout.token_major && choices > 1) {
    mover.Acquired();
    mover.CopyToMany(receiver.RowAt(offset), layout.row_vecs, choices - 1,
                     [&](int i) { return receiver.RowAt(Shuffle(mine.row, i + 1)); });
    if (layout.scale_words > 0) {
      device::WaveCopyWordsToMany(
          receiver.ScalesAt(offset), layout.scale_words, choices - 1,
          [&](int i) { return receiver.ScalesAt(Shuffle(mine.row, i + 1)); });
    }
  }
  Describe(p, mine, choices, source, offset);
  trace.Stop(start, static_cast<uint32_t>(Tag::kFill), static_cast<uint32_t>(choices));
  return true;
}

// Zeroes the rows between the last row of an expert and the first of the next. Called by all waves
// of the grid.
__device__ void ZeroPadding(const DispatchParams& p, const LayoutShared& s) {
  const CommonParams& c = p.common;
  const Layout& layout = c.layout;
  char* rows = c.row_bases[c.peers.rank];
  const int num_local = layout.num_local_experts;
  const int32_t* first_row = s.first_row() + layout.experts().FirstExpert(c.peers.rank);
  const int blocks = static_cast<int>(gridDim.x);
  const int waves = static_cast<int>(blockDim.x) / device::kWaveSize;
  for (int i = device::Wave() * blocks + static_cast<int>(blockIdx.x);
       i < num_local * layout.expert_alignment; i += waves * blocks) {
    const int expert = i / layout.expert_alignment;
    const int row = first_row[expert] + s.counts()[expert] + i - expert * layout.expert_alignment;
    if (row >= (expert + 1 < num_local ? first_row[expert + 1] : *s.end_row())) continue;
    if (Lane() == 0 && p.recv_topk_idx == nullptr) {
      p.sources[row] = RowSource{-1, -1, -1, -1};
      p.row_weights[row] = 0.0F;
    }
    if (Lane() == 0 && p.row_index != nullptr) p.row_index[row] = -1;
    if (layout.token_major) continue;
    auto* vecs = reinterpret_cast<Vec16*>(layout.Row(rows, row));
    for (int v = Lane(); v < layout.row_vecs; v += device::kWaveSize) {
      device::StoreStream(vecs + v, Vec16{});
    }
    for (int w = Lane(); w < layout.scale_words; w += device::kWaveSize) {
      layout.Scales(rows, row)[w] = 0;
    }
  }
}

template <typename Mover, typename Trace>
__global__ void __launch_bounds__(kDispatchMaxThreads, 1) Dispatch(const DispatchParams p) {
  HIP_DYNAMIC_SHARED(Vec16, memory);  // aligned for bulk copies
  auto* shared = reinterpret_cast<int32_t*>(memory);
  const CommonParams& c = p.common;
  const Layout& layout = c.layout;
  const LayoutShared s(shared, layout);
  const Trace trace(c.trace, TracedWave(c));
  uint64_t epoch = 0;
  bool ok = false;
  if (c.send_waves > 0) {
    const uint64_t start = trace.Start();
    // Its loads are in flight while the call begins.
    const Share share(p);
    ok = device::BeginCall(c.failure, &c.state->dispatch, gridDim.x, &epoch);
    trace.Stop(start, static_cast<uint32_t>(Tag::kBegin));
    if (blockIdx.x == gridDim.x - 1) {
      device::PrefetchLoads(c.loads, static_cast<int>(threadIdx.x), static_cast<int>(blockDim.x));
    }
    if (ok && blockIdx.x == 0 && threadIdx.x == 0) {
      RenewWork(&c.state->dispatch_sends, epoch);
      RenewWork(&c.state->dispatch_receives, epoch);
    }
    ok = ok && MakeLayoutKnown({p, s, epoch}, share, shared, trace);
    if (p.new_layout && blockIdx.x == 0) KeepOffsets(c, s, ok);
  } else {
    ok = device::BegunCall(c.failure, &c.state->dispatch, &epoch);
    if (ok) LoadOffsets(c, s);
  }
  const auto describe = [&](bool known, int first, int step) {
    DescribeRows(p, s, known, first, step);
  };
  if (c.receives) {
    const bool describes = blockIdx.x == gridDim.x - 1;  // the first block has other work
    device::DescribeDelivery(&c.state->delivery, epoch, describes, ok, describe);
    if (describes && epoch != 0) CountRows(p, s, epoch, ok);
  }
  if (!ok) return;
  Mover mover({shared + p.shared.mover_offset, static_cast<int>(blockDim.x) / device::kWaveSize,
               p.shared.piece_bytes});
  const Call call = {p, s, epoch};
  if (c.receives && layout.expert_alignment > 1) ZeroPadding(p, s);
  if (device::Wave() < c.send_waves) {
    const device::WorkTeam team = SendTeam(c);
    device::WorkQueue* queue = &c.state->dispatch_sends;
    for (int token = FirstWork(queue, epoch, team); token < p.num_tokens;
         token = NextWork(queue, epoch, team)) {
      bool waited = false;
      if (!device::WaveAwaitRow(p.arrivals, token, &waited)) break;
      if (waited) mover.Acquired();
      SendToken(call, token, mover, trace);
    }
  }
  if (c.receives) {
    const int packets = s.walk().Total(layout.num_ranks);
    const device::WorkTeam team = ReceiveTeam(c);
    device::WorkQueue* queue = &c.state->dispatch_receives;
    for (int i = FirstWork(queue, epoch, team); i < packets && ok;
         i = NextWork(queue, epoch, team)) {
      const auto item = s.walk().At(i, layout.num_ranks, c.peers.rank);
      ok = ReceiveToken(call, item.source, item.index, mover, trace);
    }
    if (!ok) device::WithdrawDelivery(&c.state->delivery, epoch, describe);
  }
  mover.Finish();
}

using Kernel = void (*)(DispatchParams);

template <typename Mover>
Kernel PickTrace(bool traced) {
  return traced ? Dispatch<Mover, device::Tracer> : Dispatch<Mover, device::NoTracer>;
}

Kernel PickKernel(const DispatchVariant& variant) {
  return variant.bulk ? PickTrace<device::BulkMover>(variant.traced)
                      : PickTrace<device::VectorMover>(variant.traced);
}

}  // namespace

DispatchShared SharedOfDispatch(const Layout& layout, bool bulk, int waves) {
  constexpr size_t kAlignment = 128;
  DispatchShared shared = {};
  shared.bytes = SharedInts(layout, waves) * sizeof(int32_t);
  if (!bulk) return shared;
  const size_t movers = (shared.bytes + kAlignment - 1) / kAlignment * kAlignment;
  shared.piece_bytes =
      device::MoverMemory::PieceBytes(static_cast<size_t>(layout.row_vecs) * kVecBytes, waves,
                                      device::kMaxBulkSharedBytes - movers);
  shared.mover_offset = static_cast<int32_t>(movers / sizeof(int32_t));
  shared.bytes = movers + device::MoverMemory::SharedBytes(waves, shared.piece_bytes);
  return shared;
}

hipError_t PrepareDispatch(const DispatchVariant& variant, const LaunchShape& shape) {
  return device::LoadKernelWithShared(PickKernel(variant), shape.shared_bytes);
}

hipError_t LaunchDispatch(const DispatchParams& params, const DispatchVariant& variant,
                          const LaunchShape& shape, hipStream_t stream) {
  return device::LaunchCooperative(PickKernel(variant), params, shape, stream);
}

hipError_t DispatchBlocksPerUnit(const DispatchVariant& variant, const LaunchShape& shape,
                                 int* blocks) {
  return device::BlocksPerUnit(PickKernel(variant), shape, blocks);
}

}  // namespace octet::high_throughput
