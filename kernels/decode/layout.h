// The offsets of everything that the ranks of a decode layer write into one another's memory, and
// that a block keeps in shared memory. Host and device share them.
//
//   uncached heap   token_flags   [R source][parts]   epoch, and the source's number of tokens
//                   partial_flags [R source]          epoch
//                   partials      [R source][M][H]    float32
//   cached heap     tokens        [R source][M][H]    of the dtype
#ifndef OCTET_KERNELS_DECODE_LAYOUT_H_
#define OCTET_KERNELS_DECODE_LAYOUT_H_

#include <hip/hip_runtime.h>

#include <cstddef>
#include <cstdint>

#include "octet/peers.h"

namespace octet::decode {

inline constexpr int kMostTokens = 64;    // of all ranks together
inline constexpr int kMostExperts = 512;  // over all ranks
inline constexpr int kMostParts = 4;      // blocks that send a rank's tokens to one peer

// Rows of weights that are multiplied together.
inline constexpr int kMmaRows = 16;

inline constexpr int kGatedRows = kMmaRows / 2;  // of gate, and as many of up

__host__ __device__ constexpr int Smaller(int a, int b) { return a < b ? a : b; }

struct Layout {
  int num_ranks;
  int max_tokens;  // M
  int hidden;      // H
  int parts;
  size_t token_flags;  // offsets in the heap's uncached memory
  size_t partial_flags;
  size_t partials;
  size_t uncached_bytes;
  size_t tokens;  // in its cached memory
  size_t cached_bytes;

  __host__ __device__ uint64_t* TokenFlag(char* base, int source, int part) const {
    return reinterpret_cast<uint64_t*>(base + token_flags) + source * parts + part;
  }
  __host__ __device__ uint64_t* PartialFlag(char* base, int source) const {
    return reinterpret_cast<uint64_t*>(base + partial_flags) + source;
  }
  __host__ __device__ float* Partial(char* base, int source, int token) const {
    return reinterpret_cast<float*>(base + partials) + RowOf(source, token);
  }
  __host__ __device__ char* Token(char* cached_base, int source, int token) const {
    constexpr size_t kElementBytes = 2;
    return cached_base + tokens + RowOf(source, token) * kElementBytes;
  }

 private:
  __host__ __device__ size_t RowOf(int source, int token) const {
    return static_cast<size_t>(source * max_tokens + token) * static_cast<size_t>(hidden);
  }
};

// A block's dynamic shared memory: offsets of arrays.
struct SharedLayout {
  size_t ring;          // [waves][slots] pieces; before they are loaded, the next three
  size_t topk_idx;      // int32 [tokens][K]
  size_t topk_weights;  // float [tokens][K]
  size_t chosen;        // uint32 [local experts][2]: a bit for each token
  size_t sums;          // float [waves][tokens][rows of a piece]
  // In the memory of sums, with a kernel for one token, which has fewer of them (one_token.h).
  size_t waves;         // float [waves][rows of a piece]
  size_t tokens;        // [waves][2] columns of a piece, of the dtype
  size_t chains;        // ChainPlace [waves][kListedChains]
  size_t barriers;      // device::BoxBarrier [waves][2]
  size_t entries;       // Entry [local experts + 1]
  size_t pair_weights;  // float [pairs]
  size_t pair_tokens;   // uint8 [pairs]
  size_t bytes;
};

// A local expert that some tokens chose, or, behind all of these, the shared experts.
struct Entry {
  int32_t expert;
  int32_t first_pair;
  int32_t tokens;
};

}  // namespace octet::decode

#endif  // OCTET_KERNELS_DECODE_LAYOUT_H_
