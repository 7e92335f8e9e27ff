// Copies parts of rows in 16-byte vectors, by one wave.
#ifndef OCTET_KERNELS_EP_DEVICE_ROW_COPY_H_
#define OCTET_KERNELS_EP_DEVICE_ROW_COPY_H_

#include <cstdint>

#include "device_ops.h"

namespace octet::device {

// Loads that a lane has in flight before its first store. Seven, since 7168 16-bit elements are 4 x
// 7 vectors for each of 32 lanes.
inline constexpr int kCopyUnroll = 7;

// Returns row `row` of an array of rows of `row_vecs` vectors.
__device__ __forceinline__ const Vec16* RowOf(const void* rows, int row, int row_vecs) {
  return static_cast<const Vec16*>(rows) + static_cast<size_t>(row) * row_vecs;
}
__device__ __forceinline__ Vec16* RowOf(void* rows, int row, int row_vecs) {
  return static_cast<Vec16*>(rows) + static_cast<size_t>(row) * row_vecs;
}

// Part `part` of `parts` of a row of `row_vecs` vectors: [begin, end).
struct RowPart {
  int begin;
  int end;
};
__device__ __forceinline__ RowPart PartOfRow(int part, int parts, int row_vecs) {
  const int length = (row_vecs + parts - 1) / parts;
  const int begin = part * length < row_vecs ? part * length : row_vecs;
  const int end = begin + length < row_vecs ? begin + length : row_vecs;
  return RowPart{begin, end};
}

// dst[i] = transform(src[i]) for i in the part. Called by all lanes of a wave.
template <typename Transform>
__device__ __forceinline__ void WaveTransformRow(Vec16* dst, const Vec16* src, RowPart part,
                                                 Transform transform) {
  const int step = kWaveSize;
  for (int first = part.begin + Lane(); first < part.end; first += kCopyUnroll * step) {
    Vec16 v[kCopyUnroll];
#pragma unroll
    for (int u = 0; u < kCopyUnroll; ++u) {
      if (first + u * step < part.end) v[u] = LoadStream(src + first + u * step);
    }
#pragma unroll
    for (int u = 0; u < kCopyUnroll; ++u) {
      if (first + u * step < part.end) StoreStream(dst + first + u * step, transform(v[u]));
    }
  }
}

__device__ __forceinline__ void WaveCopyRow(Vec16* dst, const Vec16* src, RowPart part) {
  WaveTransformRow(dst, src, part, [](const Vec16& v) { return v; });
}

// Copies a part of one row to several destinations, `to(i)` for i of [0, n). Called by all lanes of
// a wave with the same arguments; `to` may shuffle. kUnroll: loads that a lane has in flight.
template <int kUnroll, typename To>
__device__ __forceinline__ void WaveCopyRowToMany(const Vec16* src, RowPart part, int n, To to) {
  const int step = kWaveSize;
  for (int chunk = part.begin; chunk < part.end; chunk += kUnroll * step) {
    const int first = chunk + Lane();
    Vec16 v[kUnroll];
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
      if (first + u * step < part.end) v[u] = LoadStream(src + first + u * step);
    }
#pragma unroll 1
    for (int i = 0; i < n; ++i) {
      Vec16* dst = to(i);
#pragma unroll
      for (int u = 0; u < kUnroll; ++u) {
        if (first + u * step < part.end) StoreStream(dst + first + u * step, v[u]);
      }
    }
  }
}

// The same for a row of 4-byte words, by plain stores.
template <typename To>
__device__ __forceinline__ void WaveCopyWordsToMany(const uint32_t* src, int words, int n, To to) {
  for (int i = 0; i < n; ++i) {
    uint32_t* dst = to(i);
    for (int w = Lane(); w < words; w += kWaveSize) dst[w] = src[w];
  }
}

}  // namespace octet::device

#endif  // OCTET_KERNELS_EP_DEVICE_ROW_COPY_H_
