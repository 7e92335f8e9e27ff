// The scales of a tile of many FP8 rows: from global memory, by a warp that multiplies nothing, to
// shared memory, from which the multiplying warps take them.
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

// What the scales of a stage of a tile are in shared memory: those of 128 rows, then those of the
// columns.
template <int columns, bool gated>
struct StageScalesOf {
  static constexpr int kRows = 128;
  // So many columns have one scale, wherever a tile begins. If gated, one of gate and one of up.
  static constexpr int kColumnsOfOne =
      columns % kGemmScaleGroup != 0 ? kGemmScaleGroup / 2 : (gated ? columns : kGemmScaleGroup);
  static constexpr int kKinds = gated ? 2 : 1;
  static constexpr int kNumber = columns / kColumnsOfOne * kKinds;  // of scales of columns
  static_assert(!gated || 2 * kGemmScaleGroup % kColumnsOfOne == 0);
  static constexpr uint32_t kColumnsAt = kRows * 4;
  static constexpr int kChunks = (kNumber + 3) / 4;  // of 16 bytes, of scales of columns
  static constexpr uint32_t kBytes = kColumnsAt + kChunks * 16;

  // Returns the scale of the columns of sum j of a thread: eight of gate, eight of up in turn.
  static constexpr int IndexOf(int j) {
    return j / 4 * 8 / kColumnsOfOne * kKinds + (gated ? j / 4 % 2 : 0);
  }
};

// Brings the scales of a tile to shared memory, one stage after the other. By a whole warp, of
// which each lane has four rows, and some have one scale of the columns.
template <int columns, bool gated>
class StageScalesWriter {
  using Scales = StageScalesOf<columns, gated>;
  static constexpr int kWarp = 32;
  static constexpr int kOwnRows = Scales::kRows / kWarp;

 public:
  // Rows and columns beyond the last repeat it.
  __device__ __forceinline__ StageScalesWriter(const GemmOperands& p, const GemmTile& tile) {
    const ScaleRows of_rows = ScaleRows::OfRows(p.scales, tile.row);
#pragma unroll
    for (int i = 0; i < kOwnRows; ++i) {
      rows_[i] = of_rows.RowAt(min(Lane() + i * kWarp, tile.rows - 1));
    }
    constexpr int kGroup = gated ? 2 * kGemmScaleGroup : kGemmScaleGroup;
    const int i = min(Lane(), Scales::kNumber - 1);
    const int column = min(tile.column + i / Scales::kKinds * Scales::kColumnsOfOne, p.n - 1);
    const int up = gated && i % 2 == 1 ? ScaleRows::UpRow(p) : 0;
    columns_ = ScaleRows::OfColumns<gated>(p, tile.expert, 0).RowAt(column / kGroup + up);
  }

  // Writes the scales of `stage` to `to`, and arrives at the barrier, every lane once, when they
  // are there.
  template <bool ue8m0>
  __device__ __forceinline__ void Write(int stage, uint32_t to, uint32_t barrier) const {
    const uint32_t own = to + static_cast<uint32_t>(Lane()) * 4;
    const int word = ScaleRows::WordOf<ue8m0>(stage);
    if constexpr (ue8m0) {
      float scales[kOwnRows];
#pragma unroll
      for (int i = 0; i < kOwnRows; ++i) {
        scales[i] = ScaleRows::ScaleOf<ue8m0>(rows_[i][word], stage);
      }
      const float of_columns = ScaleRows::ScaleOf<ue8m0>(columns_[word], stage);
#pragma unroll
      for (int i = 0; i < kOwnRows; ++i) StoreFloatShared(own + i * kWarp * 4, scales[i]);
      if (Lane() < Scales::kNumber) StoreFloatShared(own + Scales::kColumnsAt, of_columns);
      Arrive(barrier);
    } else {
#pragma unroll
      for (int i = 0; i < kOwnRows; ++i) CopyWord(own + i * kWarp * 4, rows_[i] + word);
      if (Lane() < Scales::kNumber) CopyWord(own + Scales::kColumnsAt, columns_ + word);
      ArriveWithCopies(barrier);
    }
  }

 private:
  const uint32_t* rows_[kOwnRows];
  const uint32_t* columns_;
};

// The factors of a thread's sums of a stage: the products of the scales of its two rows and of its
// columns.
template <int columns, bool gated>
class StageFactors {
  using Scales = StageScalesOf<columns, gated>;

 public:
  // `from`: the scales of the stage. `own`: among them that of the first of the thread's two rows;
  // the other is 8 more.
  __device__ __forceinline__ StageFactors(uint32_t from, uint32_t own) {
    float of_rows[2];
    asm volatile("ld.shared.f32 %0, [%1];" : "=f"(of_rows[0]) : "r"(own) : "memory");
    asm volatile("ld.shared.f32 %0, [%1];" : "=f"(of_rows[1]) : "r"(own + 8 * 4) : "memory");
#pragma unroll
    for (int i = 0; i < Scales::kNumber; i += 4) {
      float v[4];
      asm volatile("ld.shared.v4.f32 {%0,%1,%2,%3}, [%4];"
                   : "=f"(v[0]), "=f"(v[1]), "=f"(v[2]), "=f"(v[3])
                   : "r"(from + Scales::kColumnsAt + i * 4)
                   : "memory");
#pragma unroll
      for (int j = i; j < i + 4 && j < Scales::kNumber; ++j) {
        of_[0][j] = of_rows[0] * v[j - i];
        of_[1][j] = of_rows[1] * v[j - i];
      }
    }
  }

  // Returns that of sum j.
  __device__ __forceinline__ float Of(int j) const { return of_[j / 2 % 2][Scales::IndexOf(j)]; }

 private:
  float of_[2][Scales::kNumber];
};

}  // namespace octet::device::internal

#endif  // OCTET_RUNTIME_PLATFORM_NVIDIA_GEMM_ROWS_SCALES_H_
