// Weighted sums of rows, in float32: one row after the other, a rounding for each product and one
// for each sum, and one to the element type at the end.
#ifndef OCTET_KERNELS_DEVICE_ROW_SUM_H_
#define OCTET_KERNELS_DEVICE_ROW_SUM_H_

#include <cstdint>

#include "device_ops.h"
#include "kernels/device/row_codec.h"

namespace octet::device {

// y[i] = Σ weight(k) · row(k)[i] (+ bias[i]) over the k < n whose bit is set in `present`,
// ascending, for i = begin + lane, and on by `step`, below `end`. Called by all lanes of a wave
// with the same arguments; `row` may shuffle, `weight` must not. `bias` may be null.
// kRowsInFlight: of a lane.
template <typename Codec, int kRowsInFlight, typename RowOf, typename WeightOf>
__device__ __forceinline__ void SumRows(Vec16* y, int n, uint32_t present, RowOf row,
                                        WeightOf weight, const Vec16* bias, int begin, int end,
                                        int step) {
  for (int chunk = begin; chunk < end; chunk += step) {
    const int i = chunk + Lane();
    const bool mine = i < end;
    float sum[kElementsPerVec] = {};
    for (int k = 0; k < n; k += kRowsInFlight) {
      Vec16 v[kRowsInFlight];
#pragma unroll
      for (int u = 0; u < kRowsInFlight; ++u) {
        if (((present >> (k + u)) & 1) != 0) {
          const Vec16* from = row(k + u);
          if (mine) v[u] = LoadStream(from + i);
        }
      }
#pragma unroll
      for (int u = 0; u < kRowsInFlight; ++u) {
        if (mine && ((present >> (k + u)) & 1) != 0) Accumulate<Codec>(sum, v[u], weight(k + u));
      }
    }
    if (!mine) continue;
    if (bias != nullptr) Accumulate<Codec>(sum, bias[i], 1.0F);
    StoreStream(y + i, Round<Codec>(sum));
  }
}

}  // namespace octet::device

#endif  // OCTET_KERNELS_DEVICE_ROW_SUM_H_
