// The layout of the `high_throughput` strategy's buffers. Shared by host and device.
//
// The symmetric heap of each rank holds what peers write. Each source sends C = E + R counts: rows
// to each expert, tokens to each rank.
//
//   control   counts            [2][R source][C]    epoch and count, one word; by parity of the
//                                                   epoch. They also say that the source has
//                                                   started this dispatch, and so needs neither the
//                                                   rows that it received in the previous one nor
//                                                   those that it pulled from any rank
//             dispatch_credits  [R peer]            the same for dispatches without counts
//             combine_credits   [R peer]            "I have consumed all combines before this"
//             packets           [R source][M]       a token's rows on this rank, and its flag
//             combine_flags     [M][P][S]           for each part of each returned row of a token
//             row_arrivals      [capacity]          with row_arrivals: this row, or the one that it
//                                                   is a copy of, has arrived
//   payload   row_origins       [capacity]          with row_arrivals: whose row it is
//             combine_rows      [M][S][H]           S = K (flat) or min(R, K) (per rank); kPush.
//                                                   With kPull rows wait in `rows` for their origin
//   cached    rows              [capacity]          the rows that the caller receives, in place
//             scales            [capacity]
//
// The last two are in the heap's cached memory, since the caller's kernels read them, perhaps more
// than once; everything else is in its uncached memory.
//
// The counts of a source may be one call ahead of this rank, never two. To be two calls ahead, the
// source must have received this rank's counts of the call between, and a rank sends those only
// when it is done with the previous call.
//
// Slots number a source's tokens for one rank in the order of the tokens.
#ifndef OCTET_KERNELS_HIGH_THROUGHPUT_LAYOUT_H_
#define OCTET_KERNELS_HIGH_THROUGHPUT_LAYOUT_H_

#include <hip/hip_runtime.h>

#include <cstddef>
#include <cstdint>
#include <vector>

#include "kernels/ep/device/call_layout.h"
#include "kernels/ep/device/rank_flags.h"
#include "kernels/ep/device/token_packet.h"
#include "kernels/ep/device/work_queue.h"
#include "octet/peers.h"
#include "runtime/device/call_epoch.h"

namespace octet {
struct EpConfig;
struct MemoryPiece;
}  // namespace octet

namespace octet::high_throughput {

using device::Choice;
using device::LocalExpertOf;
using device::Packet;
using device::PackOrigin;
using device::TokenOf;
using device::TopkOf;

// The destination of one of this rank's choices.
struct alignas(kVecBytes) Route {
  int32_t expert;  // -1: dropped
  int32_t row;     // on the expert's rank, in expert order
  int32_t slot;    // of the token there
  int32_t unused;
};

// What a row says of itself if rows announce their arrival one by one.
struct alignas(kVecBytes) RowOrigin {
  float weight;
  uint32_t origin;  // PackOrigin
  uint32_t place;   // PackPlace
  int32_t holder;   // the row that came over the link for this token: this one, or one before it
};

// The source of a row, the slot of its token there, and which of the token's choices it is.
inline constexpr int kSlotBits = 16;
inline constexpr int kChoiceBits = 5;
static_assert(kMaxRanks <= 1 << (32 - kSlotBits - 2 * kChoiceBits));
__host__ __device__ inline uint32_t PackPlace(int source, int slot, int index, int choices) {
  return static_cast<uint32_t>(slot) | static_cast<uint32_t>(index) << kSlotBits |
         static_cast<uint32_t>(choices - 1) << (kSlotBits + kChoiceBits) |
         static_cast<uint32_t>(source) << (kSlotBits + 2 * kChoiceBits);
}
__host__ __device__ inline int SlotOfPlace(uint32_t place) {
  return static_cast<int>(place & ((1U << kSlotBits) - 1));
}
__host__ __device__ inline int IndexOfPlace(uint32_t place) {
  return static_cast<int>(place >> kSlotBits & ((1U << kChoiceBits) - 1));
}
__host__ __device__ inline int ChoicesOfPlace(uint32_t place) {
  return static_cast<int>(place >> (kSlotBits + kChoiceBits) & ((1U << kChoiceBits) - 1)) + 1;
}
__host__ __device__ inline int SourceOfPlace(uint32_t place) {
  return static_cast<int>(place >> (kSlotBits + 2 * kChoiceBits));
}
__host__ __device__ inline uint32_t WithSource(uint32_t place, int source) {
  constexpr int kShift = kSlotBits + 2 * kChoiceBits;
  return (place & ((1U << kShift) - 1)) | static_cast<uint32_t>(source) << kShift;
}

// The layout of one dispatch, in the rank's own memory. Later dispatches and combines with the same
// routing use it.
struct Kept {
  Route* routes;            // [M][K]
  char* packets;            // [R source][M], as they arrived
  int32_t* packet_counts;   // [R source] tokens received
  int32_t* source_offsets;  // [R + 1] first token of each source, if all sources' are contiguous
  int32_t* first_slots;     // [R destination] the same number for this rank's tokens
  int32_t* expert_counts;   // [L]
  int32_t* expert_offsets;  // [L + 1]
};

// The rank's own memory, which peers do not access. It starts with the epochs; ShareCounts follows
// it.
struct State {
  device::CallEpoch dispatch;
  device::CallEpoch combine;
  device::WorkQueue dispatch_sends;
  device::WorkQueue dispatch_receives;
  device::WorkQueue combine_sends;
  device::WorkQueue combine_receives;
  alignas(kLineBytes) uint64_t delivery;  // of the last dispatch: kernels/ep/device/delivery.h
  // Of a dispatch with a product.
  device::WorkQueue send_batches;
  device::WorkQueue row_groups;
  alignas(kLineBytes) int32_t next_unit;  // device::GemmCall
};
inline constexpr int kCallEpochs = 2;

struct Layout : PacketLayout {
  int row_vecs;          // 16-byte vectors of a row in dispatch
  int scale_words;       // 4-byte words of its scales; 0: it has none
  int combine_vecs;      // 16-byte vectors of a row in combine
  int combine_parts;     // P: parts of a row in combine
  int expert_alignment;  // rows
  bool pull;             // CombineMethod::kPull
  bool pull_by_token;    // which row waits at which offset: PulledRow
  bool token_major;      // rows lie by (source, token), each once; else by (expert, source, token)

  bool arrivals;  // HighThroughputOptions::row_arrivals
  bool bounded;   // EpConfig::capacity_rows: a call may need more rows than there is memory for

  size_t packets;
  size_t combine_flags;
  size_t row_arrivals;
  size_t row_origins;
  size_t rows;
  size_t scales;
  size_t combine_rows;

  // Returns the number of rows that there is memory for.
  __host__ __device__ int capacity() const {
    return token_major ? num_ranks * max_tokens : max_rows;
  }
  __host__ __device__ int flags_per_token() const {
    constexpr int kFlagsPerLine = static_cast<int>(kLineBytes / sizeof(uint64_t));
    return (combine_parts * combine_slots + kFlagsPerLine - 1) / kFlagsPerLine * kFlagsPerLine;
  }

  // `packets_base`: base + Layout::packets, or Kept::packets.
  __host__ __device__ Packet* PacketOf(char* packets_base, int source, int slot) const {
    return PacketAt(packets_base, static_cast<size_t>(source), slot);
  }
  // `base`: the uncached memory of the heap of the rank that owns the object.
  __host__ __device__ uint64_t* CombineFlag(char* base, int token, int slot, int part) const {
    return reinterpret_cast<uint64_t*>(base + combine_flags) +
           static_cast<size_t>(token) * flags_per_token() + part * combine_slots + slot;
  }
  __host__ __device__ uint64_t* RowArrival(char* base, int row) const {
    return reinterpret_cast<uint64_t*>(base + row_arrivals) + row;
  }
  __host__ __device__ RowOrigin* RowOriginOf(char* base, int row) const {
    return reinterpret_cast<RowOrigin*>(base + row_origins) + row;
  }
  // `row_base`: the cached memory of that heap.
  __host__ __device__ char* Row(char* row_base, int row) const {
    return row_base + rows + static_cast<size_t>(row) * row_vecs * kVecBytes;
  }
  __host__ __device__ uint32_t* Scales(char* row_base, int row) const {
    return reinterpret_cast<uint32_t*>(row_base + scales) + static_cast<size_t>(row) * scale_words;
  }
  // Returns the address of a row that waits to be pulled. `choice_row`: the row of the first of its
  // choices; `token_row`: the token's slot, counted over all sources.
  __host__ __device__ char* PulledRow(char* row_base, int choice_row, int token_row) const {
    return row_base + rows +
           static_cast<size_t>(pull_by_token ? token_row : choice_row) * combine_vecs * kVecBytes;
  }
  __host__ __device__ char* CombineRow(char* base, int token, int slot) const {
    return base + combine_rows +
           (static_cast<size_t>(token) * combine_slots + slot) * combine_vecs * kVecBytes;
  }
};

// Returns the layout. Host only. `config` must be valid for `num_ranks` and have its automatic
// choices made.
Layout MakeLayout(const EpConfig& config, int num_ranks, std::vector<MemoryPiece>* list = nullptr);
// Adds what a rank has beside the heap, in launches of `blocks` blocks.
void ListOwnMemory(const EpConfig& config, const Layout& layout, int blocks,
                   std::vector<MemoryPiece>& list);

// A wave completes rows in groups of kWaveSize neighbours, which are no fewer than these.
inline constexpr int kFewestRowsPerGroup = 32;

// Of a dispatch with a product.
inline constexpr int kMostFusedBlocksPerUnit = 4;

// The words that follow State in the same memory, for calls of at most `blocks` blocks.
struct StateWords {
  size_t passes;          // [2][P] PassWord
  size_t share_counts;    // [C][blocks] counts, with their epoch
  size_t ordered_blocks;  // [blocks] epochs: the block has ordered its choices; with row_arrivals
  size_t ready_groups;    // epochs: all rows of the group are complete; with row_arrivals
  size_t ready_rows;      // [L] how many rows of the expert are complete; with row_arrivals

  __host__ __device__ StateWords(const Layout& layout, int blocks)
      : passes(size_t{2} * static_cast<size_t>(layout.combine_parts)),
        share_counts(static_cast<size_t>(layout.num_counts) * blocks),
        ordered_blocks(layout.arrivals ? blocks : 0),
        ready_groups(layout.arrivals ? layout.max_rows / kFewestRowsPerGroup + 1 : 0),
        ready_rows(layout.arrivals ? layout.num_local_experts : 0) {}
  __host__ __device__ size_t total() const {
    return passes + share_counts + ordered_blocks + ready_groups + ready_rows;
  }
};
inline size_t StateBytes(const Layout& layout, int blocks) {
  return sizeof(State) + StateWords(layout, blocks).total() * sizeof(uint64_t);
}
__host__ __device__ inline uint64_t* WordsAfter(State* state) {
  return reinterpret_cast<uint64_t*>(state + 1);
}

// The offsets of a Kept in one piece of memory.
struct KeptPieces {
  size_t packets;
  size_t packet_counts;
  size_t source_offsets;
  size_t first_slots;
  size_t expert_counts;
  size_t expert_offsets;
  size_t routes;
  size_t bytes;
};
KeptPieces PlaceKept(const Layout& layout);

// Returns how many blocks the caller allows a call; 0: all.
int BlocksAskedFor(const EpConfig& config);

// Returns the number of parts of a row of combine if the caller leaves it open.
int ChooseRowParts(const EpConfig& config, int num_ranks);

}  // namespace octet::high_throughput

#endif  // OCTET_KERNELS_HIGH_THROUGHPUT_LAYOUT_H_
