// The protocol of `high_throughput`: what ranks write into one another's memory, in which order,
// and the functions that do it. The kernels dispatch.hip and combine.hip call these functions.
// dispatch_layout.h computes the counts, and from all ranks' counts the destination offset of every
// token, before the first row is sent.
//
//   rank s                                     rank d, whose heap it is (layout.h)
//   ------                                     -----------------------------------
//   CountExchange::Announce ─────────────────► counts[s][C]           rows to each expert, tokens
//   DispatchSender::RowAt, ScalesAt ─────────► rows[offset]           a token, once
//   DispatchSender::StoreChoice ─────────────► packets[s][slot]       its choices on d
//   DispatchSender::Publish ─────────────────► packets[s][slot].flag  epoch, number of choices
//   CombineSender::At, with CombineMethod::kPush
//                                  ──────────► combine_rows[token][slot]
//   CombineSender::At, with kPull: s's own rows[...], where d loads them from
//   CombineSender::PublishFlags ─────────────► combine_flags[token][part][slot]
//   device::GiveCredits ─────────────────────► dispatch_credits[s], combine_credits[s]
//
// Flags. Every flag, count and credit holds the epoch of a call. A wait for epoch n ends at n or
// more. Flags are never reset.
//
// Units. A token crosses the link once for each of its ranks, directly to the destination offset
// where the caller reads it. If it has several choices there, it goes to the offset of the first,
// and the receiver copies it to the others (or, with token_major, only records where it is).
// Outputs return in parts of rows, one row for each token and rank (per_rank) or for each choice
// (flat).
//
// Credits. All memory except the counts exists once. A rank stores a row of call n only after all
// ranks have said that they are done with call n - 1: in dispatch by their counts or, with a kept
// layout, by their dispatch credits (CountExchange::AwaitSameLayout); in combine by
// combine_credits. So received data does not change until this rank sends its next call. Received
// rows belong to the caller: grouped GEMMs read them in place.
//
// Kept packets. A receiver keeps each packet in its own memory (Keep). Combine and later calls with
// the same layout need them.
//
// Callers. Each function is for one wave, all of whose lanes call it together with the same
// arguments, unless its comment says otherwise.
//
// Memory order. Publish releases at system scope the earlier stores of the calling wave, and those
// of its block if device::SyncBlockStores came between; copies of a BulkMover need its Finish
// first. Await acquires at system scope for the calling wave; a BulkMover needs Acquired before it
// reads the received data. A failed wait has already been reported (runtime/device/wait.h); the
// data that it guards must not be accessed.
#ifndef OCTET_KERNELS_HIGH_THROUGHPUT_PROTOCOL_H_
#define OCTET_KERNELS_HIGH_THROUGHPUT_PROTOCOL_H_

#include <cstdint>

#include "device_ops.h"
#include "kernels/ep/device/counts.h"
#include "kernels/ep/device/routing_device.h"
#include "kernels/ep/device/token_packet_device.h"
#include "kernels/high_throughput/kernels.h"
#include "kernels/high_throughput/phase.h"
#include "runtime/device/epoch.h"
#include "runtime/device/wait.h"

namespace octet::high_throughput {

// Exchanges what ranks must know before the first row of dispatch `epoch` is sent: all counts or,
// with a kept layout, that all ranks use the same one.
class CountExchange {
 public:
  __device__ __forceinline__ CountExchange(const CommonParams& c, uint64_t epoch)
      : c_(c), epoch_(epoch) {}

  // Announces this rank's count of `column` to all ranks. The caller must have released at system
  // scope what a count says to peers: that this rank is done with all previous calls. This rank's
  // own word also guards what this GPU stored before, at device scope.
  __device__ __forceinline__ void Announce(int column, int32_t total) const {
    const Layout& layout = c_.layout;
    const int peer = device::Lane();
    const auto tell = [&] {
      device::StoreCount(layout.Count(c_.peers.base[peer], epoch_, c_.peers.rank, column), epoch_,
                         total);
    };
    if (peer < layout.num_ranks && peer != c_.peers.rank) tell();
    // For readers of the own count: the sums and the routes of all shares are stored.
    device::FenceAcquire<device::Scope::kDevice>();
    device::SyncWave();
    if (peer == c_.peers.rank) {
      device::FenceRelease<device::Scope::kDevice>();
      tell();
    }
  }

  // One block: waits for all counts. `take(i, count)` is called at least once for each of the
  // [R][C] counts, the last time with its final value. Returns false if some did not arrive.
  template <typename Take>
  __device__ __forceinline__ bool AwaitCounts(Take take) const {
    const Layout& layout = c_.layout;
    const uint64_t* words = layout.Count(c_.peers.base[c_.peers.rank], epoch_, 0, 0);
    if (!device::AwaitCounts(c_,
                             device::CountWords{words, layout.num_ranks, layout.num_counts, epoch_,
                                                Site::kDispatchCount},
                             take)) {
      return false;
    }
    // This rank's own words guard the sums of its columns. The peers' words guard the end of their
    // use of the previous call's rows.
    const int num_words = layout.num_ranks * layout.num_counts;
    for (int i = threadIdx.x; i < num_words; i += blockDim.x) {
      device::AcquirePolled<device::Scope::kSystem>(words + i);
    }
    __syncthreads();
    return true;
  }

  // One block: waits until no rank needs the data that it received before. Returns false if a
  // rank's credit did not arrive or a rank dispatches with another layout than `layout_number`. A
  // rank that is one call ahead has already checked that this rank's layout equals its own.
  __device__ __forceinline__ bool AwaitSameLayout(uint32_t layout_number) const {
    const device::PeerFlags credits = {c_.layout.dispatch_credits,
                                       device::PackEpochCount(epoch_, 0), Site::kLayoutCredit};
    return device::AwaitFlags(c_, credits, nullptr, [&](int peer, uint64_t credit) {
      const uint32_t theirs = device::CountOf(credit);
      if (device::EpochOf(credit) != epoch_ || theirs == layout_number) return true;
      device::Fail(c_.failure, device::FailureKind::kInput, MakeSite(Site::kLayoutsDiffer, peer, 0),
                   layout_number, theirs, 0);
      return false;
    });
  }

 private:
  const CommonParams& c_;
  uint64_t epoch_;
};

// Sends this rank's part of dispatch `epoch`.
class DispatchSender {
 public:
  __device__ __forceinline__ DispatchSender(const CommonParams& c, uint64_t epoch)
      : c_(c), epoch_(epoch) {}

  // Return the destinations on `rank` of the row with this destination offset and of its scales.
  // Any thread may store any piece.
  __device__ __forceinline__ device::Vec16* RowAt(int rank, int offset) const {
    return reinterpret_cast<device::Vec16*>(c_.layout.Row(c_.row_bases[rank], offset));
  }
  __device__ __forceinline__ uint32_t* ScalesAt(int rank, int offset) const {
    return c_.layout.Scales(c_.row_bases[rank], offset);
  }

  // Each lane with its choice: stores the choices into the packets on the token's ranks. `slot`: of
  // the token on this lane's rank.
  __device__ __forceinline__ void StoreChoice(const device::Destinations& to, int slot,
                                              const Choice& choice) const {
    if (to.rank < 0) return;
    Packet* packet = PacketAt(to.rank, slot);
    packet->choices()[to.index()] = choice;
    if (to.index() == 0) packet->combine_slot = to.slot();
  }

  // With the same arguments: publishes the token on all of its ranks. One release covers all of
  // them; the flags after it are relaxed, since a second release would wait until the first flag
  // has reached the peer.
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

// Sends rows that announce their arrival one by one, for dispatch `epoch`. All choices of a token
// on a rank are announced, each with its own row, but its elements are sent to one of those rows
// only, the holder. The holder comes first in expert order.
//
// A row's word is no promise that its holder has arrived: the two may be sent by different waves.
class RowSender {
 public:
  __device__ __forceinline__ RowSender(const CommonParams& c, uint64_t epoch)
      : c_(c), epoch_(epoch) {}

  // Describes a row to its rank. Any thread.
  __device__ __forceinline__ void Describe(int rank, int row, const RowOrigin& origin) const {
    *c_.layout.RowOriginOf(c_.peers.base[rank], row) = origin;
  }

  // Announces the rows that the wave has described and sent, one for each lane; -1 in lanes without
  // one. `combine_slot`: of the lane's token, with CombineOrder::kPerRank.
  __device__ __forceinline__ void Announce(int rank, int row, int combine_slot) const {
    device::SyncWave();
    if (row < 0) return;
    // By each lane, since each stores a flag.
    device::FenceRelease<device::Scope::kSystem>();
    device::StoreRelaxed<device::Scope::kSystem>(
        c_.layout.RowArrival(c_.peers.base[rank], row),
        device::PackEpochCount(epoch_, static_cast<uint32_t>(combine_slot)));
  }

 private:
  const CommonParams& c_;
  uint64_t epoch_;
};

// Receives such rows.
class RowReceiver {
 public:
  __device__ __forceinline__ RowReceiver(const CommonParams& c, uint64_t epoch)
      : c_(c), epoch_(epoch) {}

  // Waits for the row of each lane; -1 in lanes without one. `source(row)`: the rank that sends it.
  // Returns false if some did not arrive. `*combine_slot`: what was announced with the lane's row.
  // `*last_lane`: whose row was waited for last; stays as it is if all had arrived.
  template <typename Source>
  __device__ __forceinline__ bool Await(int row, Source source, int* combine_slot,
                                        int* last_lane) const {
    // Lanes without a row look at the first one's word, whatever it holds: nvcc 13.0 loads from
    // null in their place.
    const uint64_t* word = c_.layout.RowArrival(c_.peers.base[c_.peers.rank], row >= 0 ? row : 0);
    const uint64_t expected = row >= 0 ? device::PackEpochCount(epoch_, 0) : 0;
    uint64_t seen = device::LoadRelaxed<device::Scope::kSystem>(word);
    int last = -1;
    if (device::Ballot(seen < expected) == 0) {
      device::AcquirePolled<device::Scope::kSystem>(word);
      device::SyncWave();
    } else if (!device::WaveWaitEpochs(c_.failure, word, expected,
                                       MakeSite(Site::kRowArrival, row >= 0 ? source(row) : -1,
                                                static_cast<uint32_t>(row)),
                                       &last, nullptr, &seen)) {
      return false;
    }
    if (last >= 0) *last_lane = last;
    *combine_slot = static_cast<int>(device::CountOf(seen));
    return true;
  }

  // After Await: what the row says of itself. Any thread.
  __device__ __forceinline__ RowOrigin OriginOf(int row) const {
    return *c_.layout.RowOriginOf(c_.peers.base[c_.peers.rank], row);
  }

  // Keeps a row's choice, and with a token's first choice also what they have in common. Any
  // thread.
  __device__ __forceinline__ void Keep(int row, const RowOrigin& origin, int combine_slot) const {
    const uint32_t place = origin.place;
    Packet* kept = c_.layout.PacketOf(c_.kept.packets, SourceOfPlace(place), SlotOfPlace(place));
    kept->choices()[IndexOfPlace(place)] = {row, origin.weight, origin.origin};
    if (IndexOfPlace(place) != 0) return;
    kept->flag = device::PackEpochCount(epoch_, static_cast<uint32_t>(ChoicesOfPlace(place)));
    kept->combine_slot = combine_slot;
  }

 private:
  const CommonParams& c_;
  uint64_t epoch_;
};

// Receives this rank's part of dispatch `epoch`.
class DispatchReceiver {
 public:
  // The result of a wait for a token.
  struct Arrival {
    const Packet* packet;
    int choices;  // that it has on this rank; 0: it did not arrive
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

  // Returns this lane's choice of a token that has arrived. The token's row is at the offset of the
  // first choice (lane 0) or, with token_major, at that of the token.
  __device__ __forceinline__ Choice ChoiceOf(const Arrival& token) const {
    return device::Lane() < token.choices ? token.packet->choices()[device::Lane()] : Choice{};
  }

  // Return a row of this rank and its scales. Any thread.
  __device__ __forceinline__ device::Vec16* RowAt(int offset) const {
    return reinterpret_cast<device::Vec16*>(c_.layout.Row(c_.row_bases[c_.peers.rank], offset));
  }
  __device__ __forceinline__ uint32_t* ScalesAt(int offset) const {
    return c_.layout.Scales(c_.row_bases[c_.peers.rank], offset);
  }

  // After Await: keeps the packet. `mine`: this lane's choice.
  __device__ __forceinline__ void Keep(int source, int slot, const Arrival& token,
                                       const Choice& mine) const {
    Packet* kept = c_.layout.PacketOf(c_.kept.packets, source, slot);
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
  // A token whose outputs are returned.
  struct Token {
    int source;     // its origin
    int token;      // on that rank
    int token_row;  // its slot, counted over all sources
  };

  __device__ __forceinline__ CombineSender(const CommonParams& c, uint64_t epoch)
      : c_(c), epoch_(epoch) {}

  // Any thread: returns the kept packet of token `slot` of `source`.
  __device__ __forceinline__ const Packet* Kept(int source, int slot) const {
    return c_.layout.PacketOf(c_.kept.packets, source, slot);
  }

  // Any thread: returns the destination of an output, at its origin or, until it is pulled, on this
  // rank. `choice_row`: the row of the output's first choice; `combine_slot`: k (flat) or
  // Packet::combine_slot.
  __device__ __forceinline__ device::Vec16* At(const Token& to, int choice_row,
                                               int combine_slot) const {
    const Layout& layout = c_.layout;
    return reinterpret_cast<device::Vec16*>(
        layout.pull ? layout.PulledRow(c_.row_bases[c_.peers.rank], choice_row, to.token_row)
                    : layout.CombineRow(c_.peers.base[to.source], to.token, combine_slot));
  }

  // Any thread: returns the flag of part `part` of that output.
  __device__ __forceinline__ uint64_t* FlagAt(const Token& to, int combine_slot, int part) const {
    return c_.layout.CombineFlag(c_.peers.base[to.source], to.token, combine_slot, part);
  }

  // Publishes all outputs that the wave has stored, by the flag of each lane that has one, else
  // null.
  __device__ __forceinline__ void PublishFlags(uint64_t* flag) const {
    device::WavePublishFlags(flag, epoch_);
  }

  // Any thread: publishes part `part` of a choice's output, which has been stored at its origin by
  // stores that the caller has released at system scope.
  __device__ __forceinline__ void PublishStored(const Token& to, const Choice& mine,
                                                int part) const {
    device::StoreRelaxed<device::Scope::kSystem>(FlagAt(to, TopkOf(mine.origin), part), epoch_);
  }

  // Publishes part `part` of the outputs of all `choices` of the token, of which each lane has one,
  // with one release for all of them.
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
  const CommonParams& c_;
  uint64_t epoch_;
};

// Receives this rank's part of combine `epoch`: rows for its own tokens. kPerRank: one row for each
// of a token's ranks, in the order of ranks, else one for each of its choices.
template <bool kPerRank>
class CombineReceiver {
 public:
  // One token's rows.
  struct Outputs {
    uint32_t present;  // a bit for each slot that has a row
    int peer;          // the rank that returns the row of this lane's slot
    int last_lane;     // the slot that was missing last; -1 if none was
  };

  __device__ __forceinline__ CombineReceiver(const CommonParams& c, uint64_t epoch)
      : c_(c), epoch_(epoch) {}

  // Waits for part `part` of all rows of `token`, which went to the ranks `from`. Returns false if
  // some did not arrive.
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

  // After Await, with kPush: returns the [S] rows of `token`, in place.
  __device__ __forceinline__ const device::Vec16* Rows(int token) const {
    return reinterpret_cast<const device::Vec16*>(
        c_.layout.CombineRow(c_.peers.base[c_.peers.rank], token, 0));
  }

  // After Await, with kPull: returns the address of the row for the calling lane's slot, on the
  // rank where it waits. `route`: of this lane's choice.
  __device__ __forceinline__ uint64_t PulledFrom(const Route& route,
                                                 const device::Destinations& from) const {
    uint64_t mine = 0;
    if (from.rank >= 0) {
      mine = reinterpret_cast<uint64_t>(c_.layout.PulledRow(
          c_.row_bases[from.rank], route.row, c_.kept.first_slots[from.rank] + route.slot));
    }
    if constexpr (!kPerRank) return mine;
    // The first choice on each rank, in the order of ranks.
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
