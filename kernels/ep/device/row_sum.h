// Weighted sums of rows in float32, one row after the other. Each product and each sum is rounded,
// and the result is rounded to the element type at the end.
#ifndef OCTET_KERNELS_EP_DEVICE_ROW_SUM_H_
#define OCTET_KERNELS_EP_DEVICE_ROW_SUM_H_

#include <cstdint>

#include "device_ops.h"
#include "kernels/types/row_codec.h"

namespace octet::device {

// The rows k < `n` whose bit is set in `present`. row(k): the first vector of a row; weight(k): its
// factor in a sum.
template <typename RowOf, typename WeightOf>
struct WeightedRows {
  int n;
  uint32_t present;
  RowOf row;
  WeightOf weight;
};
template <typename RowOf, typename WeightOf>
WeightedRows(int, uint32_t, RowOf, WeightOf) -> WeightedRows<RowOf, WeightOf>;

// If `scaled`, rows are multiplied by of(k) and rounded before they are weighted.
template <typename ScaleOf>
struct RowScale {
  bool scaled;
  ScaleOf of;
};
template <typename ScaleOf>
RowScale(bool, ScaleOf) -> RowScale<ScaleOf>;

// The vectors of a row that a wave sums: begin + lane, begin + lane + step, ... below `end`.
struct Columns {
  int begin;
  int end;
  int step;
};

// Returns how many vectors these are, with a step of the wave's lanes or more.
__device__ __forceinline__ int VecsOf(const Columns& columns) {
  if (columns.begin >= columns.end) return 0;
  const int whole = (columns.end - columns.begin - 1) / columns.step;
  const int left = columns.end - columns.begin - whole * columns.step;
  return whole * kWaveSize + (left < kWaveSize ? left : kWaveSize);
}

// Stores y[i] = Σ weight(k) · row(k)[i] (+ bias[i]) over `rows`, k ascending, for i in `columns`.
// Called by all lanes of a wave with the same arguments; the functors may shuffle. `bias` may be
// null. A lane has kVecs vectors of each of kRows rows in flight.
template <typename Codec, int kVecs, int kRows, typename Rows, typename Scaling>
__device__ __forceinline__ void SumScaledRows(Vec16* y, const Rows& rows, const Scaling& scale,
                                              const Vec16* bias, const Columns& columns) {
  const int end = columns.end;
  const int step = columns.step;
  static_assert(32 % kRows == 0, "bits of `present`");
  for (int chunk = columns.begin; chunk < end; chunk += kVecs * step) {
    const int first = chunk + Lane();
    float sum[kVecs][kElementsPerVec] = {};
    for (int k = 0; k < rows.n; k += kRows) {
      Vec16 v[kRows][kVecs];
#pragma unroll
      for (int u = 0; u < kRows; ++u) {
        if (((rows.present >> (k + u)) & 1) == 0) continue;
        const Vec16* from = rows.row(k + u) + first;
#pragma unroll
        for (int c = 0; c < kVecs; ++c) {
          if (first + c * step < end) v[u][c] = LoadStream(from + c * step);
        }
      }
#pragma unroll
      for (int u = 0; u < kRows; ++u) {
        if (((rows.present >> (k + u)) & 1) == 0) continue;
        const float w = rows.weight(k + u);
        const float s = scale.scaled ? scale.of(k + u) : 1.0F;
#pragma unroll
        for (int c = 0; c < kVecs; ++c) {
          if (first + c * step >= end) continue;
          if (scale.scaled) v[u][c] = Scale<Codec>(v[u][c], s);
          Accumulate<Codec>(sum[c], v[u][c], w);
        }
      }
    }
#pragma unroll
    for (int c = 0; c < kVecs; ++c) {
      const int i = first + c * step;
      if (i >= end) continue;
      if (bias != nullptr) Accumulate<Codec>(sum[c], bias[i], 1.0F);
      StoreStream(y + i, Round<Codec>(sum[c]));
    }
  }
}

// The same for rows that are not scaled.
template <typename Codec, int kVecs, int kRows, typename Rows>
__device__ __forceinline__ void SumRows(Vec16* y, const Rows& rows, const Vec16* bias,
                                        const Columns& columns) {
  const RowScale unscaled = {false, [](int) { return 1.0F; }};
  SumScaledRows<Codec, kVecs, kRows>(y, rows, unscaled, bias, columns);
}

}  // namespace octet::device

#endif  // OCTET_KERNELS_EP_DEVICE_ROW_SUM_H_
