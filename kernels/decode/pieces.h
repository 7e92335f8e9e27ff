// A lane's operands of the product of a piece (strips.h), and the store of a token's output.
#ifndef OCTET_KERNELS_DECODE_PIECES_H_
#define OCTET_KERNELS_DECODE_PIECES_H_

#include <cstddef>
#include <cstdint>

#include "device_ops.h"
#include "kernels/decode/kernels.h"
#include "kernels/decode/strips.h"
#include "kernels/types/row_codec.h"
#include "runtime/platform/box_shape.h"

namespace octet::decode {

// A lane's 16 bytes of each of its rows of a tile, and their exponents, if there are any. of_rows:
// so many rows of the tile are there.
template <typename W, typename RowMma, int rows, int row_bytes>
class LaneWeights {
 public:
  static constexpr int kGroups = 4;  // of lanes, each with 16 bytes of a row

  // `first_row`: the tile's, in the piece at `data`.
  __device__ __forceinline__ void Load(const char* data, int first_row, int of_rows, int step) {
    const int chunk = step * kGroups + RowMma::Group();
    const char* const tile = data + first_row * row_bytes;
#pragma unroll
    for (int part = 0; part < RowMma::kRowParts; ++part) {
      bytes_[part] = {};
      if (!HasPart(of_rows, part)) continue;
      bytes_[part] = *reinterpret_cast<const device::Vec16*>(tile + OffsetOf(part, chunk));
    }
  }
  // A word of them as the first one.
  __device__ __forceinline__ void LoadWord(const char* data, int first_row, int of_rows, int step,
                                           int word) {
    const int chunk = step * kGroups + RowMma::Group();
    const char* const tile = data + first_row * row_bytes;
#pragma unroll
    for (int part = 0; part < RowMma::kRowParts; ++part) {
      bytes_[part] = {};
      if (!HasPart(of_rows, part)) continue;
      const char* const bytes = tile + OffsetOf(part, chunk);
      bytes_[part].w[0] = reinterpret_cast<const uint32_t*>(bytes)[word];
    }
  }
  // `data`: those of the piece; `first`: of those in a row.
  __device__ __forceinline__ void LoadExponents(const char* data, int first, int first_row,
                                                int of_rows, int step) {
    const char* const tile = data + first_row * kChunkBytes;
#pragma unroll
    for (int part = 0; part < RowMma::kRowParts; ++part) {
      exponents_[part] = 0;
      if (!W::kOfBlocks || !HasPart(of_rows, part)) continue;
      const char* const of_row = tile + RowOf(part) * kChunkBytes;
      exponents_[part] = static_cast<uint8_t>(of_row[first + step * kGroups + RowMma::Group()]);
    }
  }
  __device__ __forceinline__ uint32_t LargestExponent() const {
    uint32_t largest = 0;
#pragma unroll
    for (const uint32_t exponent : exponents_) {
      if (exponent > largest) largest = exponent;
    }
    return largest;
  }
  template <bool usual>
  __device__ __forceinline__ void Multiply(int of_rows, int index, const device::Vec16& tokens,
                                           float (&sums)[4]) const {
    device::Vec16 operands[RowMma::kRowParts];
#pragma unroll
    for (int part = 0; part < RowMma::kRowParts; ++part) {
      operands[part] = {};
      if (!HasPart(of_rows, part)) continue;
      operands[part] = W::template Operand<usual>(bytes_[part], index, exponents_[part]);
    }
    RowMma::Multiply(operands, tokens, sums);
  }

  // The row of a tile that RowMma has in its place `row`. Lanes that read together have two of them
  // that follow each other, which must not meet in the banks of a box.
  static __device__ __forceinline__ int RowAt(int row) {
    if (!W::kOneToken) return row;
    return row / kGatedRows * kGatedRows + row % 2 * (kGatedRows / 2) + row % kGatedRows / 2;
  }

 private:
  static __device__ __forceinline__ bool HasPart(int of_rows, int part) {
    return RowMma::FirstRow(part) < of_rows;
  }
  static __device__ __forceinline__ int RowOf(int part) { return RowAt(RowMma::Row(part)); }
  static __device__ __forceinline__ int OffsetOf(int part, int chunk) {
    return W::kOneToken ? device::BoxOffset(RowOf(part), chunk)
                        : PieceOffset<row_bytes>(RowOf(part), chunk);
  }

  device::Vec16 bytes_[RowMma::kRowParts];
  uint32_t exponents_[RowMma::kRowParts];
};

// The lane's part of a token's row in the columns of a piece, in registers.
template <typename W, typename RowMma, int rows, int row_bytes>
class PieceTokens {
 public:
  static constexpr int kTiles = rows / kMmaRows;  // of rows that are multiplied together

  PieceTokens() = default;  // zeros
  // `row` has `columns` elements of the dtype; nullptr: zeros.
  __device__ __forceinline__ PieceTokens(const char* row, int piece, int columns)
      : exponents_(piece % 2 * (kChunkBytes / 2)) {
#pragma unroll
    for (int i = 0; i < kVecs; ++i) {
      const int chunk = i / W::kOperands * kGroups + RowMma::Group();
      const int column = piece * (row_bytes * 8 / W::kBits) + chunk * kChunkColumns +
                         i % W::kOperands * device::kElementsPerVec;
      vecs_[i] = {};
      if (row != nullptr && column < columns) {
        vecs_[i] = *reinterpret_cast<const device::Vec16*>(row + column * 2);
      }
    }
  }

  // Adds the products with the piece of weights at `data`, which its exponents follow, if it has
  // any. of_rows: so many of its rows, a multiple of eight; sums of others are not to be used.
  template <int of_rows>
  __device__ __forceinline__ void Multiply(const char* data, float (&sums)[kTiles][4]) const {
    constexpr int kOfTiles = (of_rows + kMmaRows - 1) / kMmaRows;
    Weights weights[kSteps][kOfTiles];
#pragma unroll
    for (int i = 0; i < kSteps * kOfTiles; ++i) {
      const int row = i % kOfTiles * kMmaRows;
      weights[i / kOfTiles][i % kOfTiles].LoadExponents(data + rows * row_bytes, exponents_, row,
                                                        of_rows - row, i / kOfTiles);
    }
    // Asked once for the piece, not for each operand: code without branches is much faster.
    if constexpr (!W::kOneConversion) {
      if (!AreUsual(weights)) {
        MultiplySteps<false, of_rows>(data, weights, sums);
        return;
      }
    }
    MultiplySteps<true, of_rows>(data, weights, sums);
  }

 private:
  using Weights = LaneWeights<W, RowMma, rows, row_bytes>;
  static constexpr int kGroups = Weights::kGroups;
  static constexpr int kSteps = row_bytes / (kGroups * 16);

  // Whether the quicker conversion has the scales of all lanes.
  template <int kOfTiles>
  static __device__ __forceinline__ bool AreUsual(const Weights (&weights)[kSteps][kOfTiles]) {
    uint32_t largest = 0;
#pragma unroll
    for (int i = 0; i < kSteps * kOfTiles; ++i) {
      const uint32_t exponent = weights[i / kOfTiles][i % kOfTiles].LargestExponent();
      if (exponent > largest) largest = exponent;
    }
    return device::AreUsualMxfp4Scales(largest);
  }
  template <bool usual, int of_rows, int kOfTiles>
  __device__ __forceinline__ void MultiplySteps(const char* data,
                                                Weights (&weights)[kSteps][kOfTiles],
                                                float (&sums)[kTiles][4]) const {
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
#pragma unroll
      for (int tile = 0; tile < kOfTiles; ++tile) {
        const int row = tile * kMmaRows;
        weights[step][tile].Load(data, row, of_rows - row, step);
      }
#pragma unroll
      for (int index = 0; index < W::kOperands; ++index) {
        const device::Vec16 tokens = W::InOrder(vecs_[step * W::kOperands + index]);
#pragma unroll
        for (int tile = 0; tile < kOfTiles; ++tile) {
          weights[step][tile].template Multiply<usual>(of_rows - tile * kMmaRows, index, tokens,
                                                       sums[tile]);
        }
      }
    }
  }

  static constexpr int kVecs = kSteps * W::kOperands;
  static constexpr int kChunkColumns = W::kOperands * device::kElementsPerVec;

  int exponents_ = 0;  // the piece's first of those of a row
  device::Vec16 vecs_[kVecs] = {};
};

// A thread adds and stores so many elements of a row together.
inline constexpr int kQuad = 4;

__device__ __forceinline__ void AddQuad(const float4& v, float4& sum) {
  sum.x = sum.x + v.x;
  sum.y = sum.y + v.y;
  sum.z = sum.z + v.z;
  sum.w = sum.w + v.w;
}

// Stores a quad of this rank's token `token`, from `column` on, as y.
template <typename Codec>
__device__ __forceinline__ void StoreRounded(const DecodeParams& p, int token, int column,
                                             const float4& v) {
  const size_t at = static_cast<size_t>(token) * static_cast<size_t>(p.layout.hidden) +
                    static_cast<size_t>(column);
  *reinterpret_cast<uint2*>(static_cast<char*>(p.y) + at * 2) =
      make_uint2(Codec::Pack(v.x, v.y), Codec::Pack(v.z, v.w));
}

}  // namespace octet::decode

#endif  // OCTET_KERNELS_DECODE_PIECES_H_
