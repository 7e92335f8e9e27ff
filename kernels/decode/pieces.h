// A lane's operands of the product of a piece (strips.h), and the store of a token's output.
#ifndef OCTET_KERNELS_DECODE_PIECES_H_
#define OCTET_KERNELS_DECODE_PIECES_H_

#include <cstddef>
#include <cstdint>

#include "device_ops.h"
#include "kernels/decode/kernels.h"
#include "kernels/decode/strips.h"
#include "kernels/types/row_codec.h"

namespace octet::decode {

// The lane's part of a token's row in the columns of a piece, in registers.
template <typename W, typename RowMma, int row_bytes>
class PieceTokens {
 public:
  PieceTokens() = default;
  // `row` has `columns` elements of the dtype; nullptr: zeros.
  __device__ __forceinline__ PieceTokens(const char* row, int piece, int columns) {
#pragma unroll
    for (int i = 0; i < kVecs; ++i) {
      const int chunk = i / W::kOperands * kGroups + RowMma::Group();
      const int column = piece * (row_bytes * 8 / W::kBits) + chunk * kChunkColumns +
                         i % W::kOperands * device::kElementsPerVec;
      vecs_[i] = {};
      if (row != nullptr && column < columns) {
        vecs_[i] = W::InOrder(*reinterpret_cast<const device::Vec16*>(row + column * 2));
      }
    }
  }

  // Adds the products with the piece of weights at `data`, which its exponents follow, if it has any.
  __device__ __forceinline__ void Multiply(const char* data, float (&sums)[4]) const {
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
      device::Vec16 bytes[RowMma::kRowParts];
      uint32_t exponents[RowMma::kRowParts] = {};
#pragma unroll
      for (int part = 0; part < RowMma::kRowParts; ++part) {
        const int chunk = step * kGroups + RowMma::Group();
        const int row = RowMma::Row(part);
        bytes[part] =
            *reinterpret_cast<const device::Vec16*>(data + PieceOffset<row_bytes>(row, chunk));
        if constexpr (W::kOfBlocks) {
          const char* const of_row =
              data + kPieceRows * row_bytes + row * (row_bytes / kChunkBytes);
          exponents[part] = static_cast<uint8_t>(of_row[chunk]);
        }
      }
#pragma unroll
      for (int index = 0; index < W::kOperands; ++index) {
        device::Vec16 operands[RowMma::kRowParts];
#pragma unroll
        for (int part = 0; part < RowMma::kRowParts; ++part) {
          operands[part] = W::Operand(bytes[part], index, exponents[part]);
        }
        RowMma::Multiply(operands, vecs_[step * W::kOperands + index], sums);
      }
    }
  }

 private:
  static constexpr int kGroups = 4;  // of lanes, each with 16 bytes of a row of weights
  static constexpr int kSteps = row_bytes / (kGroups * 16);
  static constexpr int kVecs = kSteps * W::kOperands;
  static constexpr int kChunkColumns = W::kOperands * device::kElementsPerVec;

  device::Vec16 vecs_[kVecs];
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
