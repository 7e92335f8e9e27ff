// Weighted sums of rows in float32, one row after the other. Each product and each sum is rounded,
// and the result is rounded to the element type at the end.
#ifndef OCTET_KERNELS_DEVICE_ROW_SUM_H_
#define OCTET_KERNELS_DEVICE_ROW_SUM_H_

#include <cstdint>

#include "device_ops.h"
#include "kernels/device/row_codec.h"

namespace octet::device {

// y[i] = Σ weight(k) · row(k)[i] (+ bias[i]) over the k < n whose bit is set in `present`,
// ascending, for i = begin + lane, begin + lane + step, ... below `end`. With `scaled`, rows are
// first multiplied by scale(k) and rounded. Called by all lanes of a wave with the same arguments;
// the functors may shuffle. `bias` may be null. A lane has kVecs vectors of each of kRows rows in
// flight.
template <typename Codec, int kVecs, int kRows, typename RowOf, typename WeightOf, typename ScaleOf>
__device__ __forceinline__ void SumScaledRows(Vec16* y, int n, uint32_t present, RowOf row,
                                              WeightOf weight, bool scaled, ScaleOf scale,
                                              const Vec16* bias, int begin, int end, int step) {
  static_assert(32 % kRows == 0, "bits of `present`");
  for (int chunk = begin; chunk < end; chunk += kVecs * step) {
    const int first = chunk + Lane();
    float sum[kVecs][kElementsPerVec] = {};
    for (int k = 0; k < n; k += kRows) {
      Vec16 v[kRows][kVecs];
#pragma unroll
      for (int u = 0; u < kRows; ++u) {
        if (((present >> (k + u)) & 1) == 0) continue;
        const Vec16* from = row(k + u) + first;
#pragma unroll
        for (int c = 0; c < kVecs; ++c) {
          if (first + c * step < end) v[u][c] = LoadStream(from + c * step);
        }
      }
#pragma unroll
      for (int u = 0; u < kRows; ++u) {
        if (((present >> (k + u)) & 1) == 0) continue;
        const float w = weight(k + u);
        const float s = scaled ? scale(k + u) : 1.0F;
#pragma unroll
        for (int c = 0; c < kVecs; ++c) {
          if (first + c * step >= end) continue;
          if (scaled) v[u][c] = Scale<Codec>(v[u][c], s);
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
template <typename Codec, int kVecs, int kRows, typename RowOf, typename WeightOf>
__device__ __forceinline__ void SumRows(Vec16* y, int n, uint32_t present, RowOf row,
                                        WeightOf weight, const Vec16* bias, int begin, int end,
                                        int step) {
  SumScaledRows<Codec, kVecs, kRows>(
      y, n, present, row, weight, false, [](int) { return 1.0F; }, bias, begin, end, step);
}

}  // namespace octet::device

#endif  // OCTET_KERNELS_DEVICE_ROW_SUM_H_
