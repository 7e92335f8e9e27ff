// The scales of a tile of many FP8 rows, on their way from global memory to the sums of a stage.
#ifndef OCTET_RUNTIME_PLATFORM_NVIDIA_GEMM_ROWS_SCALES_H_
#define OCTET_RUNTIME_PLATFORM_NVIDIA_GEMM_ROWS_SCALES_H_

#include <cuda_runtime.h>

#include <cstdint>

#include "gemm/pipeline.h"
#include "runtime/platform/gemm_call.h"
#include "runtime/platform/gemm_scales.h"

namespace octet::device::internal {

// The first of the two rows of the tile that the thread's sums belong to; the other is 8 more.
__device__ __forceinline__ int OwnWgmmaRow() {
  return static_cast<int>(threadIdx.x) / 32 % 4 * 16 + Lane() / 4;
}

// The scales of a tile, read a stage ahead: of the thread's two rows and of the tile's columns.
template <int columns, bool gated>
class RowsStageScales {
  // Of the columns: of gate and of up, which have one each in a tile, or one of each 128.
  static_assert(!gated || 2 * kGemmScaleGroup % columns == 0);
  static constexpr int kColumnScales = gated ? 2 : columns / kGemmScaleGroup;

 public:
  __device__ __forceinline__ RowsStageScales(const GemmOperands& p, const GemmTile& tile)
      : rows_(ScaleRows::OfRows(p.scales, tile.row)),
        columns_(ScaleRows::OfColumns<gated>(p, tile.expert, tile.column)),
        last_row_(tile.rows - 1),
        last_column_row_(gated ? ScaleRows::UpRow(p) : (p.n - 1 - tile.column) / kGemmScaleGroup) {
    Read(0);
  }

  struct Scales {
    float of_rows[2];
    float of_columns[kColumnScales];
  };
  // Returns the scales of `stage`, which was read last.
  __device__ __forceinline__ Scales Of(int stage) const {
    Scales scales;
#pragma unroll
    for (int i = 0; i < 2; ++i) scales.of_rows[i] = rows_.ScaleOf(row_words_[i], stage);
#pragma unroll
    for (int i = 0; i < kColumnScales; ++i) {
      scales.of_columns[i] = columns_.ScaleOf(column_words_[i], stage);
    }
    return scales;
  }

  // Rows and columns beyond the last repeat it.
  __device__ __forceinline__ void Read(int stage) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      row_words_[i] = rows_.WordAt(min(OwnWgmmaRow() + i * 8, last_row_), stage);
    }
#pragma unroll
    for (int i = 0; i < kColumnScales; ++i) {
      const int row = gated ? i * last_column_row_ : min(i, last_column_row_);
      column_words_[i] = columns_.WordAt(row, stage);
    }
  }

 private:
  ScaleRows rows_;
  ScaleRows columns_;
  int last_row_;
  int last_column_row_;  // of columns_: that of up, or of the last column
  uint32_t row_words_[2];
  uint32_t column_words_[kColumnScales];
};

}  // namespace octet::device::internal

#endif  // OCTET_RUNTIME_PLATFORM_NVIDIA_GEMM_ROWS_SCALES_H_
