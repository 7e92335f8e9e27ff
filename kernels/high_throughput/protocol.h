// The protocol of `high_throughput`: what ranks write into one another's memory, in which order,
// and the verbs that do it. dispatch.hip and combine.hip schedule roles over these verbs;
// dispatch_layout.h exchanges the counts that tell every token its place before the first row
// moves.
//
//   rank s                                     rank d, whose heap it is (layout.h)
//   ------                                     -----------------------------------
//   SumColumns (dispatch_layout.h) ──────────► counts[s][C]           rows to each expert, tokens
//   DispatchSender::RowAt, ScalesAt ─────────► rows[place]            a token once, in its place
//   DispatchSender::StoreChoice ─────────────► packets[s][slot]       its choices on d
//   DispatchSender::Publish ─────────────────► packets[s][slot].flag  epoch, number of choices
//   CombineSender::At, with CombineMethod::kPush
//                                  ──────────► combine_rows[token][slot]
//   CombineSender::At, with kPull: s's own rows[...], where d loads them from
//   CombineSender::Publish ──────────────────► combine_flags[token][part][slot]
//   device::GiveCredits ─────────────────────► dispatch_credits[s], combine_credits[s]
//
// Flags. Every flag, count and credit holds the epoch of a call, its number; waiting for epoch n
// ends at n or more. Nothing is ever set back.
//
// Units. A token crosses once for each of its ranks, straight to the place where the caller finds
// it; of several choices there it takes the place of the first, and the receiver copies it to the
// others (or, with token_major, only says where it is). Outputs come back in parts of rows, one row
// for each token and rank (per_rank) or for each choice (flat).
//
// Credits. All memory but the counts exists once. Nobody stores a row of call n before all ranks
// have said that they are done with call n - 1: by their counts, or, with a layout that is kept, by
// their dispatch credits (AwaitSameLayout); in combine by combine_credits. So what has been awaited
// stays as it is until this rank sends its next call. Received rows belong to the caller: grouped
// GEMMs read them in place.
//
// Kept packets. A receiver keeps each packet in its own memory (Keep): what combine needs of the
// dispatch, and later calls with the same layout.
//
// Callers. Every verb is for one wave, all of whose lanes call it together with the same arguments,
// unless it says otherwise.
//
// Memory order. Publish releases at system scope what the calling wave has stored before, and what
// its block has stored if device::SyncBlockStores came between; copies of a BulkMover first need
// its Finish. Await acquires at system scope for the calling wave; before a BulkMover reads what
// has come it needs Acquired. A wait that fails has been reported (runtime/device/wait.h); what it
// guards must not be touched.
#ifndef OCTET_KERNELS_HIGH_THROUGHPUT_PROTOCOL_H_
#define OCTET_KERNELS_HIGH_THROUGHPUT_PROTOCOL_H_

#include <cstdint>

#include "device_ops.h"
#include "kernels/device/routing_device.h"
#include "kernels/device/token_packet_device.h"
#include "kernels/high_throughput/kernels.h"
#include "kernels/high_throughput/phase.h"
#include "runtime/device/epoch.h"
#include "runtime/device/wait.h"

namespace octet::high_throughput {

// What this rank sends in dispatch `epoch`.
class DispatchSender {
 public:
  __device__ __forceinline__ DispatchSender(const CommonParams& c, uint64_t epoch)
      : c_(c), epoch_(epoch) {}

  // Where a row with this place goes on `rank`, and its scales. Any thread may store any piece.
  __device__ __forceinline__ device::Vec16* RowAt(int rank, int place) const {
    return reinterpret_cast<device::Vec16*>(c_.layout.Row(c_.row_bases[rank], place));
  }
  __device__ __forceinline__ uint32_t* ScalesAt(int rank, int place) const {
    return c_.layout.Scales(c_.row_bases[rank], place);
  }

  // Each lane with its choice: tells each of the token's ranks where it is to be found there.
  // `slot`: of the token on this lane's rank.
  __device__ __forceinline__ void StoreChoice(const device::Destinations& to, int slot,
                                              const Choice& choice) const {
    if (to.rank < 0) return;
    Packet* packet = PacketAt(to.rank, slot);
    packet->choices()[to.index()] = choice;
    if (to.index() == 0) packet->combine_slot = to.slot();
  }

  // With the same arguments: the token is there, on all of its ranks. One release for all of them;
  // the flags after it are relaxed, since a second release would wait for the first flag's way to
  // the peer.
  __device__ __forceinline__ void Publish(const device::Destinations& to, int slot) const {
    device::SyncWave();
    if (device::Lane() == 0) device::FenceRelease<device::Scope::kSystem>();
    const int copies = to.copies();
    const int choices = __popc(to.choices);
    for (int i = 0; i < copies; ++i) {
      const int lane = to.LaneOfCopy(i);
      const int rank = device::Shuffle(to.rank, lane);
      const int rank_slot = device::Shuffle(slot, lane);
      const int n = device::Shuffle(choices, lane);
      if (device::Lane() != 0) continue;
      device::StoreRelaxed<device::Scope::kSystem>(
          &PacketAt(rank, rank_slot)->flag,
          device::PackEpochCount(epoch_, static_cast<uint32_t>(n)));
    }
  }

 private:
  __device__ __forceinline__ Packet* PacketAt(int rank, int slot) const {
    return c_.layout.PacketOf(c_.peers.base[rank] + c_.layout.packets, c_.peers.rank, slot);
  }

  const CommonParams& c_;
  uint64_t epoch_;
};

// What this rank receives in dispatch `epoch`.
class DispatchReceiver {
 public:
  // A token that was waited for.
  struct Arrival {
    const Packet* packet;
    int choices;  // that it has here; 0: it did not come
  };

  __device__ __forceinline__ DispatchReceiver(const CommonParams& c, uint64_t epoch)
      : c_(c), epoch_(epoch) {}

  // Waits for token `slot` of `source`.
  __device__ __forceinline__ Arrival Await(int source, int slot) const {
    const Packet* packet =
        c_.layout.PacketOf(c_.peers.base[c_.peers.rank] + c_.layout.packets, source, slot);
    return {packet, device::WaveAwaitPacket(
                        c_.failure, packet, epoch_,
                        MakeSite(Site::kDispatchPacket, source, static_cast<uint32_t>(slot)))};
  }

  // This lane's choice of a token that has come. The token's row is in the place of the first one
  // (lane 0), or, with token_major, in that of the token.
  __device__ __forceinline__ Choice ChoiceOf(const Arrival& token) const {
    return device::Lane() < token.choices ? token.packet->choices()[device::Lane()] : Choice{};
  }

  // A row of this rank, and its scales. Any thread.
  __device__ __forceinline__ device::Vec16* RowAt(int place) const {
    return reinterpret_cast<device::Vec16*>(c_.layout.Row(c_.row_bases[c_.peers.rank], place));
  }
  __device__ __forceinline__ uint32_t* ScalesAt(int place) const {
    return c_.layout.Scales(c_.row_bases[c_.peers.rank], place);
  }

  // After Await: keeps the packet. `mine`: this lane's choice.
  __device__ __forceinline__ void Keep(int source, int slot, const Arrival& token,
                                       const Choice& mine) const {
    Packet* kept = c_.layout.PacketOf(c_.kept.packets, source, slot);
    if (device::Lane() < token.choices) kept->choices()[device::Lane()] = mine;
    if (device::Lane() == 0) {
      // The flag itself is not among what it guards: what it said is kept, not read again.
      kept->flag = device::PackEpochCount(epoch_, static_cast<uint32_t>(token.choices));
      kept->combine_slot = token.packet->combine_slot;
    }
  }

 private:
  const CommonParams& c_;
  uint64_t epoch_;
};

// What this rank returns in combine `epoch`: outputs of its experts for tokens that it has kept.
class CombineSender {
 public:
  // A token that is returned.
  struct Token {
    int source;     // its origin
    int token;      // there
    int token_row;  // its slot, counted over all sources
  };

  __device__ __forceinline__ CombineSender(const CommonParams& c, uint64_t epoch)
      : c_(c), epoch_(epoch) {}

  // Any thread: the kept packet of token `slot` of `source`.
  __device__ __forceinline__ const Packet* Kept(int source, int slot) const {
    return c_.layout.PacketOf(c_.kept.packets, source, slot);
  }

  // Any thread: where an output is to be, at its origin or here until it is pulled. `choice_row`:
  // of the first of the choices that it is of; `combine_slot`: k (flat) or Packet::combine_slot.
  __device__ __forceinline__ device::Vec16* At(const Token& to, int choice_row,
                                               int combine_slot) const {
    const Layout& layout = c_.layout;
    return reinterpret_cast<device::Vec16*>(
        layout.pull ? layout.PulledRow(c_.row_bases[c_.peers.rank], choice_row, to.token_row)
                    : layout.CombineRow(c_.peers.base[to.source], to.token, combine_slot));
  }

  // Part `part` of that output is there.
  __device__ __forceinline__ void Publish(const Token& to, int combine_slot, int part) const {
    device::WavePublish(FlagAt(to, combine_slot, part), epoch_);
  }

  // Part `part` of the outputs of all `choices` of the token are there, of which each lane has one:
  // one release for all of them.
  __device__ __forceinline__ void PublishChoices(const Token& to, const Choice& mine, int choices,
                                                 int part) const {
    device::SyncWave();
    if (device::Lane() == 0) device::FenceRelease<device::Scope::kSystem>();
    for (int i = 0; i < choices; ++i) {
      const int k = TopkOf(device::Shuffle(mine.origin, i));
      if (device::Lane() == 0) {
        device::StoreRelaxed<device::Scope::kSystem>(FlagAt(to, k, part), epoch_);
      }
    }
  }

 private:
  __device__ __forceinline__ uint64_t* FlagAt(const Token& to, int combine_slot, int part) const {
    return c_.layout.CombineFlag(c_.peers.base[to.source], to.token, combine_slot, part);
  }

  const CommonParams& c_;
  uint64_t epoch_;
};

// What comes back to this rank in combine `epoch`: rows for its own tokens. kPerRank: a row for
// each of a token's ranks, in their order, else for each of its choices.
template <bool kPerRank>
class CombineReceiver {
 public:
  // One token's rows.
  struct Outputs {
    uint32_t present;  // a bit for each slot: there is such a row
    int peer;          // of this lane's slot: whose row it is
    int last_lane;     // the slot that was missing last; -1 if none was
  };

  __device__ __forceinline__ CombineReceiver(const CommonParams& c, uint64_t epoch)
      : c_(c), epoch_(epoch) {}

  // Waits for part `part` of all rows of `token`, which went to the ranks `from`. False if some did
  // not come.
  __device__ __forceinline__ bool Await(int token, int part, const device::Destinations& from,
                                        Outputs* rows) const {
    const int lane = device::Lane();
    rows->present = kPerRank ? device::BitsBelow(__popc(from.ranks))
                             : static_cast<uint32_t>(device::Ballot(from.rank >= 0));
    rows->last_lane = -1;
    const bool waits = lane < 32 && ((rows->present >> lane) & 1) != 0;
    rows->peer = kPerRank && waits ? device::NthBit(from.ranks, lane) : from.rank;
    const uint64_t* flag =
        waits ? c_.layout.CombineFlag(c_.peers.base[c_.peers.rank], token, lane, part) : nullptr;
    return device::WaveWaitEpochs(
        c_.failure, flag, epoch_,
        MakeSite(Site::kCombineRow, rows->peer, static_cast<uint32_t>(token)), &rows->last_lane);
  }

  // After Await, with kPush: the rows of `token`, [S] of them, without copying them.
  __device__ __forceinline__ const device::Vec16* Rows(int token) const {
    return reinterpret_cast<const device::Vec16*>(
        c_.layout.CombineRow(c_.peers.base[c_.peers.rank], token, 0));
  }

  // After Await, with kPull: the address of the row for the calling lane's slot, on the rank where
  // it waits. `route`: of this lane's choice.
  __device__ __forceinline__ uint64_t PulledFrom(const Route& route,
                                                 const device::Destinations& from) const {
    uint64_t mine = 0;
    if (from.rank >= 0) {
      mine = reinterpret_cast<uint64_t>(c_.layout.PulledRow(
          c_.row_bases[from.rank], route.row, c_.kept.first_slots[from.rank] + route.slot));
    }
    if constexpr (!kPerRank) return mine;
    // Of each rank the first choice, in the order of the ranks.
    int lane = 0;
    const int slots = __popc(from.ranks);
    for (int slot = 0; slot < slots; ++slot) {
      const uint64_t choices = device::Ballot(from.rank == device::NthBit(from.ranks, slot));
      if (slot == device::Lane()) lane = __ffsll(static_cast<long long>(choices)) - 1;
    }
    return device::Shuffle(mine, lane);
  }

 private:
  const CommonParams& c_;
  uint64_t epoch_;
};

}  // namespace octet::high_throughput

#endif  // OCTET_KERNELS_HIGH_THROUGHPUT_PROTOCOL_H_
