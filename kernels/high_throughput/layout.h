// Every buffer of the `high_throughput` strategy and where it lies. Shared by host and device.
//
// The symmetric heap of each rank holds what peers write. C = E + R counts for each source: rows to
// each expert, tokens to each rank.
//
//   control   counts            [2][R source][C]    epoch and count, one word; by parity of the
//                                                   epoch. They say as well that the source has
//                                                   started this dispatch, and so has no use any
//                                                   more for what it received in the one before,
//                                                   nor for what it pulled from any rank
//             dispatch_credits  [R peer]            the same for dispatches without counts
//             combine_credits   [R peer]            "I have consumed all combines before this"
//             packets           [R source][M]       where a token goes here, and its flag
//             combine_flags     [M][P][S]           for each part of each row of a token on its way
//             home
//   payload   combine_rows      [M][S][H]           S = K (flat) or min(R, K) (per rank); kPush.
//                                                   With kPull rows wait in `rows` for their origin
//   cached    rows              [capacity]          what the caller receives, in place
//             scales            [capacity]
//
// The last are in the heap's cached memory, since the caller's kernels read them, perhaps more than
// once; all else is in its uncached memory.
//
// A source may be one call ahead of this rank in its counts, never two: for the call between it has
// needed this rank's counts, which a rank sends when it is done with the call before.
//
// A source's tokens for one rank are numbered in the order of the tokens: slots.
#ifndef OCTET_KERNELS_HIGH_THROUGHPUT_LAYOUT_H_
#define OCTET_KERNELS_HIGH_THROUGHPUT_LAYOUT_H_

#include <hip/hip_runtime.h>

#include <cstddef>
#include <cstdint>

#include "kernels/device/call_layout.h"
#include "kernels/device/rank_flags.h"
#include "kernels/device/token_packet.h"
#include "kernels/device/work_queue.h"
#include "octet/peers.h"
#include "runtime/device/call_epoch.h"

namespace octet {
struct EpConfig;
}

namespace octet::high_throughput {

using device::Choice;
using device::LocalExpertOf;
using device::Packet;
using device::PackOrigin;
using device::TokenOf;
using device::TopkOf;

// Where one of this rank's choices goes.
struct alignas(kVecBytes) Route {
  int32_t expert;  // -1: dropped
  int32_t row;     // on the expert's rank, in expert order
  int32_t slot;    // of the token there
  int32_t unused;
};

// The layout of one dispatch, in the rank's own memory: what later dispatches and combines of the
// same routing need.
struct Kept {
  Route* routes;            // [M][K]
  char* packets;            // [R source][M], as they came
  int32_t* packet_counts;   // [R source] tokens received
  int32_t* source_offsets;  // [R + 1] the first of each source, if all are laid side by side
  int32_t* first_slots;     // [R destination] that number for this rank's tokens
  int32_t* expert_counts;   // [L]
  int32_t* expert_offsets;  // [L + 1]
};

// The rank's own memory, not seen by peers. First the epochs; behind it ShareCounts.
struct State {
  device::CallEpoch dispatch;
  device::CallEpoch combine;
  device::WorkQueue dispatch_sends;
  device::WorkQueue dispatch_receives;
  device::WorkQueue combine_sends;
  device::WorkQueue combine_receives;
  alignas(kLineBytes) uint64_t delivery;  // of the last dispatch: kernels/device/delivery.h
};
inline constexpr int kCallEpochs = 2;

struct Layout : PacketLayout {
  int row_vecs;          // 16-byte vectors of a row in dispatch
  int scale_words;       // 4-byte words of its scales; 0: it has none
  int combine_vecs;      // 16-byte vectors of a row in combine
  int combine_parts;     // P: pieces that a row is cut into on its way home
  int expert_alignment;  // rows
  bool pull;             // CombineMethod::kPull
  bool pull_by_token;    // which row waits where: PulledRow
  bool token_major;      // rows lie by (source, token), each once; else by (expert, source, token)

  size_t packets;
  size_t combine_flags;
  size_t rows;
  size_t scales;
  size_t combine_rows;

  // Rows that there is memory for.
  __host__ __device__ int capacity() const {
    return token_major ? num_ranks * max_tokens : max_rows;
  }
  __host__ __device__ int flags_per_token() const {
    constexpr int kFlagsPerLine = static_cast<int>(kLineBytes / sizeof(uint64_t));
    return (combine_parts * combine_slots + kFlagsPerLine - 1) / kFlagsPerLine * kFlagsPerLine;
  }

  // `packets`: base + Layout::packets, or Kept::packets.
  __host__ __device__ Packet* PacketOf(char* packets_base, int source, int slot) const {
    return PacketAt(packets_base, static_cast<size_t>(source), slot);
  }
  // `base`: the uncached memory of the heap of the rank that owns the object.
  __host__ __device__ uint64_t* CombineFlag(char* base, int token, int slot, int part) const {
    return reinterpret_cast<uint64_t*>(base + combine_flags) +
           static_cast<size_t>(token) * flags_per_token() + part * combine_slots + slot;
  }
  // `row_base`: its cached memory.
  __host__ __device__ char* Row(char* row_base, int row) const {
    return row_base + rows + static_cast<size_t>(row) * row_vecs * kVecBytes;
  }
  __host__ __device__ uint32_t* Scales(char* row_base, int row) const {
    return reinterpret_cast<uint32_t*>(row_base + scales) + static_cast<size_t>(row) * scale_words;
  }
  // Of kPull. `choice_row`: of the first of the choices that the row is of; `token_row`: the slot,
  // counted over all sources.
  __host__ __device__ char* PulledRow(char* row_base, int choice_row, int token_row) const {
    return row_base + rows +
           static_cast<size_t>(pull_by_token ? token_row : choice_row) * combine_vecs * kVecBytes;
  }
  __host__ __device__ char* CombineRow(char* base, int token, int slot) const {
    return base + combine_rows +
           (static_cast<size_t>(token) * combine_slots + slot) * combine_vecs * kVecBytes;
  }
};

// Host only. `config` must be valid for `num_ranks` and have its automatic choices made.
Layout MakeLayout(const EpConfig& config, int num_ranks);

// The counts of all shares lie behind State, in the same memory.
inline size_t StateBytes(const Layout& layout, int blocks) {
  return sizeof(State) +
         static_cast<size_t>(layout.num_counts) * static_cast<size_t>(blocks) * sizeof(uint64_t);
}
inline uint64_t* ShareCounts(State* state) { return reinterpret_cast<uint64_t*>(state + 1); }

// The blocks that the caller leaves a call; 0: all.
int BlocksAskedFor(const EpConfig& config);

// The parts that a row of combine is cut into when the caller leaves it open.
int ChooseRowParts(const EpConfig& config, int num_ranks);

}  // namespace octet::high_throughput

#endif  // OCTET_KERNELS_HIGH_THROUGHPUT_LAYOUT_H_
