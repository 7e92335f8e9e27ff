// The protocol of `direct`: what ranks write into one another's memory, in which order, and the
// verbs that do it. Kernels schedule roles over these verbs: dispatch.hip and combine.hip give
// blocks of one grid the roles of senders and receivers.
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
// Flags. Every flag holds the epoch of the last call that set it, the number of the call; waiting
// for epoch n ends when the flag is n or more. Nothing is ever set back. Counts hold epoch and
// count in one word, and alternate between two places by the parity of the epoch.
//
// Units. What is sent, waited for and returned is a part of a row: PartOfRow(part, row_parts). With
// Flags::kToken each part has a flag of its own. With Flags::kSource one flag covers all that a
// source sends in a call: receivers call AwaitSources once, before the first Await.
//
// Credits. Rows, packets and combine rows exist once. A sender of call n writes them only when
// each peer has returned its credit for call n - 1 (device::Credits over Layout::dispatch_credits
// or combine_credits, waited for before the first Send or At). So what a receiver has awaited
// stays as it is until this rank returns the credit, which it does in the next call that it sends:
// rows may be read where they lie until then. Counts need no credit: a source is at most one call
// ahead.
//
// Callers. A verb is for one thread, one wave or one block, as it says: all of its lanes or threads
// call it together, with the same arguments.
//
// Memory order. Send and Publish release at system scope what the calling wave has stored before,
// and what other waves of its block have stored if device::SyncBlockStores came between. Await
// acquires at system scope: the row and its packet may be read by the calling wave. AnnounceEnd
// releases what all senders have stored before device::LastBlock. Announce orders nothing: counts
// say everything themselves. A wait that fails has been reported (runtime/device/wait.h); what it
// guards must not be touched.
#ifndef OCTET_KERNELS_DIRECT_PROTOCOL_H_
#define OCTET_KERNELS_DIRECT_PROTOCOL_H_

#include <cstdint>

#include "device_ops.h"
#include "kernels/device/counts.h"
#include "kernels/device/credits.h"
#include "kernels/device/row_copy.h"
#include "kernels/direct/kernels.h"
#include "runtime/device/wait.h"

namespace octet::direct {

using device::MakeSite;

// One block tells every peer that this rank has consumed all that it was sent in dispatches and
// combines up to these.
__device__ inline void ReturnCredits(const CommonParams& c, uint64_t dispatches,
                                     uint64_t combines) {
  device::GiveCredits(c, c.layout.dispatch_credits, dispatches);
  device::GiveCredits(c, c.layout.combine_credits, combines, /*fence=*/false);
}

// A row on its way to the rank of its expert.
struct Outgoing {
  int rank;        // of the expert
  int slot;        // among this rank's rows to that one
  uint32_t index;  // among this rank's rows to that expert
  RowSource source;
};

// What this rank sends in dispatch `epoch`.
class DispatchSender {
 public:
  __device__ __forceinline__ DispatchSender(const CommonParams& c, uint64_t epoch)
      : c_(c), epoch_(epoch) {}

  // One thread: expert `expert`, of whatever rank, gets `rows` rows.
  __device__ __forceinline__ void Announce(int expert, int rows) const {
    const Layout& layout = c_.layout;
    const int rank = layout.experts().RankOf(expert);
    device::StoreCount(layout.Count(c_.peers.base[rank], epoch_, c_.peers.rank,
                                    layout.experts().LocalExpert(expert, rank)),
                       epoch_, rows);
  }

  // One wave: sends part `part` of the row that lies at `from`.
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

  // All threads of the last block that sends, after device::LastBlock: with Flags::kSource, tells
  // every rank that all rows have been sent, unless the rank has failed: then some may not have
  // been.
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

// What this rank receives in dispatch `epoch`.
class DispatchReceiver {
 public:
  // A part of a row that has come, where its source has stored it.
  struct Arrival {
    RowSource source;
    int index;                 // among its source's rows to its expert
    const device::Vec16* row;  // the whole row
    device::RowPart part;      // of it
  };

  __device__ __forceinline__ DispatchReceiver(const CommonParams& c, uint64_t epoch)
      : c_(c), epoch_(epoch) {}

  // One block: waits until all sources have announced their rows. `take(local_expert, source,
  // rows)`: called at least once for each pair, the last time with the final count. False if a
  // source did not come. `last`: the source that was missing last; as it was if none was.
  template <typename Take>
  __device__ __forceinline__ bool AwaitCounts(Take take, uint32_t* last) const {
    const Layout& layout = c_.layout;
    return device::AwaitCounts(
        c_, layout.Count(c_.peers.base[c_.peers.rank], epoch_, 0, 0), layout.num_ranks,
        layout.num_local_experts, epoch_, Site::kDispatchCount,
        [&](int i, uint32_t count) {
          const int source = layout.experts().RankOf(i);  // counts lie as experts do
          take(layout.experts().LocalExpert(i, source), source, static_cast<int32_t>(count));
        },
        last);
  }

  // One block: with Flags::kSource, waits until all sources have sent all their rows. Otherwise
  // there is nothing to wait for. `last` as above.
  __device__ __forceinline__ bool AwaitSources(uint32_t* last) const {
    return !c_.source_flags ||
           device::AwaitFlags(c_, c_.layout.source_flags, epoch_, Site::kDispatchSource, last);
  }

  // One thread: a source has announced more rows than there is room for, since some of its ids
  // were refused. Nobody may wait for row `slot` then.
  __device__ __forceinline__ void GiveUp(int source, int slot) const {
    device::Fail(c_.failure, device::FailureKind::kReleased,
                 MakeSite(Site::kDispatchRow, source, static_cast<uint32_t>(slot)), epoch_, 0, 0);
  }

  // One wave: waits for part `part` of row `slot` of `source`. False if it did not come.
  __device__ __forceinline__ bool Await(int source, int slot, int part) const {
    return c_.source_flags ||
           device::WaveWaitEpoch(c_.failure, &PacketAt(source, slot, part)->flag, epoch_,
                                 MakeSite(Site::kDispatchRow, source, static_cast<uint32_t>(slot)));
  }

  // After Await: what has come, without copying it.
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

// What this rank returns in combine `epoch`: outputs of its experts, to the origins of their rows.
class CombineSender {
 public:
  __device__ __forceinline__ CombineSender(const CommonParams& c, uint64_t epoch)
      : c_(c), epoch_(epoch) {}

  // Where the output of the row with this origin goes. Any thread may store any piece of it.
  __device__ __forceinline__ device::Vec16* At(const RowSource& origin) const {
    return reinterpret_cast<device::Vec16*>(
        c_.layout.CombineRow(c_.peers.base[origin.rank], Flat(origin)));
  }

  // One wave: part `part` of that output is there.
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

// What comes back to this rank in combine `epoch`: outputs for its own tokens.
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
    return !c_.source_flags || device::AwaitFlags(c_, c_.layout.combine_source_flags, epoch_,
                                                  Site::kCombineSource, last);
  }

  // One wave: waits for part `part` of all outputs of `token`, whose choices are `topk_idx[token]`.
  // False if some did not come.
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

  // After Await: the outputs of `token`, [K] rows, without copying them.
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
