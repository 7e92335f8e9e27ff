// The common part of the strategies' layouts. Shared by host and device.
#ifndef OCTET_KERNELS_EP_DEVICE_CALL_LAYOUT_H_
#define OCTET_KERNELS_EP_DEVICE_CALL_LAYOUT_H_

#include <hip/hip_runtime.h>

#include <cstddef>
#include <cstdint>

#include "kernels/ep/device/routing.h"
#include "kernels/ep/device/token_packet.h"

namespace octet {

// The layout of every strategy. Offsets are into each rank's part of the symmetric heap.
struct CallLayout {
  int num_ranks;
  int num_experts;
  int num_local_experts;
  int topk;
  int max_tokens;
  int num_counts;  // words that each rank announces to each peer
  int max_rows;    // Received::max_rows

  size_t counts;            // [2][R source][num_counts] epoch and count, one word; by the epoch's
                            // parity
  size_t dispatch_credits;  // [R peer]
  size_t combine_credits;   // [R peer]
  size_t control_bytes;     // counts, credits and all flags; zero before the first call
  size_t bytes;             // of uncached memory (octet/symmetric_heap.h), control_bytes among them
  size_t cached_bytes;      // of cached memory

  // ExpertMap::inverse. If this is placed closer to the numbers that it is used with, nvcc 13.0
  // loads it together with them, and low_latency's dispatch spills more registers.
  uint32_t inverse;

  __host__ __device__ ExpertMap experts() const {
    return ExpertMap{num_experts, num_local_experts, inverse};
  }

  // `base`: the heap of the rank that owns the object.
  __host__ __device__ uint64_t* Count(char* base, uint64_t epoch, int source, int column) const {
    return reinterpret_cast<uint64_t*>(base + counts) +
           (static_cast<size_t>(epoch % 2) * num_ranks + source) * num_counts + column;
  }
};

// The layout of strategies that send a token once to each rank, with a packet.
struct PacketLayout : CallLayout {
  int max_choices;  // min(K, L): of a token on one rank
  int packet_bytes;
  bool per_rank;      // CombineOrder::kPerRank
  int combine_slots;  // S, rows of a token that combine returns: K, or min(R, K) (per rank)
  // With FailurePolicy::kMask each rank has combine slots of its own, rank_slots of them.
  bool own_slots;
  int rank_slots;

  // Returns the combine slot of a token's row. `rank`: the rank that returns the row; `index`: the
  // row's position among the token's rows from that rank; `position`: its position among all of the
  // token's rows.
  __host__ __device__ int CombineSlot(int rank, int index, int position) const {
    return own_slots ? rank * rank_slots + index : position;
  }

  // `first`: an array of packets, [sources][M].
  __host__ __device__ device::Packet* PacketAt(char* first, size_t source, int slot) const {
    return reinterpret_cast<device::Packet*>(
        first + (source * static_cast<size_t>(max_tokens) + slot) * packet_bytes);
  }
};

}  // namespace octet

#endif  // OCTET_KERNELS_EP_DEVICE_CALL_LAYOUT_H_
