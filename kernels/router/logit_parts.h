// Parts of the logits of a few tokens: 16 rows of the router's weights by all tokens, over some of
// the columns. The order of sums follows from H and the platform alone, so that a token's logits do
// not depend on the others.
#ifndef OCTET_KERNELS_ROUTER_LOGIT_PARTS_H_
#define OCTET_KERNELS_ROUTER_LOGIT_PARTS_H_

#include <hip/hip_runtime.h>

#include "device_ops.h"
#include "kernels/router/few_tokens.h"
#include "row_mma.h"
#include "runtime/platform/gemm_call.h"

namespace octet::routing {

template <device::GemmElement element>
class LogitPart {
  static constexpr int kStride = 20;  // floats, with which no two lanes of 32 share a bank

 public:
  using Mma = device::RowMma<element>;
  static constexpr int kRows = 16;  // of a block
  static constexpr int kMostWaves = 8;
  static constexpr int kWaves = Mma::kWaves < kMostWaves ? Mma::kWaves : kMostWaves;

  // The blocks of a launch that compute parts.
  static __host__ __device__ constexpr int Blocks(int logit_rows) {
    return (logit_rows + kRows - 1) / kRows * kLogitParts;
  }

  // In the block's shared memory: the sums of each wave.
  struct Shared {
    float sums[kWaves][kFewRoutedTokens][kStride];
  };

  __device__ __forceinline__ LogitPart(const FewTokensParams& p, int block, Shared& shared)
      : p_(p),
        first_row_(block / kLogitParts * kRows),
        part_(block % kLogitParts),
        shared_(shared) {}

  // Calls store(part, token, row, sum), in some thread, for all tokens and the rows that there are.
  // All threads of the block call it, once.
  template <typename Store>
  __device__ __forceinline__ void Compute(Store store) const {
    float sums[kMostTiles][4] = {};
    AddProducts(sums);
    const int tokens = p_.route.num_tokens;
#pragma unroll
    for (int tile = 0; tile < kMostTiles; ++tile) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int token = tile * Mma::Tokens() + Mma::SumToken(i);
        if (token < tokens) shared_.sums[device::Wave()][token][Mma::SumRow(i)] = sums[tile][i];
      }
    }
    __syncthreads();
    for (int i = static_cast<int>(threadIdx.x); i < tokens * kRows;
         i += static_cast<int>(blockDim.x)) {
      const int token = i / kRows;
      const int row = i % kRows;
      if (first_row_ + row >= p_.logit_rows) continue;
      float sum = 0.0F;
#pragma unroll
      for (int wave = 0; wave < kWaves; ++wave) sum = sum + shared_.sums[wave][token][row];
      store(part_, token, first_row_ + row, sum);
    }
  }

 private:
  using Vec16 = device::Vec16;
  static constexpr int kMostTiles = kFewRoutedTokens / Mma::kMinTokens;
  static constexpr int kVecsOfStep = 4;
  static constexpr int kAhead = 4;  // steps of a wave whose operands are under way together

  __device__ __forceinline__ int Vecs() const { return p_.hidden / 8; }

  __device__ __forceinline__ void AddProducts(float (&sums)[kMostTiles][4]) const {
    const int steps = (Vecs() + kVecsOfStep - 1) / kVecsOfStep;
    const int of_part = (steps + kLogitParts - 1) / kLogitParts;
    const int begin = part_ * of_part;
    const int end = begin + of_part < steps ? begin + of_part : steps;
#pragma unroll 1
    for (int first = begin + device::Wave(); first < end; first += kAhead * kWaves) {
      Vec16 rows[kAhead][Mma::kRowParts];
      Vec16 tokens[kAhead][kMostTiles];
#pragma unroll
      for (int a = 0; a < kAhead; ++a) Load(first + a * kWaves, end, rows[a], tokens[a]);
#pragma unroll
      for (int a = 0; a < kAhead; ++a) {
        if (first + a * kWaves >= end) break;
#pragma unroll
        for (int tile = 0; tile < kMostTiles; ++tile) {
          if (tile * Mma::Tokens() >= p_.route.num_tokens) break;
          Mma::Multiply(rows[a], tokens[a][tile], sums[tile]);
        }
      }
    }
  }

  __device__ __forceinline__ void Load(int step, int end, Vec16 (&rows)[Mma::kRowParts],
                                       Vec16 (&tokens)[kMostTiles]) const {
    const int vec = step * kVecsOfStep + Mma::Group();
    const bool exists = step < end && vec < Vecs();
#pragma unroll
    for (int part = 0; part < Mma::kRowParts; ++part) {
      const int row = first_row_ + Mma::Row(part);
      rows[part] = {};
      if (exists && row < p_.logit_rows) {
        rows[part] = static_cast<const Vec16*>(p_.router)[row * Vecs() + vec];
      }
    }
#pragma unroll
    for (int tile = 0; tile < kMostTiles; ++tile) {
      const int token = tile * Mma::Tokens() + Mma::Token();
      tokens[tile] = {};
      if (exists && token < p_.route.num_tokens) {
        tokens[tile] = static_cast<const Vec16*>(p_.x)[token * Vecs() + vec];
      }
    }
  }

  const FewTokensParams& p_;
  const int first_row_;
  const int part_;
  Shared& shared_;
};

}  // namespace octet::routing

#endif  // OCTET_KERNELS_ROUTER_LOGIT_PARTS_H_
