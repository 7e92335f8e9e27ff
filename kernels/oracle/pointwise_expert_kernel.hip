// One wave computes each row of the output: the output of one expert, or the weighted sum of the
// outputs of all experts that the token has chosen on this rank.
#include <hip/hip_runtime.h>

#include "device_ops.h"
#include "kernels/oracle/pointwise_expert_kernel.h"
#include "kernels/types/row_codec.h"
#include "octet/fp8_format.h"
#include "runtime/device/load_kernel.h"

namespace octet {
namespace {

using device::kElementsPerVec;
using device::Vec16;

// Some platforms do not use launch bounds.
[[maybe_unused]] constexpr int kMaxThreads = 512;

// Vectors that a lane has in flight.
constexpr int kUnroll = 4;

// A row of the dtype, eight elements at a time.
template <typename Codec>
class DtypeRow {
 public:
  using Piece = Vec16;

  __device__ DtypeRow(const PointwiseExpertParams& p, int row)
      : vecs_(static_cast<const Vec16*>(p.x) + static_cast<size_t>(row) * p.row_vecs) {}

  __device__ Piece Load(int i) const { return device::LoadStream(vecs_ + i); }
  static __device__ void Unpack(const Piece& piece, float (&x)[kElementsPerVec]) {
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      const float2 pair = Codec::Unpack(piece.w[j]);
      x[2 * j] = pair.x;
      x[2 * j + 1] = pair.y;
    }
  }

 private:
  const Vec16* vecs_;
};

// A row of 8-bit floats with scales, eight elements at a time.
template <typename Fp8>
class Fp8Row {
 public:
  struct Piece {
    uint32_t w[2];
    float scale;
  };

  // Rows are whole 16-byte vectors, of two pieces each.
  __device__ Fp8Row(const PointwiseExpertParams& p, int row)
      : words_(static_cast<const uint32_t*>(p.x) +
               static_cast<size_t>(row) * 4 * ((p.row_vecs + 1) / 2)),
        scales_(p.scales + static_cast<size_t>(row) * p.scale_words),
        group_vecs_(p.group_vecs),
        format_(p.scale_format) {}

  __device__ Piece Load(int i) const {
    return {{words_[2 * i], words_[2 * i + 1]}, ScaleOf(i / group_vecs_)};
  }
  static __device__ void Unpack(const Piece& piece, float (&x)[kElementsPerVec]) {
#pragma unroll
    for (int j = 0; j < kElementsPerVec; ++j) {
      const auto bits = static_cast<uint8_t>(piece.w[j / 4] >> (8 * (j % 4)));
      x[j] = FloatFromFp8(Fp8{bits}) * piece.scale;
    }
  }

 private:
  __device__ float ScaleOf(int group) const {
    if (format_ != ScaleFormat::kUe8m0) return reinterpret_cast<const float*>(scales_)[group];
    return ScaleFromUe8m0(reinterpret_cast<const uint8_t*>(scales_)[group]);
  }

  const uint32_t* words_;
  const uint32_t* scales_;
  int group_vecs_;
  ScaleFormat format_;
};

// out[i] = transform(eight elements of row i). Called by all lanes of a wave.
template <typename Row, typename Transform>
__device__ __forceinline__ void TransformRow(const Row& row, Vec16* out, int vecs,
                                             Transform transform) {
  const int step = device::kWaveSize;
  for (int first = device::Lane(); first < vecs; first += kUnroll * step) {
    typename Row::Piece pieces[kUnroll];
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
      if (first + u * step < vecs) pieces[u] = row.Load(first + u * step);
    }
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
      if (first + u * step >= vecs) continue;
      float x[kElementsPerVec];
      Row::Unpack(pieces[u], x);
      device::StoreStream(out + first + u * step, transform(x));
    }
  }
}

// Returns an expert's output.
template <typename Codec>
__device__ __forceinline__ Vec16 Expert(const float (&x)[kElementsPerVec], float scale) {
  float y[kElementsPerVec];
#pragma unroll
  for (int j = 0; j < kElementsPerVec; ++j) y[j] = x[j] * scale;
  return device::Round<Codec>(y);
}

// Computes out[row]. Called by all lanes of a wave.
template <typename Codec, typename Row>
__device__ void ApplyToRow(const PointwiseExpertParams& p, int row) {
  Vec16* out = static_cast<Vec16*>(p.out) + static_cast<size_t>(row) * p.row_vecs;
  if (p.topk_idx != nullptr) {
    const int32_t* experts = p.topk_idx + static_cast<size_t>(row) * p.topk;
    const float* weights = p.topk_weights + static_cast<size_t>(row) * p.topk;
    TransformRow(Row(p, row), out, p.row_vecs, [&](const float (&x)[kElementsPerVec]) {
      float sum[kElementsPerVec] = {};
      for (int k = 0; k < p.topk; ++k) {
        if (experts[k] < 0 || experts[k] >= p.num_local_experts) continue;
        device::Accumulate<Codec>(sum, Expert<Codec>(x, p.expert_scale[experts[k]]), weights[k]);
      }
      return device::Round<Codec>(sum);
    });
    return;
  }
  const int local_expert = p.sources[row].local_expert;
  const int from = p.row_index != nullptr ? p.row_index[row] : row;
  // Padding and rows that did not arrive have no origin.
  if (local_expert < 0 || local_expert >= p.num_local_experts || from < 0) return;
  const float scale = p.expert_scale[local_expert];
  TransformRow(Row(p, from), out, p.row_vecs,
               [scale](const float (&x)[kElementsPerVec]) { return Expert<Codec>(x, scale); });
}

template <typename Codec, typename Row>
__global__ void __launch_bounds__(kMaxThreads) ApplyExperts(const PointwiseExpertParams p) {
  const int step = static_cast<int>(gridDim.x * (blockDim.x / device::kWaveSize));
  const int wave = static_cast<int>(blockIdx.x * (blockDim.x / device::kWaveSize)) + device::Wave();
  if (p.ranges == nullptr) {
    const int rows = *p.num_rows;
    for (int row = wave; row < rows; row += step) ApplyToRow<Codec, Row>(p, row);
    return;
  }
  // Each wave takes every step-th row of all ranges, one range after the other.
  int next = wave;
  for (int i = 0; i < p.num_ranges; ++i) {
    const RowRange range = p.ranges[i];
    for (; next < range.count; next += step) ApplyToRow<Codec, Row>(p, range.first + next);
    next -= range.count;
  }
}

using Kernel = void (*)(PointwiseExpertParams);

template <typename Codec>
Kernel PickInput(ExpertInput input) {
  switch (input) {
    case ExpertInput::kDtype:
      return ApplyExperts<Codec, DtypeRow<Codec>>;
    case ExpertInput::kE4m3Fn:
      return ApplyExperts<Codec, Fp8Row<E4m3Fn>>;
    case ExpertInput::kE4m3Fnuz:
      break;
  }
  return ApplyExperts<Codec, Fp8Row<E4m3Fnuz>>;
}

Kernel PickKernel(const PointwiseExpertVariant& variant) {
  return variant.fp16 ? PickInput<device::Fp16Codec>(variant.input)
                      : PickInput<device::Bf16Codec>(variant.input);
}

}  // namespace

hipError_t LoadPointwiseExpert(const PointwiseExpertVariant& variant) {
  return device::LoadKernel(PickKernel(variant));
}

hipError_t LaunchPointwiseExpert(const PointwiseExpertParams& params,
                                 const PointwiseExpertVariant& variant, const LaunchShape& shape,
                                 hipStream_t stream) {
  PointwiseExpertParams p = params;
  void* args[] = {&p};
  return hipLaunchKernel(PickKernel(variant), dim3(static_cast<unsigned>(shape.blocks)),
                         dim3(static_cast<unsigned>(shape.threads)), args,
                         static_cast<unsigned>(shape.shared_bytes), stream);
}

}  // namespace octet
