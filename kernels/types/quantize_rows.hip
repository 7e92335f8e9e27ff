// One wave quantizes each part of a row.
#include "kernels/types/quantize_rows.h"

#include <hip/hip_runtime.h>

#include <cstddef>
#include <cstdint>

#include "device_ops.h"
#include "kernels/types/fp8_quantize.h"
#include "kernels/types/row_codec.h"
#include "octet/gemm_tiles.h"
#include "octet/native_fp8.h"
#include "runtime/device/load_kernel.h"

namespace octet {
namespace {

using device::kElementsPerVec;
using device::Vec16;

// Some platforms do not use launch bounds.
[[maybe_unused]] constexpr int kMaxThreads = 512;

// Vectors that a lane has in flight.
constexpr int kUnroll = kQuantizeLaneColumns / kElementsPerVec;
static_assert(kUnroll == 2);

constexpr int kGroupLanes = kGemmScaleGroup / kElementsPerVec;

// Called by all lanes of a wave.
template <typename Codec>
__device__ __forceinline__ void QuantizePart(const QuantizeRowsParams& p, size_t row, int part) {
  const int vecs = p.columns / kElementsPerVec;
  const int step = device::kWaveSize;
  const Vec16* x = static_cast<const Vec16*>(p.x) + row * vecs;
  const int first = part * kUnroll * step + device::Lane();
  Vec16 v[kUnroll] = {};
#pragma unroll
  for (int u = 0; u < kUnroll; ++u) {
    if (first + u * step < vecs) v[u] = device::LoadStream(x + first + u * step);
  }
  const auto a = device::Quantize<Codec, NativeFp8>(v[0], kGroupLanes, p.scale_format);
  const auto b = device::Quantize<Codec, NativeFp8>(v[1], kGroupLanes, p.scale_format);
  const device::PackedVec packed = device::PackPair(a, b, first, first + step);
  const int fp8_vecs = vecs / 2;
  // What reads them comes next on this GPU, so they may stay in its caches.
  if (packed.index < fp8_vecs) {
    static_cast<Vec16*>(p.fp8)[row * fp8_vecs + packed.index] = packed.v;
  }
  if (device::Lane() % kGroupLanes != 0) return;
  uint32_t* scales = p.scales + row * p.scale_words;
  const int groups = (vecs + kGroupLanes - 1) / kGroupLanes;
  if (first < vecs) {
    device::StoreScale(scales, groups, first / kGroupLanes, p.scale_format, a.scale);
  }
  if (first + step < vecs) {
    device::StoreScale(scales, groups, (first + step) / kGroupLanes, p.scale_format, b.scale);
  }
}

__device__ __forceinline__ int NumRows(const QuantizeRowsParams& p) {
  if (p.num_rows == nullptr) return p.max_rows;
  const int rows = *p.num_rows;
  return rows < p.max_rows ? rows : p.max_rows;
}

// Each wave takes every waves-th part of all rows, part after part.
template <typename Codec>
__global__ void __launch_bounds__(kMaxThreads) QuantizeRowsKernel(const QuantizeRowsParams p) {
  const int wave_columns = kQuantizeLaneColumns * device::kWaveSize;
  const int parts = (p.columns + wave_columns - 1) / wave_columns;
  const int block_waves = static_cast<int>(blockDim.x) / device::kWaveSize;
  const int waves = static_cast<int>(gridDim.x) * block_waves;
  const int wave = static_cast<int>(blockIdx.x) * block_waves + device::Wave();
  const int64_t rows = NumRows(p);
  int64_t row = wave / parts;
  int part = wave % parts;
  while (row < rows) {
    QuantizePart<Codec>(p, static_cast<size_t>(row), part);
    row += waves / parts;
    part += waves % parts;
    if (part >= parts) {
      part -= parts;
      ++row;
    }
  }
}

auto KernelOf(bool fp16) {
  return fp16 ? QuantizeRowsKernel<device::Fp16Codec> : QuantizeRowsKernel<device::Bf16Codec>;
}

}  // namespace

hipError_t LoadQuantizeRows(bool fp16) { return device::LoadKernel(KernelOf(fp16)); }

hipError_t LaunchQuantizeRows(const QuantizeRowsParams& params, bool fp16, const LaunchShape& shape,
                              hipStream_t stream) {
  QuantizeRowsParams p = params;
  void* args[] = {&p};
  return hipLaunchKernel(KernelOf(fp16), dim3(static_cast<unsigned>(shape.blocks)),
                         dim3(static_cast<unsigned>(shape.threads)), args,
                         static_cast<unsigned>(shape.shared_bytes), stream);
}

}  // namespace octet
