// The scales of a tile of many FP8 rows: from global memory, by a warp that multiplies nothing, to
// shared memory, from which the multiplying warps take them.
#ifndef OCTET_RUNTIME_PLATFORM_NVIDIA_GEMM_ROWS_SCALES_H_
#define OCTET_RUNTIME_PLATFORM_NVIDIA_GEMM_ROWS_SCALES_H_

#include <cuda_runtime.h>

#include <cstdint>

#include "gemm/mxfp4_fp8.h"
#include "gemm/pipeline.h"
#include "runtime/platform/gemm_call.h"
#include "runtime/platform/gemm_scales.h"

namespace octet::device::internal {

// Scales of this many stages, a round of the ring, lie together in shared memory: those of 128
// rows, [row][stage], so that a row's are 16 bytes, then those of the columns,
// [stage][kColumnsPitch].
inline constexpr int kScaleStages = 4;

// Whether a row's scales of a round are copied at once.
__device__ __forceinline__ bool ScalesComeInRounds(const GemmOperands& p, int stages) {
  const bool aligned =
      p.scales.row_words % 4 == 0 && reinterpret_cast<uintptr_t>(p.scales.a) % 16 == 0;
  return stages % kScaleStages == 0 && (p.scales.ue8m0 || aligned);
}

// `one`: 0, or how many columns have one scale.
template <int columns, bool gated, int one = 0>
struct StageScalesOf {
  static constexpr int kRows = 128;
  static constexpr uint32_t kRowPitch = kScaleStages * 4;
  // So many columns have one scale, wherever a tile begins. If gated, one of gate and one of up.
  static constexpr int kColumnsOfOne = one > 0 ? one
                                       : columns % kGemmScaleGroup != 0
                                           ? kGemmScaleGroup / 2
                                           : (gated ? columns : kGemmScaleGroup);
  static constexpr int kKinds = gated ? 2 : 1;
  static constexpr int kNumber = columns / kColumnsOfOne * kKinds;  // of scales of columns
  static_assert(!gated || 2 * kGemmScaleGroup % kColumnsOfOne == 0);
  static_assert(kNumber * kScaleStages <= 32, "a lane has at most one of a round");
  static constexpr uint32_t kColumnsAt = kRows * kRowPitch;
  static constexpr uint32_t kColumnsPitch = (kNumber + 3) / 4 * 16;
  static constexpr uint32_t kBytes = kColumnsAt + kScaleStages * kColumnsPitch;

  // Returns the scale of the columns of sum j of a thread: eight of gate, eight of up in turn.
  static constexpr int IndexOf(int j) {
    return j / 4 * 8 / kColumnsOfOne * kKinds + (gated ? j / 4 % 2 : 0);
  }
};

// Brings the scales of a tile to shared memory, one stage or one round after the other. By a whole
// warp, of which each lane has four rows, and some have a scale of the columns.
template <int columns, bool gated, bool of_rows_alone>
class StageScalesWriter {
  using Scales = StageScalesOf<columns, gated>;
  static constexpr int kWarp = 32;
  static constexpr int kOwnRows = Scales::kRows / kWarp;

 public:
  // Rows and columns beyond the last repeat it.
  __device__ __forceinline__ StageScalesWriter(const GemmOperands& p, const GemmTile& tile,
                                               bool in_rounds) {
    const ScaleRows of_rows = ScaleRows::OfRows(p.scales, tile.row);
#pragma unroll
    for (int i = 0; i < kOwnRows; ++i) {
      rows_[i] = of_rows.RowAt(min(Lane() + i * kWarp, tile.rows - 1));
    }
    if constexpr (of_rows_alone) return;
    constexpr int kGroup = gated ? 2 * kGemmScaleGroup : kGemmScaleGroup;
    stage_ = in_rounds ? Lane() % kScaleStages : 0;
    number_ = in_rounds ? Lane() / kScaleStages : Lane();
    const int i = min(number_, Scales::kNumber - 1);
    const int column = min(tile.column + i / Scales::kKinds * Scales::kColumnsOfOne, p.n - 1);
    const int up = gated && i % 2 == 1 ? ScaleRows::UpRow(p) : 0;
    columns_ = ScaleRows::OfColumns<gated>(p, tile.expert, 0).RowAt(column / kGroup + up);
  }

  // Writes the scales of `stage` to their place in the round at `to`, and arrives at the barrier,
  // every lane once, when they are there.
  template <bool ue8m0>
  __device__ __forceinline__ void Write(int stage, int place, uint32_t to, uint32_t barrier) const {
    const uint32_t own = to + static_cast<uint32_t>(Lane()) * Scales::kRowPitch + place * 4;
    const int word = ScaleRows::WordOf<ue8m0>(stage);
    if constexpr (ue8m0) {
      float scales[kOwnRows];
#pragma unroll
      for (int i = 0; i < kOwnRows; ++i) {
        scales[i] = ScaleRows::ScaleOf<ue8m0>(rows_[i][word], stage);
      }
#pragma unroll
      for (int i = 0; i < kOwnRows; ++i) {
        StoreFloatShared(own + i * kWarp * Scales::kRowPitch, scales[i]);
      }
    } else {
#pragma unroll
      for (int i = 0; i < kOwnRows; ++i) {
        CopyWord(own + i * kWarp * Scales::kRowPitch, rows_[i] + word);
      }
    }
    WriteColumns<ue8m0>(stage, to + place * Scales::kColumnsPitch, barrier);
  }

  // The same for a round that begins with `stage`.
  template <bool ue8m0>
  __device__ __forceinline__ void WriteRound(int stage, uint32_t to, uint32_t barrier) const {
    const uint32_t own = to + static_cast<uint32_t>(Lane()) * Scales::kRowPitch;
    const int word = ScaleRows::WordOf<ue8m0>(stage);
    if constexpr (ue8m0) {
      uint32_t words[kOwnRows];
#pragma unroll
      for (int i = 0; i < kOwnRows; ++i) words[i] = rows_[i][word];
#pragma unroll
      for (int i = 0; i < kOwnRows; ++i) {
        StoreFloatsShared(
            own + i * kWarp * Scales::kRowPitch, ScaleRows::ScaleOf<true>(words[i], 0),
            ScaleRows::ScaleOf<true>(words[i], 1), ScaleRows::ScaleOf<true>(words[i], 2),
            ScaleRows::ScaleOf<true>(words[i], 3));
      }
    } else {
#pragma unroll
      for (int i = 0; i < kOwnRows; ++i) {
        CopyChunk(own + i * kWarp * Scales::kRowPitch, rows_[i] + word);
      }
    }
    WriteColumns<ue8m0>(stage, to, barrier);
  }

 private:
  template <bool ue8m0>
  __device__ __forceinline__ void WriteColumns(int stage, uint32_t to, uint32_t barrier) const {
    if constexpr (of_rows_alone) {
      if constexpr (ue8m0) {
        Arrive(barrier);
      } else {
        ArriveWithCopies(barrier);
      }
      return;
    }
    to += Scales::kColumnsAt + stage_ * Scales::kColumnsPitch + number_ * 4;
    const uint32_t* const from = columns_ + ScaleRows::WordOf<ue8m0>(stage + stage_);
    if constexpr (ue8m0) {
      const float scale = ScaleRows::ScaleOf<ue8m0>(*from, stage + stage_);
      if (number_ < Scales::kNumber) StoreFloatShared(to, scale);
      Arrive(barrier);
    } else {
      if (number_ < Scales::kNumber) CopyWord(to, from);
      ArriveWithCopies(barrier);
    }
  }

  const uint32_t* rows_[kOwnRows];
  // The lane's scale of the columns: of this stage of a round, and which one.
  const uint32_t* columns_;
  int stage_;
  int number_;
};

// The factors of a thread's sums of a stage: the products of the scales of its two rows and of its
// columns; `apart`: a float in each 16 bytes.
template <typename Scales, bool apart>
class StageFactors {
 public:
  // `own`: the scale of the first of the thread's two rows; the other is 8 more.
  __device__ __forceinline__ StageFactors(uint32_t own, uint32_t of_columns) {
    const float of_rows[] = {LoadFloat(own), LoadFloat(own + 8 * Scales::kRowPitch)};
#pragma unroll
    for (int i = 0; i < Scales::kNumber; i += kTogether) {
      float v[4];
      if constexpr (apart) {
        v[0] = LoadFloat(of_columns + i * 16);
      } else {
        asm volatile("ld.shared.v4.f32 {%0,%1,%2,%3}, [%4];"
                     : "=f"(v[0]), "=f"(v[1]), "=f"(v[2]), "=f"(v[3])
                     : "r"(of_columns + i * 4)
                     : "memory");
      }
#pragma unroll
      for (int j = i; j < i + kTogether && j < Scales::kNumber; ++j) {
        of_[0][j] = of_rows[0] * v[j - i];
        of_[1][j] = of_rows[1] * v[j - i];
      }
    }
  }

  // Returns that of sum j.
  __device__ __forceinline__ float Of(int j) const { return of_[j / 2 % 2][Scales::IndexOf(j)]; }

 private:
  static constexpr int kTogether = apart ? 1 : 4;

  static __device__ __forceinline__ float LoadFloat(uint32_t from) {
    float value;
    asm volatile("ld.shared.f32 %0, [%1];" : "=f"(value) : "r"(from) : "memory");
    return value;
  }

  float of_[2][Scales::kNumber];
};

}  // namespace octet::device::internal

#endif  // OCTET_RUNTIME_PLATFORM_NVIDIA_GEMM_ROWS_SCALES_H_
