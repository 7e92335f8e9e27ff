// The protocol of `low_latency`: what ranks write into one another's memory, in which order, and
// the functions that do it. The kernels dispatch.hip and combine.hip call these functions.
//
//   rank s                                      rank d, whose heap it is (layout.h)
//   ------                                      -----------------------------------
//   DispatchSender::AnnounceRows, ...Tokens ──► counts[s][L + 1]       rows to each expert, tokens
//   DispatchSender::RowAt, StoreChoice ───────► rows[s][slot]          a token once, and
//                                               packets[s][slot]       its choices on d
//   DispatchSender::Publish ──────────────────► packets[s][slot].flag  epoch, number of choices
//   CombineSender::AnnounceBegin ─────────────► combine_begun[s]       where ranks may be masked
//   CombineSender::ReturnOf ──────────────────► combine_rows[token][slot]
//   CombineSender::Publish ───────────────────► combine_flags[token][slot]
//   device::GiveCredits ──────────────────────► dispatch_credits[s], combine_credits[s]
//
// Flags. Every flag, count and credit holds the epoch of a call. A wait for epoch n ends at n or
// more. Nothing is reset, except that all control memory is reset when masked ranks are included
// again.
//
// Units. A token crosses the link once for each of its ranks; the packet beside it names the
// experts that it goes to there. Outputs return as one row for each token and rank (per_rank), or
// one row for each choice (flat).
//
// Credits. All memory except the credits exists twice, by parity of the epoch, so that two calls
// may be in flight. A sender of call n writes only when each peer has returned its credit for call
// n - 2 (CallBefore; device::Credits over Layout::dispatch_credits or combine_credits). A rank
// returns the credit for a received call in the next call that it sends. Until then, received data
// does not change and rows may be read in place. A masked rank is neither waited for nor sent to:
// `receivers` are the other ranks.
//
// Kept packets. A receiver keeps each packet in its own memory (Keep), with rows in place of
// indices. Combine needs them, even after the next dispatch has begun.
//
// Callers. Each function is for one thread, one wave or one block, as its comment says. All lanes
// or threads call it together, with the same arguments.
//
// Memory order. Publish releases at system scope the earlier stores of the calling thread, and
// those of its block if device::SyncBlockStores came between. Await acquires at system scope for
// the calling wave. The Announce... functions order nothing, since the words that they store guard
// no other data. A failed wait has already been reported, or has masked its rank; the data that it
// guards must not be accessed.
#ifndef OCTET_KERNELS_LOW_LATENCY_PROTOCOL_H_
#define OCTET_KERNELS_LOW_LATENCY_PROTOCOL_H_

#include <cstdint>

#include "device_ops.h"
#include "kernels/ep/device/counts.h"
#include "kernels/ep/device/credits.h"
#include "kernels/ep/device/routing_device.h"
#include "kernels/ep/device/token_packet_device.h"
#include "kernels/low_latency/kernels.h"
#include "kernels/low_latency/phase.h"
#include "runtime/device/mask.h"
#include "runtime/device/wait.h"

namespace octet::low_latency {

// Sends this rank's part of dispatch `epoch`.
class DispatchSender {
 public:
  __device__ __forceinline__ DispatchSender(const CommonParams& c, uint64_t epoch)
      : c_(c), epoch_(epoch) {}

  // One thread: announces `rows` rows to expert `expert` of rank `rank`.
  __device__ __forceinline__ void AnnounceRows(int rank, int expert, int32_t rows) const {
    Announce(rank, c_.layout.experts().LocalExpert(expert, rank), rows);
  }
  // One thread: announces `tokens` tokens to `rank`.
  __device__ __forceinline__ void AnnounceTokens(int rank, int32_t tokens) const {
    Announce(rank, c_.layout.num_local_experts, tokens);
  }

  // Returns the destination of token `slot` among those for `rank`: Layout::Row, for PlainRow or
  // Fp8Row. Any thread may store any piece of it.
  __device__ __forceinline__ char* RowAt(int rank, int slot) const {
    return c_.layout.Row(c_.peers.base[rank], epoch_, c_.peers.rank, slot);
  }

  // One wave, each lane with its choice: stores the choices into the packets on the token's ranks.
  // `slot`: of the token on this lane's rank. Choices that do not fit into a packet are left out;
  // this happens only if an expert is chosen twice.
  __device__ __forceinline__ void StoreChoice(const device::Destinations& to, int slot,
                                              const Choice& choice) const {
    const Layout& layout = c_.layout;
    if (to.rank < 0 || to.index() >= layout.max_choices) return;
    Packet* packet = PacketAt(to.rank, slot);
    packet->choices()[to.index()] = choice;
    if (to.index() == 0) packet->combine_slot = layout.CombineSlot(to.rank, 0, to.slot());
  }

  // One wave, with the same arguments: publishes the token on all of its ranks.
  __device__ __forceinline__ void Publish(const device::Destinations& to, int slot) const {
    if (to.rank < 0 || to.index() != 0) return;
    Packet* packet = PacketAt(to.rank, slot);
    device::FenceRelease<device::Scope::kSystem>();
    const int choices = __popc(to.choices);
    const int stored = choices < c_.layout.max_choices ? choices : c_.layout.max_choices;
    device::StoreRelaxed<device::Scope::kSystem>(
        &packet->flag, device::PackEpochCount(epoch_, static_cast<uint32_t>(stored)));
  }

 private:
  __device__ __forceinline__ void Announce(int rank, int column, int32_t count) const {
    device::StoreCount(c_.layout.Count(c_.peers.base[rank], epoch_, c_.peers.rank, column), epoch_,
                       count);
  }
  __device__ __forceinline__ Packet* PacketAt(int rank, int slot) const {
    return c_.layout.PacketOf(c_.peers.base[rank], epoch_, c_.peers.rank, slot);
  }

  const CommonParams& c_;
  uint64_t epoch_;
};

// Receives this rank's part of dispatch `epoch`. kWatched: ranks may be masked, or waits are
// measured.
template <bool kWatched>
class DispatchReceiver {
 public:
  // The result of a wait for a token.
  struct Arrival {
    const Packet* packet;
    int choices;  // that it has on this rank; 0: it did not arrive
  };

  __device__ __forceinline__ DispatchReceiver(const CommonParams& c, uint64_t epoch)
      : c_(c), epoch_(epoch) {}

  // One block: waits until all sources have announced what they send. `take(source, column, count)`
  // is called at least once for each word, the last time with its final count; column L counts
  // tokens, the other columns rows of the local experts. Returns false if the counts of a source
  // did not arrive. `last` is set to the source that was missing last; it is unchanged if none was.
  template <typename Take>
  __device__ __forceinline__ bool AwaitCounts(Take take, uint32_t* last) const {
    const Layout& layout = c_.layout;
    const uint64_t* words = layout.Count(c_.peers.base[c_.peers.rank], epoch_, 0, 0);
    const int columns = layout.num_counts;
    return device::AwaitCounts<kWatched>(
        c_, device::CountWords{words, layout.num_ranks, columns, epoch_, Site::kDispatchCount},
        [&](int i, uint32_t count) {
          const int source = i / columns;
          take(source, i - source * columns, static_cast<int32_t>(count));
        },
        last);
  }

  // One wave: waits for token `slot` of `source`.
  __device__ __forceinline__ Arrival Await(int source, int slot) const {
    const Packet* packet = c_.layout.PacketOf(c_.peers.base[c_.peers.rank], epoch_, source, slot);
    return {packet, device::WaveAwaitPacket<kWatched>(
                        c_.failure, packet, epoch_,
                        MakeSite(Site::kDispatchPacket, source, static_cast<uint32_t>(slot)))};
  }

  // One wave: returns this lane's choice of a token that has arrived. Its row is an index among the
  // rows of its expert and source.
  __device__ __forceinline__ Choice ChoiceOf(const Arrival& token) const {
    return device::Lane() < token.choices ? token.packet->choices()[device::Lane()] : Choice{};
  }

  // After Await: returns the token's row as it arrived, followed by Layout::Scales.
  __device__ __forceinline__ char* RowAt(int source, int slot) const {
    return c_.layout.Row(c_.peers.base[c_.peers.rank], epoch_, source, slot);
  }

  // One wave, after Await: keeps the packet for combine. `mine`: this lane's choice, with its row
  // on this rank.
  __device__ __forceinline__ void Keep(int source, int slot, const Arrival& token,
                                       const Choice& mine) const {
    const Layout& layout = c_.layout;
    Packet* kept = layout.KeptPacket(c_.kept, source, slot);
    if (device::Lane() < token.choices) kept->choices()[device::Lane()] = mine;
    if (device::Lane() == 0) {
      // The flag does not guard itself, so it is not read again: the value that Await returned is
      // kept.
      kept->flag = device::PackEpochCount(epoch_, static_cast<uint32_t>(token.choices));
      kept->combine_slot = token.packet->combine_slot;
    }
  }

 private:
  const CommonParams& c_;
  uint64_t epoch_;
};

// Sends this rank's part of combine `epoch`: returns its experts' outputs for the tokens that it
// has kept.
class CombineSender {
 public:
  // The destination of an output and its flag, in the memory of its token's origin.
  struct Return {
    device::Vec16* row;
    uint64_t* flag;
  };

  __device__ __forceinline__ CombineSender(const CommonParams& c, uint64_t epoch)
      : c_(c), epoch_(epoch) {}

  // One block: tells `receivers` that this rank is about to return their outputs. If ranks may be
  // masked, every rank waits in each call for a word from every peer, whether or not it expects
  // rows from it. So all ranks notice in the same call that one of them is silent, and nobody
  // mistakes a rank for silent that is only waiting for the silent one.
  __device__ __forceinline__ void AnnounceBegin(uint32_t receivers) const {
    const int peer = static_cast<int>(threadIdx.x);
    if (peer >= c_.peers.num_ranks || !device::HasRank(receivers, peer)) return;
    device::StoreRelaxed<device::Scope::kSystem>(
        FlagOf(c_.peers.base[peer], c_.layout.combine_begun, c_.peers.rank), epoch_);
  }

  // Returns the kept packet of token `slot` of `source`.
  __device__ __forceinline__ const Packet* Kept(int source, int slot) const {
    const Layout& layout = c_.layout;
    return layout.KeptPacket(c_.kept, source, slot);
  }

  // Returns the destination of choice `index` of a packet of `source`; with kPerRank, all of its
  // choices have the same. Any thread may store any piece of the row.
  template <bool kPerRank>
  __device__ __forceinline__ Return ReturnOf(int source, const Packet* packet, int index) const {
    const Layout& layout = c_.layout;
    const uint32_t origin = packet->choices()[index].origin;
    const int slot =
        kPerRank ? packet->combine_slot : layout.CombineSlot(c_.peers.rank, index, TopkOf(origin));
    char* base = c_.peers.base[source];
    return {
        reinterpret_cast<device::Vec16*>(layout.CombineRow(base, epoch_, TokenOf(origin), slot)),
        layout.CombineFlag(base, epoch_, TokenOf(origin), slot)};
  }

  // One thread: publishes the output of this flag.
  __device__ __forceinline__ void Publish(uint64_t* flag) const {
    device::FenceRelease<device::Scope::kSystem>();
    device::StoreRelaxed<device::Scope::kSystem>(flag, epoch_);
  }

 private:
  const CommonParams& c_;
  uint64_t epoch_;
};

// Receives this rank's part of combine `epoch`: rows for its own tokens. kPerRank: one row for each
// of a token's ranks, else one for each of its choices.
template <bool kPerRank, bool kWatched>
class CombineReceiver {
 public:
  // The rows of a token. `present` tells which of them exist; lane i has the slot of row i.
  struct Outputs {
    uint32_t present;
    int slot;
  };

  __device__ __forceinline__ CombineReceiver(const CommonParams& c, uint64_t epoch)
      : c_(c), epoch_(epoch) {}

  // One wave: waits for all rows of a token from ranks that are not in `masked`, and adds to
  // `masked` the ranks that have been masked meanwhile. `id`: the token's choice k in lane k, -1 in
  // all other lanes. Returns false if some rows did not arrive. `last` is set to the rank whose row
  // was missing last; it is unchanged if none was.
  __device__ __forceinline__ bool Await(int token, int32_t id,
                                        device::MaskedInCall<kWatched>& masked, Outputs* rows,
                                        uint32_t* last) const {
    const Layout& layout = c_.layout;
    const device::Destinations from(
        layout.experts().IsExpert(id) ? layout.experts().RankOf(id) : -1, layout.num_ranks);
    const int lane = device::Lane();
    int peer = from.rank;
    if constexpr (kPerRank) {
      if (kWatched && layout.own_slots) {
        peer = lane < kMaxRanks && device::HasRank(from.ranks, lane) ? lane : -1;
      } else {
        const int ranks = __popc(from.ranks);
        peer = lane < ranks ? device::NthBit(from.ranks, lane) : -1;
      }
    }
    rows->slot = kPerRank ? lane : layout.CombineSlot(peer, from.index(), lane);
    const bool waits = peer >= 0 && !masked.Has(peer);
    const uint64_t* flag =
        waits ? layout.CombineFlag(c_.peers.base[c_.peers.rank], epoch_, token, rows->slot)
              : nullptr;
    int last_lane = -1;
    bool newly_masked = false;
    const bool came = device::WaveWaitEpochs<kWatched>(
        c_.failure, flag, epoch_, MakeSite(Site::kCombineRow, peer, static_cast<uint32_t>(token)),
        &last_lane, &newly_masked);
    if (last_lane >= 0) *last = static_cast<uint32_t>(device::Shuffle(peer, last_lane));
    rows->present = static_cast<uint32_t>(device::Ballot(waits && !newly_masked));
    if (device::Ballot(newly_masked) != 0) masked.Look(c_.failure, 0);
    return came;
  }

  // After Await: returns the [S] rows of `token`, in place.
  __device__ __forceinline__ const device::Vec16* Rows(int token) const {
    return reinterpret_cast<const device::Vec16*>(
        c_.layout.CombineRow(c_.peers.base[c_.peers.rank], epoch_, token, 0));
  }

  // One wave: returns the slot of row `row` of Outputs.
  __device__ __forceinline__ int SlotOf(const Outputs& rows, int row) const {
    return kWatched && !kPerRank && c_.layout.own_slots ? device::Shuffle(rows.slot, row) : row;
  }

 private:
  const CommonParams& c_;
  uint64_t epoch_;
};

}  // namespace octet::low_latency

#endif  // OCTET_KERNELS_LOW_LATENCY_PROTOCOL_H_
