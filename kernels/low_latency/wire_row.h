// Formats of low_latency's rows in transit in dispatch. A block sends a row in chunks; each thread
// has some vectors of a chunk.
#ifndef OCTET_KERNELS_LOW_LATENCY_WIRE_ROW_H_
#define OCTET_KERNELS_LOW_LATENCY_WIRE_ROW_H_

#include <cstdint>

#include "device_ops.h"
#include "kernels/low_latency/layout.h"
#include "kernels/types/fp8_quantize.h"
#include "octet/native_fp8.h"

namespace octet::low_latency {

using device::Lane;
using device::Vec16;

// Vectors of a row that a sending thread holds while the destination offsets are computed. With 512
// threads, two vectors make a row of 8192 16-bit elements.
inline constexpr int kRowUnroll = 2;

// A thread's part of a chunk in transit, without conversion.
class PlainRow {
 public:
  __device__ PlainRow(const Layout& layout, int chunk, const Vec16 (&v)[kRowUnroll])
      : vecs_(layout.row_vecs), first_(chunk + static_cast<int>(threadIdx.x)) {
#pragma unroll
    for (int u = 0; u < kRowUnroll; ++u) v_[u] = v[u];
  }

  // `slot`: Layout::Row.
  __device__ void Store(const Layout&, char* slot) const {
    auto* row = reinterpret_cast<Vec16*>(slot);
    const int step = static_cast<int>(blockDim.x);
#pragma unroll
    for (int u = 0; u < kRowUnroll; ++u) {
      if (first_ + u * step < vecs_) device::StoreStream(row + first_ + u * step, v_[u]);
    }
  }

 private:
  int vecs_;
  int first_;
  Vec16 v_[kRowUnroll];
};

// A thread's part of a chunk in transit, quantised.
template <typename Codec>
class Fp8Row {
 public:
  static_assert(kRowUnroll == 2);

  // Called by all lanes of a wave.
  __device__ Fp8Row(const Layout& layout, int chunk, const Vec16 (&v)[kRowUnroll])
      : first_(chunk + static_cast<int>(threadIdx.x)) {
    const int step = static_cast<int>(blockDim.x);
    const auto a =
        device::Quantize<Codec, NativeFp8>(v[0], layout.group_lanes, layout.scale_format);
    const auto b =
        device::Quantize<Codec, NativeFp8>(v[1], layout.group_lanes, layout.scale_format);
    scales_[0] = a.scale;
    scales_[1] = b.scale;
    packed_ = device::PackPair(a, b, first_, first_ + step);
  }

  __device__ void Store(const Layout& layout, char* slot) const {
    if (packed_.index < layout.row_vecs) {
      device::StoreStream(reinterpret_cast<Vec16*>(slot) + packed_.index, packed_.v);
    }
    if ((Lane() & (layout.group_lanes - 1)) != 0) return;
#pragma unroll
    for (int u = 0; u < kRowUnroll; ++u) {
      const int first = first_ + u * static_cast<int>(blockDim.x);
      if (first < layout.dtype_vecs) {
        device::StoreScale(layout.Scales(slot), layout.scale_groups, first / layout.group_lanes,
                           layout.scale_format, scales_[u]);
      }
    }
  }

 private:
  int first_;
  device::PackedVec packed_;
  float scales_[kRowUnroll];
};

}  // namespace octet::low_latency

#endif  // OCTET_KERNELS_LOW_LATENCY_WIRE_ROW_H_
