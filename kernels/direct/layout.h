// The layout of the `direct` strategy's buffers. Shared by host and device.
//
// The symmetric heap of each rank holds what peers write. There are S = M·min(K, L) slots for each
// source, since at most that many of a token's K choices are on one rank.
//
//   control   counts            [2][R source][L]          rows to each local expert; by parity of
//                                                         the epoch, since no credit guards them
//             dispatch_credits  [R destination]           "I have consumed what you sent me"
//             packets           [R source][S][row_parts]  flag and origin of a part of a row
//             source_flags      [R source]                "all my rows of this epoch are there"
//             combine_flags     [M·K][row_parts]          for each (token, k) of this rank
//             combine_source_flags, combine_credits       as above, for combine
//   payload   rows              [R source][S][H]          rows in dispatch
//             combine_rows      [M·K][H]                  expert outputs in combine
//
// The counts of a sender may be one call ahead of the receiver, never two. To be two calls ahead,
// the sender must have received the receiver's counts of the call between, and a rank sends those
// only after it has received the previous call.
//
// Words that many waves poll have a 128-byte line of their own. A count is polled by one thread of
// each block.
#ifndef OCTET_KERNELS_DIRECT_LAYOUT_H_
#define OCTET_KERNELS_DIRECT_LAYOUT_H_

#include <hip/hip_runtime.h>

#include <cstddef>
#include <cstdint>
#include <vector>

#include "kernels/ep/device/call_layout.h"
#include "kernels/ep/device/rank_flags.h"
#include "octet/peers.h"
#include "octet/row_source.h"
#include "runtime/device/call_epoch.h"

namespace octet {
struct EpConfig;
struct MemoryPiece;
}  // namespace octet

namespace octet::direct {

// One part of one row in transit. The flag is released last.
struct alignas(kLineBytes) Packet {
  uint64_t flag;   // epoch
  uint32_t index;  // position among the rows of this (expert, source)
  uint32_t unused;
  RowSource source;
};

// The rank's own memory, which peers do not access. It starts with the epochs.
struct State {
  device::CallEpoch dispatch_send;
  device::CallEpoch dispatch_receive;
  device::CallEpoch combine_send;
  device::CallEpoch combine_receive;
  // The number of senders that are done, used if something follows the last of them. Zero between
  // calls.
  uint32_t dispatch_senders_done;
  uint32_t combine_senders_done;
  uint64_t delivery;  // of the last dispatch: kernels/ep/device/delivery.h
  // Slots::kAtomic only; zero between calls.
  int32_t rank_slots[kMaxRanks];
  int32_t expert_slots[1];  // [E]: the allocation is longer
};
inline constexpr int kCallEpochs = 4;

struct Layout : CallLayout {
  int slots_per_source;  // S
  int row_vecs;          // 16-byte vectors of a row
  int row_parts;

  size_t packets;
  size_t source_flags;
  size_t combine_flags;
  size_t combine_source_flags;
  size_t rows;
  size_t combine_rows;

  // `base`: the heap of the rank that owns the object.
  __host__ __device__ Packet* PacketOf(char* base, int source, int slot, int part) const {
    return reinterpret_cast<Packet*>(base + packets) +
           (static_cast<size_t>(source) * slots_per_source + slot) * row_parts + part;
  }
  __host__ __device__ uint64_t* CombineFlag(char* base, int flat, int part) const {
    return &reinterpret_cast<Flag*>(base +
                                    combine_flags)[static_cast<size_t>(flat) * row_parts + part]
                .epoch;
  }
  __host__ __device__ char* Row(char* base, int source, int slot) const {
    return base + rows +
           (static_cast<size_t>(source) * slots_per_source + slot) * row_vecs * kVecBytes;
  }
  __host__ __device__ char* CombineRow(char* base, int flat) const {
    return base + combine_rows + static_cast<size_t>(flat) * row_vecs * kVecBytes;
  }
};

// Returns the layout. Host only. `config` must be valid for `num_ranks` and its row_parts chosen.
Layout MakeLayout(const EpConfig& config, int num_ranks, std::vector<MemoryPiece>* list = nullptr);
// Adds what a rank has beside the heap, in launches of `blocks` blocks.
void ListOwnMemory(const EpConfig& config, const Layout& layout, int blocks,
                   std::vector<MemoryPiece>& list);

// Returns the number of parts of a row if the caller leaves it open.
int ChooseRowParts(const EpConfig& config);

}  // namespace octet::direct

#endif  // OCTET_KERNELS_DIRECT_LAYOUT_H_
