// The layout of the `low_latency` strategy's buffers. Shared by host and device.
//
// The symmetric heap of each rank holds what peers write. Everything except the credits exists
// twice, by parity of the call's epoch, so that two calls can be in flight. A call overwrites the
// data of the second call before it, after each peer has given its credit. Combine returns S rows
// of a token: K (flat) or min(R, K) (per rank). If ranks may be masked, there is room for all rows
// that any rank may return: R·min(K, L) or R.
//
//   control   counts            [2][R source][L + 1]   epoch and count, one word: rows to each
//                                                      local expert, and tokens
//             dispatch_credits  [R peer]               "I have consumed all dispatches up to this"
//             combine_credits   [R peer]               the same for combines
//             packets           [2][R source][M]       a token's experts on this rank; its flag
//             combine_begun     [R source]             "I am about to send combine n"; only if
//                                                      ranks may be masked
//             combine_flags     [2][M][S]              for each returned row of a token
//   payload   rows              [2][R source][M]       tokens in dispatch, once each: the row, and
//                                                      its scales if it is quantised
//             combine_rows      [2][M][S][H]           expert outputs in combine
//
// Slots number a source's tokens for one rank in the order of the tokens. Words that many waves
// poll have a 128-byte line of their own. A count is polled by one thread of each block. With B
// bytes of a row in dispatch and packets of P = 16 + 12·min(K, L) bytes, rounded up to whole lines,
// each rank needs about
//
//   2·R·M·(B + P) + 2·M·S·(2·H + 128)
//
// bytes. Each source writes only to slots of its own, except in combine_flags and combine_rows:
// there a slot belongs to one source in one call, and perhaps to another in the next call but one.
// Credits make this safe, but nobody waits for the credits of a masked rank, whose stores may
// arrive at any time. So if ranks may be masked, each of those slots belongs to one source
// permanently as well. Late stores of a masked rank then go to slots that nobody reads, and before
// the rank is included again, all its stores have arrived and all control memory is reset.
//
// Received rows are in the rank's own memory, also twice, by the number of the dispatch: Received.
#ifndef OCTET_KERNELS_LOW_LATENCY_LAYOUT_H_
#define OCTET_KERNELS_LOW_LATENCY_LAYOUT_H_

#include <hip/hip_runtime.h>

#include <cstddef>
#include <cstdint>
#include <vector>

#include "kernels/ep/device/call_layout.h"
#include "kernels/ep/device/rank_flags.h"
#include "kernels/ep/device/token_packet.h"
#include "octet/fp8_scale.h"
#include "octet/peers.h"
#include "runtime/device/call_epoch.h"

namespace octet {
struct EpConfig;
struct MemoryPiece;
}  // namespace octet

namespace octet::low_latency {

// Calls of one kind that can be in flight on a rank: sent but not received.
inline constexpr int kCallsInFlight = 2;

using device::Choice;
using device::LocalExpertOf;
using device::Packet;
using device::PackOrigin;
using device::TokenOf;
using device::TopkOf;

// The tokens that one dispatch has received, in the rank's own memory: the input of its combines.
struct Kept {
  char* packets;      // [R source][M], with the rows as they were received
  int32_t* received;  // [R source] tokens
};

// The rank's own memory, which peers do not access. It starts with the epochs.
struct State {
  device::CallEpoch dispatch_send;
  device::CallEpoch dispatch_receive;
  device::CallEpoch combine_send;
  device::CallEpoch combine_receive;
  // Blocks that have received their part of the current call (device::EndCall).
  alignas(kLineBytes) uint32_t blocks_done;
  alignas(kLineBytes) uint64_t delivery;  // of the last dispatch: kernels/ep/device/delivery.h
};
inline constexpr int kCallEpochs = 4;

// Computes the first row of each (expert, source). Packed: the rows of all experts are contiguous.
// Otherwise each expert, or each source, has room for all rows that it can get.
struct RowOffsets {
  bool by_source;  // Output::kRankMajor: by source, then by expert; else by expert, then by source
  int group_size;  // sources of an expert, or experts of a source
  int group_rows;  // rows that each group has room for; 0: packed

  // Returns the position of a pair in that order.
  __host__ __device__ int Index(int local_expert, int source) const {
    return by_source ? source * group_size + local_expert : local_expert * group_size + source;
  }
  // Returns the first row of a pair. `sums`: by Index, the rows of all pairs before.
  __host__ __device__ int FirstRow(const int32_t* sums, int local_expert, int source) const {
    const int i = Index(local_expert, source);
    if (group_rows == 0) return sums[i];
    const int group = by_source ? source : local_expert;
    return group * group_rows + sums[i] - sums[group * group_size];
  }
};

struct Layout : PacketLayout {
  int dtype_vecs;    // 16-byte vectors of a row of the dtype: of x, and of all rows in combine
  int row_vecs;      // of a row as it is received
  int slot_vecs;     // of a row with its scales in transit
  int scale_words;   // 4-byte words of the scales of a row; 0: it is not quantised
  int scale_groups;  // groups of columns with a scale each
  int group_lanes;   // vectors of a row of the dtype that share a scale
  ScaleFormat scale_format;
  RowOffsets row_offsets;

  size_t combine_begun;
  size_t packets;
  size_t combine_flags;
  size_t rows;
  size_t combine_rows;

  // `base`: the heap of the rank that owns the object.
  __host__ __device__ Packet* PacketOf(char* base, uint64_t epoch, int source, int slot) const {
    return PacketAt(base + packets, Half(epoch) * num_ranks + source, slot);
  }
  __host__ __device__ Packet* KeptPacket(const Kept& kept, int source, int slot) const {
    return PacketAt(kept.packets, static_cast<size_t>(source), slot);
  }
  __host__ __device__ char* Row(char* base, uint64_t epoch, int source, int slot) const {
    return base + rows +
           ((Half(epoch) * num_ranks + source) * static_cast<size_t>(max_tokens) + slot) *
               slot_vecs * kVecBytes;
  }
  // Returns the scales of a row that Row() returned.
  __host__ __device__ uint32_t* Scales(char* row) const {
    return reinterpret_cast<uint32_t*>(row + static_cast<size_t>(row_vecs) * kVecBytes);
  }
  __host__ __device__ uint64_t* CombineFlag(char* base, uint64_t epoch, int token, int slot) const {
    return &reinterpret_cast<Flag*>(base + combine_flags)[CombineIndex(epoch, token, slot)].epoch;
  }
  __host__ __device__ char* CombineRow(char* base, uint64_t epoch, int token, int slot) const {
    return base + combine_rows + CombineIndex(epoch, token, slot) * dtype_vecs * kVecBytes;
  }

 private:
  static __host__ __device__ size_t Half(uint64_t epoch) { return epoch % kCallsInFlight; }
  __host__ __device__ size_t CombineIndex(uint64_t epoch, int token, int slot) const {
    return (Half(epoch) * max_tokens + token) * combine_slots + slot;
  }
};

// Returns the layout. Host only. `config` must be valid for `num_ranks` and have its automatic
// choices made.
Layout MakeLayout(const EpConfig& config, int num_ranks, std::vector<MemoryPiece>* list = nullptr);
// Adds what a rank has beside the heap, in launches of `blocks` blocks.
void ListOwnMemory(const EpConfig& config, const Layout& layout, int blocks,
                   std::vector<MemoryPiece>& list);

}  // namespace octet::low_latency

#endif  // OCTET_KERNELS_LOW_LATENCY_LAYOUT_H_
