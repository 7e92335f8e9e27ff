// The protocol of `direct`: what ranks write into one another's memory, in which order, and the
// functions that do it. The kernels dispatch.hip and combine.hip call these functions; they give
// the blocks of one grid the roles of senders and receivers.
//
//   rank s                                    rank d, whose heap it is (layout.h)
//   ------                                    -----------------------------------
//   DispatchSender::Announce ───────────────► counts[s][L]         rows to each expert of d
//   DispatchSender::Send ───────────────────► rows[s][slot]        then
//                                             packets[s][slot]     origin, then its flag
//   DispatchSender::AnnounceEnd ────────────► source_flags[s]      with Flags::kSource only
//   CombineSender::At ... Publish ──────────► combine_rows[token·K + k], then its combine_flags
//   CombineSender::AnnounceEnd ─────────────► combine_source_flags[s]
//   ReturnCredits ──────────────────────────► dispatch_credits[s], combine_credits[s]
//
// Flags. Every flag holds the epoch of the last call that set it. A wait for epoch n ends when the
// flag is n or more. Flags are never reset. A count holds an epoch and a number in one word; counts
// alternate between two buffers by the parity of the epoch.
//
// Units. Parts of rows are sent, awaited and returned: PartOfRow(part, row_parts). With
// Flags::kToken each part has its own flag. With Flags::kSource one flag covers everything that a
// source sends in a call; receivers call AwaitSources once, before the first Await.
//
// Credits. Rows, packets and combine rows exist once. A sender of call n writes them only when each
// peer has returned its credit for call n - 1 (device::Credits over Layout::dispatch_credits or
// combine_credits, awaited before the first Send or At). A rank returns its credit in the next call
// that it sends. Until then, received data does not change and rows may be read in place. Counts
// need no credit, since a source is at most one call ahead.
//
// Callers. Each function is for one thread, one wave or one block, as its comment says. All lanes
// or threads call it together, with the same arguments.
//
// Memory order. Send and Publish release at system scope the earlier stores of the calling wave,
// and those of other waves of its block if device::SyncBlockStores came between. Await acquires at
// system scope, so that the calling wave may read the row and its packet. AnnounceEnd releases the
// stores of all senders before device::LastBlock. Announce orders nothing, since a count guards no
// other data. A failed wait has already been reported (runtime/device/wait.h); the data that it
// guards must not be accessed.
#ifndef OCTET_KERNELS_DIRECT_PROTOCOL_H_
#define OCTET_KERNELS_DIRECT_PROTOCOL_H_

#include <cstdint>

#include "device_ops.h"
#include "kernels/direct/kernels.h"
#include "kernels/ep/device/counts.h"
#include "kernels/ep/device/credits.h"
#include "kernels/ep/device/row_copy.h"
#include "runtime/device/wait.h"

namespace octet::direct {

using device::MakeSite;

// One block: tells every peer that this rank has consumed everything that it was sent up to these
// dispatches and combines.
__device__ inline void ReturnCredits(const CommonParams& c, uint64_t dispatches,
                                     uint64_t combines) {
  device::GiveCredits(c, c.layout.dispatch_credits, dispatches);
  device::GiveCredits(c, c.layout.combine_credits, combines, /*fence=*/false);
}

// A row in transit to the rank of its expert.
struct Outgoing {
  int rank;        // of the expert
  int slot;        // among this rank's rows to that rank
  uint32_t index;  // among this rank's rows to that expert
  RowSource source;
};

// Sends this rank's part of dispatch `epoch`.
class DispatchSender {
 public:
  __device__ __forceinline__ DispatchSender(const CommonParams& c, uint64_t epoch)
      : c_(c), epoch_(epoch) {}

  // One thread: announces `rows` rows to expert `expert`, which may be on any rank.
  __device__ __forceinline__ void Announce(int expert, int rows) const {
    const Layout& layout = c_.layout;
    const int rank = layout.experts().RankOf(expert);
    device::StoreCount(layout.Count(c_.peers.base[rank], epoch_, c_.peers.rank,
                                    layout.experts().LocalExpert(expert, rank)),
                       epoch_, rows);
  }

  // One wave: sends part `part` of the row at `from`.
  __device__ __forceinline__ void Send(const Outgoing& row, const device::Vec16* from,
                                       int part) const {
    const Layout& layout = c_.layout;
    char* base = c_.peers.base[row.rank];
    device::WaveCopyRow(reinterpret_cast<device::Vec16*>(layout.Row(base, c_.peers.rank, row.slot)),
                        from, device::PartOfRow(part, layout.row_parts, layout.row_vecs));
    Packet* packet = layout.PacketOf(base, c_.peers.rank, row.slot, part);
    if (device::Lane() == 0) {
      packet->index = row.index;
      packet->source = row.source;
    }
    if (!c_.source_flags) device::WavePublish(&packet->flag, epoch_);
  }

  // All threads of the last sending block, after device::LastBlock, with Flags::kSource: tells
  // every rank that all rows have been sent. Does nothing if the rank has failed, since some rows
  // may not have been sent.
  __device__ __forceinline__ void AnnounceEnd() const {
    if (c_.source_flags && static_cast<int>(threadIdx.x) < c_.layout.num_ranks &&
        !device::HasFailed(c_.failure)) {
      device::StoreRelease<device::Scope::kSystem>(
          FlagOf(c_.peers.base[threadIdx.x], c_.layout.source_flags, c_.peers.rank), epoch_);
    }
  }

 private:
  const CommonParams& c_;
  uint64_t epoch_;
};

// Receives this rank's part of dispatch `epoch`.
class DispatchReceiver {
 public:
  // A part of a row that has arrived, in the buffer that its source has stored it to.
  struct Arrival {
    RowSource source;
    int index;                 // among its source's rows to its expert
    const device::Vec16* row;  // the whole row
    device::RowPart part;      // the part
  };

  __device__ __forceinline__ DispatchReceiver(const CommonParams& c, uint64_t epoch)
      : c_(c), epoch_(epoch) {}

  // One block: waits until all sources have announced their rows. `take(local_expert, source,
  // rows)` is called at least once for each pair, the last time with the final count. Returns false
  // if the counts of a source did not arrive. `last` is set to the source that was missing last; it
  // is unchanged if none was.
  template <typename Take>
  __device__ __forceinline__ bool AwaitCounts(Take take, uint32_t* last) const {
    const Layout& layout = c_.layout;
    return device::AwaitCounts(
        c_,
        device::CountWords{layout.Count(c_.peers.base[c_.peers.rank], epoch_, 0, 0),
                           layout.num_ranks, layout.num_local_experts, epoch_,
                           Site::kDispatchCount},
        [&](int i, uint32_t count) {
          const int source = layout.experts().RankOf(i);  // counts are in the order of experts
          take(layout.experts().LocalExpert(i, source), source, static_cast<int32_t>(count));
        },
        last);
  }

  // One block: with Flags::kSource, waits until all sources have sent all their rows. Otherwise
  // does not wait. `last` as above.
  __device__ __forceinline__ bool AwaitSources(uint32_t* last) const {
    return !c_.source_flags ||
           device::AwaitFlags(
               c_, device::PeerFlags{c_.layout.source_flags, epoch_, Site::kDispatchSource}, last);
  }

  // One thread: reports that a source has announced more rows than there is room for, since some of
  // its ids were refused. Nobody may wait for row `slot` then.
  __device__ __forceinline__ void GiveUp(int source, int slot) const {
    device::Fail(c_.failure, device::FailureKind::kReleased,
                 MakeSite(Site::kDispatchRow, source, static_cast<uint32_t>(slot)), epoch_, 0, 0);
  }

  // One wave: waits for part `part` of row `slot` of `source`. Returns false if it did not arrive.
  __device__ __forceinline__ bool Await(int source, int slot, int part) const {
    return c_.source_flags ||
           device::WaveWaitEpoch(c_.failure, &PacketAt(source, slot, part)->flag, epoch_,
                                 MakeSite(Site::kDispatchRow, source, static_cast<uint32_t>(slot)));
  }

  // After Await: returns the part in place, without a copy.
  __device__ __forceinline__ Arrival Take(int source, int slot, int part) const {
    const Layout& layout = c_.layout;
    const Packet* packet = PacketAt(source, slot, part);
    char* base = c_.peers.base[c_.peers.rank];
    return Arrival{packet->source, static_cast<int>(packet->index),
                   reinterpret_cast<const device::Vec16*>(layout.Row(base, source, slot)),
                   device::PartOfRow(part, layout.row_parts, layout.row_vecs)};
  }

 private:
  __device__ __forceinline__ const Packet* PacketAt(int source, int slot, int part) const {
    return c_.layout.PacketOf(c_.peers.base[c_.peers.rank], source, slot, part);
  }

  const CommonParams& c_;
  uint64_t epoch_;
};

// Sends this rank's part of combine `epoch`: returns the outputs of its experts to the origins of
// their rows.
class CombineSender {
 public:
  __device__ __forceinline__ CombineSender(const CommonParams& c, uint64_t epoch)
      : c_(c), epoch_(epoch) {}

  // Returns the destination of the output for the row with this origin. Any thread may store any
  // piece of it.
  __device__ __forceinline__ device::Vec16* At(const RowSource& origin) const {
    return reinterpret_cast<device::Vec16*>(
        c_.layout.CombineRow(c_.peers.base[origin.rank], Flat(origin)));
  }

  // One wave: publishes part `part` of that output.
  __device__ __forceinline__ void Publish(const RowSource& origin, int part) const {
    if (c_.source_flags) return;
    device::WavePublish(c_.layout.CombineFlag(c_.peers.base[origin.rank], Flat(origin), part),
                        epoch_);
  }

  // As DispatchSender::AnnounceEnd.
  __device__ __forceinline__ void AnnounceEnd() const {
    if (c_.source_flags && static_cast<int>(threadIdx.x) < c_.layout.num_ranks &&
        !device::HasFailed(c_.failure)) {
      device::StoreRelease<device::Scope::kSystem>(
          FlagOf(c_.peers.base[threadIdx.x], c_.layout.combine_source_flags, c_.peers.rank),
          epoch_);
    }
  }

 private:
  __device__ __forceinline__ int Flat(const RowSource& origin) const {
    return origin.token * c_.layout.topk + origin.k;
  }

  const CommonParams& c_;
  uint64_t epoch_;
};

// Receives this rank's part of combine `epoch`: the outputs for its own tokens.
class CombineReceiver {
 public:
  // The outputs of one token.
  struct Outputs {
    uint64_t present;  // bit k: choice k was not dropped
    int last_k;        // the choice that was missing last; -1 if none was
  };

  __device__ __forceinline__ CombineReceiver(const CommonParams& c, uint64_t epoch)
      : c_(c), epoch_(epoch) {}

  // As DispatchReceiver::AwaitSources.
  __device__ __forceinline__ bool AwaitSources(uint32_t* last) const {
    return !c_.source_flags ||
           device::AwaitFlags(
               c_, device::PeerFlags{c_.layout.combine_source_flags, epoch_, Site::kCombineSource},
               last);
  }

  // One wave: waits for part `part` of all outputs of `token`, whose choices are `topk_idx[token]`.
  // Returns false if some did not arrive.
  __device__ __forceinline__ bool Await(const int32_t* topk_idx, int token, int part,
                                        Outputs* outputs) const {
    const Layout& layout = c_.layout;
    const int flat = token * layout.topk + device::Lane();
    const int32_t id = device::Lane() < layout.topk ? topk_idx[flat] : -1;
    const bool mine = layout.experts().IsExpert(id);
    outputs->present = device::Ballot(mine);
    outputs->last_k = -1;
    if (c_.source_flags) return true;
    const int peer = mine ? layout.experts().RankOf(id) : 0;
    const uint64_t* flag =
        mine ? layout.CombineFlag(c_.peers.base[c_.peers.rank], flat, part) : nullptr;
    return device::WaveWaitEpochs(c_.failure, flag, epoch_,
                                  MakeSite(Site::kCombineRow, peer, static_cast<uint32_t>(token)),
                                  &outputs->last_k);
  }

  // After Await: returns the outputs of `token`, [K] rows, in place.
  __device__ __forceinline__ const device::Vec16* Rows(int token) const {
    const Layout& layout = c_.layout;
    return reinterpret_cast<const device::Vec16*>(
        layout.CombineRow(c_.peers.base[c_.peers.rank], token * layout.topk));
  }

 private:
  const CommonParams& c_;
  uint64_t epoch_;
};

}  // namespace octet::direct

#endif  // OCTET_KERNELS_DIRECT_PROTOCOL_H_
