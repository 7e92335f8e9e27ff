// The output of a tile of few rows, whose sums have a column of B for each of wgmma's rows.
#ifndef OCTET_RUNTIME_PLATFORM_NVIDIA_GEMM_SWAPPED_STORE_H_
#define OCTET_RUNTIME_PLATFORM_NVIDIA_GEMM_SWAPPED_STORE_H_

#include <cuda_runtime.h>

#include <cstdint>

#include "gemm/pipeline.h"
#include "gemm/swapped_shared.h"
#include "runtime/platform/gemm_call.h"

namespace octet::device::internal {

template <int kRows, GemmElement kOutElement>
class SwappedStore {
  using Sums = float[kRows / 2];

 public:
  // Adds the bias and multiplies by the rows' scales.
  template <typename Call>
  static __device__ __forceinline__ void Finish(const Call& call, const GemmTile& tile,
                                                Sums& sums) {
    if (call.epilogue.HasBias()) {
      float bias[2];
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const int column = tile.column + WarpColumn() + Lane() / 4 + i * 8;
        bias[i] = column < call.operands.n ? call.epilogue.Bias(tile.expert, column) : 0.0F;
      }
#pragma unroll
      for (int j = 0; j < kRows / 2; ++j) sums[j] += bias[j / 2 % 2];
    }
    if (call.epilogue.HasRowScale()) {
#pragma unroll
      for (int j = 0; j < kRows / 2; ++j) {
        // Where gate and up alternate by eight columns, only `up` is scaled.
        if (Call::Epilogue::kGated && j / 2 % 2 == 0) continue;
        sums[j] *= call.epilogue.RowScale(tile.row + min(OwnSwappedRow(j), tile.rows - 1));
      }
    }
  }

  // Float32 goes from the registers to global memory: eight lanes have 32 bytes of a row.
  template <typename Call>
  static __device__ __forceinline__ void StoreFloatTile(const Call& call, const GemmTile& tile,
                                                        const Sums& sums) {
    using Epilogue = Call::Epilogue;
    const int column = (tile.column + WarpColumn()) / (Epilogue::kGated ? 2 : 1) + Lane() / 4;
#pragma unroll
    for (int j = 0; j < kRows / 2; ++j) {
      const bool second = j / 2 % 2 == 1;  // eight columns of B further
      if (OwnSwappedRow(j) >= tile.rows || (Epilogue::kGated && second)) continue;
      const int own_column = column + (second ? 8 : 0);
      if (own_column >= call.operands.out_columns) continue;
      float v = sums[j];
      if constexpr (Epilogue::kGated) {
        v = call.epilogue.Gate(v, sums[j + 2 < kRows / 2 ? j + 2 : j]);
      }
      StoreFloat(call.operands, tile.row + OwnSwappedRow(j), own_column, v);
    }
  }

  // Through shared memory, where a row of the output has the warpgroup's columns in a row of 128
  // bytes.
  template <typename Call>
  static __device__ __forceinline__ void StoreTile(const Call& call, const GemmTile& tile,
                                                   uint32_t box, const Sums& sums) {
    using Epilogue = Call::Epilogue;
    const int barrier = 1 + static_cast<int>(threadIdx.x) / kWarpgroup;
    SyncThreads(barrier, kWarpgroup);  // the previous tile has left the box
#pragma unroll
    for (int j = 0; j < kRows / 8; j += 2) {
      TransposeToBox(call.epilogue, box, j, sums + 4 * j);
    }
    SyncThreads(barrier, kWarpgroup);
    constexpr int kChunks = Epilogue::kGated ? 4 : 8;  // of a row
    const int out_column = Epilogue::kGated ? tile.column / 2 : tile.column;
    for (int i = static_cast<int>(threadIdx.x) % kWarpgroup; i < kRows * kChunks; i += kWarpgroup) {
      const int row = i / kChunks;
      const int column = out_column + i % kChunks * 8;
      if (row < tile.rows && column < call.operands.out_columns) {
        StoreChunk(call.operands, tile.row + row, column, SwizzledChunk(box, row, i % kChunks));
      }
    }
  }

 private:
  // The first of the 16 columns of B that the warp's sums belong to, counted in the warpgroup.
  static __device__ __forceinline__ int WarpColumn() {
    return static_cast<int>(threadIdx.x) / 32 % 4 * 16;
  }

  // Rows 8 * j to 8 * j + 15 of the tile: `v` has their eight sums.
  template <typename Epilogue>
  static __device__ __forceinline__ void TransposeToBox(const Epilogue& epilogue, uint32_t box,
                                                        int j, const float* v) {
    const int warp = static_cast<int>(threadIdx.x) / 32 % 4;
    if constexpr (Epilogue::kGated) {
      const int row = 8 * j + Lane() % 16;  // of two matrices; the other lanes' are not used
      StoreMatricesTransposed(
          SwizzledChunk(box, row, warp),
          PackPair<kOutElement>(epilogue.Gate(v[0], v[2]), epilogue.Gate(v[1], v[3])),
          PackPair<kOutElement>(epilogue.Gate(v[4], v[6]), epilogue.Gate(v[5], v[7])));
    } else {
      const int row = 8 * (j + Lane() / 16) + Lane() % 8;
      StoreMatricesTransposed(SwizzledChunk(box, row, warp * 2 + Lane() / 8 % 2),
                              PackPair<kOutElement>(v[0], v[1]), PackPair<kOutElement>(v[2], v[3]),
                              PackPair<kOutElement>(v[4], v[5]), PackPair<kOutElement>(v[6], v[7]));
    }
  }
};

}  // namespace octet::device::internal

#endif  // OCTET_RUNTIME_PLATFORM_NVIDIA_GEMM_SWAPPED_STORE_H_
