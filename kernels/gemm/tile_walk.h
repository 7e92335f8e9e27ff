// The order in which the tiles of a grouped product are computed.
//
// A *unit* is what a block, or a cluster of blocks, takes at once: one tile, or two that share an
// operand. Units are numbered expert by expert. Within an expert they run through groups of row
// tiles, column by column, so that the units that are computed at the same time read the same rows
// and weights.
#ifndef OCTET_KERNELS_GEMM_TILE_WALK_H_
#define OCTET_KERNELS_GEMM_TILE_WALK_H_

#include <hip/hip_runtime.h>

#include <cstdint>

#include "device_ops.h"
#include "runtime/platform/gemm_call.h"

namespace octet {

// Rows [first, end) of an expert.
struct ExpertRows {
  int first;
  int end;
};

// Sets rows[e] to those of expert e. `counts` may be null: up to the next offset. Rows that there
// is no memory for are left out, whatever the offsets say. Called by all threads of a block, which
// must then synchronize.
__device__ inline void FindExpertRows(const device::GemmOperands& p, const int32_t* offsets,
                                      const int32_t* counts, ExpertRows* rows) {
  const auto clamp = [&p](int64_t row) {
    return static_cast<int>(row < 0 ? 0 : (row < p.rows ? row : p.rows));
  };
  for (int e = static_cast<int>(threadIdx.x); e < p.experts; e += static_cast<int>(blockDim.x)) {
    const int64_t first = offsets[e];
    const int64_t end = counts != nullptr ? first + counts[e] : offsets[e + 1];
    rows[e].first = clamp(first);
    rows[e].end = clamp(end);
    if (rows[e].end < rows[e].first) rows[e].end = rows[e].first;
  }
}

// Finds tiles by the numbers of their units, which must not descend. Every thread that needs tiles
// has a walk of its own.
//
// If a unit has two tiles, they are two row tiles of the same columns. Where the number of row
// tiles is odd, the units of the last one are two column tiles of the same rows; the second may lie
// beyond the last column.
template <typename Gemm>
class TileWalk {
 public:
  static_assert(Gemm::kTilesPerUnit == 1 || Gemm::kTilesPerUnit == 2);

  // All rows are there when the kernel starts, and nobody waits for the product while it runs.
  static constexpr bool kAwaits = false;
  static constexpr bool kTells = false;

  // `rows` [experts], in memory that stays.
  __device__ TileWalk(const ExpertRows* rows, int experts, int n)
      : rows_(rows), experts_(experts), column_tiles_((n + Gemm::kColumns - 1) / Gemm::kColumns) {}

  // Goes to `unit`; false if there are not so many.
  __device__ __forceinline__ bool Find(int unit) {
    while (unit >= first_unit_ + units_of_expert_) {
      first_unit_ += units_of_expert_;
      units_of_expert_ = 0;
      if (expert_ + 1 >= experts_) return false;
      ++expert_;
      row_tiles_ = (rows_[expert_].end - rows_[expert_].first + Gemm::kRows - 1) / Gemm::kRows;
      units_of_expert_ = row_tiles_ / kPair * column_tiles_;
      if (kPair == 2 && row_tiles_ % 2 != 0) units_of_expert_ += (column_tiles_ + 1) / 2;
    }
    Place(unit - first_unit_);
    return true;
  }

  // How many units there are, after Find() has returned false.
  __device__ int units() const { return first_unit_; }
  // How many blocks of the grid multiply.
  __device__ int blocks() const { return static_cast<int>(gridDim.x); }
  // Whether a thread that has waited so many ticks for other warps gives up. They wait for nobody
  // else, so this is long.
  __device__ bool GivesUp(uint64_t waited) const {
    constexpr uint64_t kSeconds = 60;
    return waited > kSeconds * device::kClockHz;
  }
  __device__ void TellStuck() const {}  // nobody is told, but the kernel has an error

  // Whether the tiles of the unit have the same rows, instead of the same columns.
  __device__ bool SameRows() const { return same_rows_; }

  // A tile of the unit: `member` < Gemm::kTilesPerUnit. Its column may be n or more.
  __device__ __forceinline__ device::GemmTile Tile(int member) const {
    const int row_tile = row_tile_ + (same_rows_ ? 0 : member);
    const int column_tile = column_tile_ + (same_rows_ ? member : 0);
    const int row = rows_[expert_].first + row_tile * Gemm::kRows;
    return {expert_, row, rows_[expert_].end - row, column_tile * Gemm::kColumns};
  }

 private:
  static constexpr int kPair = Gemm::kTilesPerUnit;
  static constexpr int kGroup = Gemm::kRowUnitsPerGroup;

  __device__ __forceinline__ void Place(int index) {
    const int rows = row_tiles_ / kPair;
    same_rows_ = kPair == 2 && index >= rows * column_tiles_;
    if (same_rows_) {
      row_tile_ = row_tiles_ - 1;
      column_tile_ = (index - rows * column_tiles_) * 2;
      return;
    }
    const int group = index / (kGroup * column_tiles_);
    const int in_group = index - group * kGroup * column_tiles_;
    const int left = rows - group * kGroup;
    const int group_rows = left < kGroup ? left : kGroup;
    column_tile_ = in_group / group_rows;
    row_tile_ = (group * kGroup + in_group - column_tile_ * group_rows) * kPair;
  }

  const ExpertRows* rows_;
  int experts_;
  int column_tiles_;
  int expert_ = -1;
  int first_unit_ = 0;  // of expert_
  int units_of_expert_ = 0;
  int row_tiles_ = 0;
  int row_tile_ = 0;
  int column_tile_ = 0;
  bool same_rows_ = false;
};

}  // namespace octet

#endif  // OCTET_KERNELS_GEMM_TILE_WALK_H_
