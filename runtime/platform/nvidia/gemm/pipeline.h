// The ring of stages through which operands reach the tensor cores, and what the two kinds of tiles
// have in common.
#ifndef OCTET_RUNTIME_PLATFORM_NVIDIA_GEMM_PIPELINE_H_
#define OCTET_RUNTIME_PLATFORM_NVIDIA_GEMM_PIPELINE_H_

#include <cstddef>
#include <cstdint>

#include "device_ops.h"
#include "gemm/async.h"
#include "gemm/wgmma.h"
#include "octet/gemm_tiles.h"
#include "runtime/platform/gemm_call.h"

namespace octet::device::internal {

inline constexpr int kWarpgroup = 128;      // threads
inline constexpr int kStageRowBytes = 128;  // their bytes, the width of the swizzle
inline constexpr int kBarrierBytes = 8;
inline constexpr int kMmasPerStage = 4;       // a wgmma multiplies 32 bytes of K
inline constexpr int kRowsPerWarpgroup = 64;  // of the operand that wgmma calls M

// Columns of K in a stage: a row of it, or two with weights of less than a byte.
template <GemmElement element>
inline constexpr int kStageColumnsOf =
    kStageRowBytes / BytesOf(element) * (element == GemmElement::kMxfp4 ? 2 : 1);

template <GemmElement element>
__device__ __forceinline__ uint32_t PackPair(float a, float b) {
  return element == GemmElement::kFp16 ? PackFp16(a, b) : PackBf16(a, b);
}

// A stage of FP8 operands is what a scale is for.
static_assert(kStageColumnsOf<GemmElement::kFp8> == kGemmScaleGroup);

// Where a thread is in a ring of stages. Each stage has a barrier for full and one for empty.
template <int stages>
struct RingPlace {
  int stage = 0;
  uint32_t parity = 0;

  __device__ __forceinline__ void Next() {
    if (++stage == stages) {
      stage = 0;
      parity ^= 1;
    }
  }
};

// Ends a slice of the multiplying warps, and brings a warp's lanes together again, of which one has
// recorded: wgmma wants all.
template <typename Track>
__device__ __forceinline__ void EndSlice(Track& track, GemmWork work, const GemmTile& tile) {
  track.End(work, tile);
  if constexpr (Track::kRecords) __syncwarp();
}

// Address of the 16 bytes `chunk` of a row of 128 in a box that the copy unit swizzles, or would.
__device__ __forceinline__ uint32_t SwizzledChunk(uint32_t box, int row, int chunk) {
  return box + static_cast<uint32_t>(row * kStageRowBytes + ((chunk ^ (row & 7)) * 16));
}

// Stores float32 output: elements `column` and, of a pair, the next.
__device__ __forceinline__ void StoreFloat(const GemmOperands& p, int row, int column, float v) {
  static_cast<float*>(p.out)[static_cast<size_t>(row) * static_cast<size_t>(p.out_columns) +
                             static_cast<size_t>(column)] = v;
}
__device__ __forceinline__ void StoreFloats(const GemmOperands& p, int row, int column, float a,
                                            float b) {
  auto* const out = static_cast<float*>(p.out) +
                    static_cast<size_t>(row) * static_cast<size_t>(p.out_columns) + column;
  *reinterpret_cast<float2*>(out) = make_float2(a, b);
}

// Copies 16 bytes from shared memory.
__device__ __forceinline__ void StoreChunk(uint16_t* to, uint32_t from) {
  *reinterpret_cast<uint4*>(to) = LoadShared16(from);
}

// The same, to where they belong in the output.
__device__ __forceinline__ void StoreChunk(const GemmOperands& p, int row, int column,
                                           uint32_t from) {
  StoreChunk(static_cast<uint16_t*>(p.out) +
                 static_cast<size_t>(row) * static_cast<size_t>(p.out_columns) + column,
             from);
}

}  // namespace octet::device::internal

#endif  // OCTET_RUNTIME_PLATFORM_NVIDIA_GEMM_PIPELINE_H_
