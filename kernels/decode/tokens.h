// The tokens of all ranks, in the order of the ranks and of their numbers there.
#ifndef OCTET_KERNELS_DECODE_TOKENS_H_
#define OCTET_KERNELS_DECODE_TOKENS_H_

#include <cstddef>
#include <cstdint>

#include "device_ops.h"
#include "kernels/decode/kernels.h"
#include "kernels/decode/layout.h"
#include "kernels/decode/protocol.h"
#include "octet/peers.h"

namespace octet::decode {

class Tokens {
 public:
  __device__ __forceinline__ explicit Tokens(const DecodeParams& p) : p_(p) {}

  // Brings the tokens of all ranks to this one. All threads of the block call it. Returns false if
  // they did not come.
  __device__ __forceinline__ bool Exchange(const Protocol& protocol) {
    __shared__ int32_t counts[kMaxRanks];
    const Layout& layout = p_.layout;
    num_own_ = p_.tokens_of == nullptr ? p_.num_tokens : Smaller(*p_.tokens_of, layout.max_tokens);
    if (num_own_ < 0) num_own_ = 0;
    if (layout.num_ranks == 1) {
      if (threadIdx.x == 0) counts[0] = num_own_;
    } else {
      protocol.SendTokens(num_own_);
      if (!protocol.AwaitTokens(counts)) return false;
    }
    __syncthreads();
#pragma unroll 1
    for (int rank = 0; rank < layout.num_ranks; ++rank) {
      if (rank == p_.peers.rank) first_own_ = num_all_;
#pragma unroll 1
      for (int i = static_cast<int>(threadIdx.x); i < counts[rank];
           i += static_cast<int>(blockDim.x)) {
        Places()[num_all_ + i] = {static_cast<uint16_t>(rank), static_cast<uint16_t>(i)};
      }
      num_all_ += counts[rank];
    }
    __syncthreads();
    return true;
  }

  __device__ __forceinline__ int num_all() const { return num_all_; }
  // This rank's: so many from the first on.
  __device__ __forceinline__ int num_own() const { return num_own_; }
  __device__ __forceinline__ int first_own() const { return first_own_; }

  // A token's origin.
  struct Place {
    uint16_t rank;
    uint16_t number;  // there
  };
  static __device__ __forceinline__ Place PlaceOf(int token) { return Places()[token]; }

  // Returns a token's row, [H] of the dtype.
  __device__ __forceinline__ const char* RowOf(int token) const { return rows() + OffsetOf(token); }
  // The same: OffsetOf(token) bytes from rows().
  __device__ __forceinline__ const char* rows() const {
    if (p_.layout.num_ranks == 1) return p_.x;
    return p_.layout.Token(p_.cached_peers.base[p_.peers.rank], 0, 0);
  }
  __device__ __forceinline__ int OffsetOf(int token) const {
    int row = token;
    if (p_.layout.num_ranks > 1) {
      const Place place = PlaceOf(token);
      row = place.rank * p_.layout.max_tokens + place.number;
    }
    return row * p_.layout.hidden * 2;
  }

 private:
  static __device__ __forceinline__ Place* Places() {
    __shared__ Place places[kMostTokens];
    return places;
  }

  const DecodeParams& p_;
  int num_all_ = 0;
  int num_own_ = 0;
  int first_own_ = 0;
};

}  // namespace octet::decode

#endif  // OCTET_KERNELS_DECODE_TOKENS_H_
