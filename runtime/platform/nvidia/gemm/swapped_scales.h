// The scales of a tile of few FP8 rows.
#ifndef OCTET_RUNTIME_PLATFORM_NVIDIA_GEMM_SWAPPED_SCALES_H_
#define OCTET_RUNTIME_PLATFORM_NVIDIA_GEMM_SWAPPED_SCALES_H_

#include <cuda_runtime.h>

#include <cstdint>

#include "gemm/pipeline.h"
#include "gemm/swapped_shared.h"
#include "runtime/platform/gemm_call.h"
#include "runtime/platform/gemm_scales.h"

namespace octet::device::internal {

// The scales of a tile, read a stage ahead: of the thread's rows and of the tile's columns.
template <int kRows, bool gated>
class SwappedScales {
  static constexpr int kOwnRows = kRows / 4;
  static constexpr int kKinds = gated ? 2 : 1;  // of columns: gate and up

 public:
  struct Factors {
    float of[kKinds][kOwnRows];
  };

  __device__ __forceinline__ SwappedScales(const GemmOperands& p, const GemmTile& tile)
      : rows_(ScaleRows::OfRows(p.scales, tile.row)),
        columns_(ScaleRows::OfColumns<gated>(p, tile.expert, min(tile.column, p.n - 1))),
        up_row_(ScaleRows::UpRow(p)),
        last_row_(tile.rows - 1) {
    Read(0);
  }

  // Sets the factors of `stage`, which was read last, and reads the next stage's.
  __device__ __forceinline__ void Take(int stage, int stages, Factors& factors) {
#pragma unroll
    for (int kind = 0; kind < kKinds; ++kind) {
      const float of_columns = columns_.ScaleOf(column_words_[kind], stage);
#pragma unroll
      for (int i = 0; i < kOwnRows; ++i) {
        factors.of[kind][i] = rows_.ScaleOf(row_words_[i], stage) * of_columns;
      }
    }
    Read(min(stage + 1, stages - 1));
  }

 private:
  // Rows beyond the last repeat it.
  __device__ __forceinline__ void Read(int stage) {
#pragma unroll
    for (int i = 0; i < kOwnRows; ++i) {
      row_words_[i] = rows_.WordAt(min(OwnSwappedRow(i / 2 * 4 + i % 2), last_row_), stage);
    }
#pragma unroll
    for (int kind = 0; kind < kKinds; ++kind) {
      column_words_[kind] = columns_.WordAt(kind * up_row_, stage);
    }
  }

  ScaleRows rows_;
  ScaleRows columns_;
  int up_row_;  // of columns_
  int last_row_;
  uint32_t row_words_[kOwnRows];
  uint32_t column_words_[kKinds];
};

}  // namespace octet::device::internal

#endif  // OCTET_RUNTIME_PLATFORM_NVIDIA_GEMM_SWAPPED_SCALES_H_
