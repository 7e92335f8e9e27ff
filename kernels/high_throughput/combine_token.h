// Returning the rows of one token, and receiving them: what the kernels of combine are made of.
// combine.hip says what the orders and methods mean.
#ifndef OCTET_KERNELS_HIGH_THROUGHPUT_COMBINE_TOKEN_H_
#define OCTET_KERNELS_HIGH_THROUGHPUT_COMBINE_TOKEN_H_

#include <hip/hip_runtime.h>

#include <cstdint>

#include "device_ops.h"
#include "kernels/ep/device/row_copy.h"
#include "kernels/ep/device/row_departures_device.h"
#include "kernels/ep/device/row_sum.h"
#include "kernels/high_throughput/kernels.h"
#include "kernels/high_throughput/phase.h"
#include "kernels/high_throughput/protocol.h"
#include "kernels/types/row_codec.h"

namespace octet::high_throughput {

// Block 0 of a combine that sends: gives the credit for the calls before, and prepares the next
// combine's queues. Called by all threads of the block.
__device__ __forceinline__ void OpenCombine(const CommonParams& c, uint64_t epoch) {
  if (threadIdx.x == 0) {
    device::RenewWork(&c.state->combine_sends, epoch);
    device::RenewWork(&c.state->combine_receives, epoch);
    for (int part = 0; part < c.layout.combine_parts; ++part) {
      device::StoreRelaxed<device::Scope::kDevice>(PassWord(c, epoch + 1, part), uint64_t{0});
    }
  }
  device::GiveCredits(c, c.layout.combine_credits, epoch - 1);
}

// Waits until all ranks are done with the combine before. Called by all threads of a block. Returns
// false if a credit did not arrive.
__device__ __forceinline__ bool AwaitCombineCredits(const CommonParams& c, uint64_t epoch) {
  return device::AwaitFlags(
      c, device::PeerFlags{c.layout.combine_credits, epoch - 1, Site::kCombineCredit});
}

// Vectors and rows that a lane has in flight while it sums: as many as the registers of a thread
// hold with kCombineMaxThreads threads.
inline constexpr int kSendVecs = 7;
inline constexpr int kSendRows = 1;
inline constexpr int kReceiveVecs = 4;
inline constexpr int kReceiveRows = 4;

template <CombineRows kRows>
// NOLINTNEXTLINE(google-readability-casting): not a C cast, but an instantiated template shows one
inline constexpr bool kPerRank = kRows != CombineRows::kChoices;

__device__ __forceinline__ const device::Vec16* OutputRow(const CombineParams& p, int row) {
  return device::RowOf(p.expert_out, row, p.common.layout.combine_vecs);
}

// Returns one choice's row.
template <typename Codec>
__device__ void SendRow(const CombineParams& p, device::Vec16* dst, int row, int local_expert,
                        device::RowPart part) {
  if (p.expert_scale == nullptr && OutputRow(p, row) == dst) return;
  if (p.expert_scale != nullptr) {
    const float scale = p.expert_scale[local_expert];
    device::WaveTransformRow(dst, OutputRow(p, row), part, [scale](const device::Vec16& v) {
      return device::Scale<Codec>(v, scale);
    });
  } else {
    device::WaveCopyRow(dst, OutputRow(p, row), part);
  }
}

// Returns the weighted sum of a token's rows on this rank; `mine` is this lane's choice of
// `choices`.
template <typename Codec>
__device__ void SendSum(const CombineParams& p, device::Vec16* dst, const Choice& mine, int choices,
                        device::RowPart part) {
  device::SumScaledRows<Codec, kSendVecs, kSendRows>(
      dst,
      device::WeightedRows{choices, device::BitsBelow(choices),
                           [&](int i) { return OutputRow(p, device::Shuffle(mine.row, i)); },
                           [&](int i) { return device::Shuffle(mine.weight, i); }},
      device::RowScale{
          p.expert_scale != nullptr,
          [&](int i) { return p.expert_scale[LocalExpertOf(device::Shuffle(mine.origin, i))]; }},
      nullptr, device::Columns{part.begin, part.end, device::kWaveSize});
}

// A part of the rows of a packet.
struct PacketPart {
  int source;
  int slot;
  int part;
};

// How many packets' parts a wave sends before it publishes them. Choices are published token by
// token.
template <CombineRows kRows>
__device__ __forceinline__ int PartsAtOnce(int parts, int waves) {
  constexpr int kMost = 8;
  constexpr int kFewestTurns = 8;  // of a wave, so that little is left when the last part comes
  if constexpr (!kPerRank<kRows>) return 1;
  const int at_once = waves > 0 ? parts / (waves * kFewestTurns) : 1;
  return at_once < 1 ? 1 : (at_once < kMost ? at_once : kMost);
}

// Returns the rows of `item` to the token's origin. If they are one row, sets *flag to the flag
// that has to be published; else publishes them.
template <typename Codec, CombineRows kRows, typename Trace>
__device__ void SendToken(const CombineParams& p, const CombineSender& sender,
                          const PacketPart& item, const Trace& trace, uint64_t** flag) {
  const CommonParams& c = p.common;
  const Layout& layout = c.layout;
  const Packet* packet = sender.Kept(item.source, item.slot);
  const int choices = static_cast<int>(device::CountOf(packet->flag));
  const uint64_t start = trace.Start();
  Choice mine = device::Lane() < choices ? packet->choices()[device::Lane()] : Choice{};
  if (!p.weighted) mine.weight = 1.0F;
  const CombineSender::Token to = {item.source, TokenOf(device::Shuffle(mine.origin, 0)),
                                   c.kept.source_offsets[item.source] + item.slot};
  const device::RowPart columns =
      device::PartOfRow(item.part, layout.combine_parts, layout.combine_vecs);
  if constexpr (kRows == CombineRows::kChoices) {
    for (int i = 0; i < choices; ++i) {
      const uint32_t origin = device::Shuffle(mine.origin, i);
      const int row = device::Shuffle(mine.row, i);
      SendRow<Codec>(p, sender.At(to, row, TopkOf(origin)), row, LocalExpertOf(origin), columns);
    }
    sender.PublishChoices(to, mine, choices, item.part);
  } else {
    device::Vec16* dst = sender.At(to, device::Shuffle(mine.row, 0), packet->combine_slot);
    if constexpr (kRows == CombineRows::kReduced) {
      SendRow<Codec>(p, dst, to.token_row, 0, columns);
    } else {
      SendSum<Codec>(p, dst, mine, choices, columns);
    }
    *flag = sender.FlagAt(to, packet->combine_slot, item.part);
  }
  trace.Stop(start, static_cast<uint32_t>(Tag::kCombineSend), static_cast<uint32_t>(item.source));
}

// Returns item(0) to item(n - 1), packet parts, n <= PartsAtOnce.
template <typename Codec, CombineRows kRows, typename Item, typename Trace>
__device__ void SendParts(const CombineParams& p, const CombineSender& sender, int n, Item item,
                          const Trace& trace) {
  uint64_t* mine = nullptr;
  for (int i = 0; i < n; ++i) {
    uint64_t* flag = nullptr;
    SendToken<Codec, kRows>(p, sender, item(i), trace, &flag);
    if (device::Lane() == i) mine = flag;
  }
  if constexpr (kPerRank<kRows>) sender.PublishFlags(mine);
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
  if (device::Lane() < layout.topk) route = c.kept.routes[flat + device::Lane()];
  const device::Destinations from = DestinationsOf(layout, route.expert);
  typename CombineReceiver<kPerRank<kRows>>::Outputs rows = {};
  const bool came = receiver.Await(token, part, from, &rows);
  uint32_t last = device::kNoPeer;
  if constexpr (Trace::kRecords) {
    if (rows.last_lane >= 0) {
      last = static_cast<uint32_t>(device::Shuffle(rows.peer, rows.last_lane));
    }
  }
  trace.Stop(start, static_cast<uint32_t>(Tag::kCombineWait), last);
  if (!came) return false;
  start = trace.Start();
  const float* weights = kPerRank<kRows> ? nullptr : p.topk_weights;
  const device::RowPart columns =
      device::PartOfRow(part, layout.combine_parts, layout.combine_vecs);
  const device::Columns summed = {columns.begin, columns.end, device::kWaveSize};
  const auto sum = [&](auto row) {
    device::SumRows<Codec, kReceiveVecs, kReceiveRows>(
        device::RowOf(p.y, token, layout.combine_vecs),
        device::WeightedRows{
            layout.combine_slots, rows.present, row,
            [&](int slot) { return weights != nullptr ? weights[flat + slot] : 1.0F; }},
        static_cast<const device::Vec16*>(p.bias), summed);
  };
  if constexpr (kPull) {
    const uint64_t mine = receiver.PulledFrom(route, from);
    sum([&](int slot) {
      return reinterpret_cast<const device::Vec16*>(device::Shuffle(mine, slot));
    });
  } else {
    const device::Vec16* vecs = receiver.Rows(token);
    sum([&](int slot) { return device::RowOf(vecs, slot, layout.combine_vecs); });
  }
  device::MarkStored(p.departures, token, summed);
  trace.Stop(start, static_cast<uint32_t>(Tag::kReduce), static_cast<uint32_t>(token));
  return true;
}

}  // namespace octet::high_throughput

#endif  // OCTET_KERNELS_HIGH_THROUGHPUT_COMBINE_TOKEN_H_
