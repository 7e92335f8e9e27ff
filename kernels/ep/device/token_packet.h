// The metadata of a token that is sent once to each rank: which of its choices are on that rank,
// and their destination offsets. Shared by host and device.
#ifndef OCTET_KERNELS_EP_DEVICE_TOKEN_PACKET_H_
#define OCTET_KERNELS_EP_DEVICE_TOKEN_PACKET_H_

#include <hip/hip_runtime.h>

#include <cstddef>
#include <cstdint>

#include "kernels/ep/device/rank_flags.h"

namespace octet::device {

// One choice of a token on the rank that receives it. Of 12 bytes, so that nine lie in one line
// with the flag; of 16 it would be seven. Compilers store pieces of 8 bytes at odd multiples of 4,
// which GPUs do.
struct Choice {
  int32_t row;      // its row on that rank; each strategy says among which rows
  float weight;     // 1 if the sender has none
  uint32_t origin;  // token, k and local expert: PackOrigin
};

// The metadata of one token for one rank: a flag, which is released last, followed by the token's
// choices on that rank by ascending k. Its size is PacketBytes.
struct alignas(kVecBytes) Packet {
  uint64_t flag;         // epoch and number of choices
  int32_t combine_slot;  // of the token's returned rows, with CombineOrder::kPerRank
  uint32_t unused;

  __host__ __device__ Choice* choices() { return reinterpret_cast<Choice*>(this + 1); }
  __host__ __device__ const Choice* choices() const {
    return reinterpret_cast<const Choice*>(this + 1);
  }
};

// Returns the size of a packet: whole lines, since receivers poll the flag.
__host__ __device__ inline int PacketBytes(int max_choices) {
  const size_t bytes = sizeof(Packet) + static_cast<size_t>(max_choices) * sizeof(Choice);
  return static_cast<int>((bytes + kLineBytes - 1) / kLineBytes * kLineBytes);
}

inline constexpr int kTokenBits = 16;
inline constexpr int kTopkBits = 5;
inline constexpr int kLocalExpertBits = 11;

__host__ __device__ inline uint32_t PackOrigin(int token, int k, int local_expert) {
  return static_cast<uint32_t>(token) | static_cast<uint32_t>(k) << kTokenBits |
         static_cast<uint32_t>(local_expert) << (kTokenBits + kTopkBits);
}
__host__ __device__ inline int TokenOf(uint32_t origin) {
  return static_cast<int>(origin & ((1U << kTokenBits) - 1));
}
__host__ __device__ inline int TopkOf(uint32_t origin) {
  return static_cast<int>((origin >> kTokenBits) & ((1U << kTopkBits) - 1));
}
__host__ __device__ inline int LocalExpertOf(uint32_t origin) {
  return static_cast<int>(origin >> (kTokenBits + kTopkBits));
}

}  // namespace octet::device

#endif  // OCTET_KERNELS_EP_DEVICE_TOKEN_PACKET_H_
