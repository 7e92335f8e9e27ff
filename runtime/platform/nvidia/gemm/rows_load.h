// The tensor maps of tiles of many rows, and what begins to copy operands by them.
#ifndef OCTET_RUNTIME_PLATFORM_NVIDIA_GEMM_ROWS_LOAD_H_
#define OCTET_RUNTIME_PLATFORM_NVIDIA_GEMM_ROWS_LOAD_H_

#include <cuda_runtime.h>

#include <cstdint>

#include "gemm/pipeline.h"
#include "gemm/rows_shared.h"
#include "gemm/rows_units.h"
#include "gemm/tensor_map.h"
#include "runtime/platform/gemm_call.h"

namespace octet::device::internal {

template <int columns, GemmElement element>
struct RowsMaps {
  using Shared = RowsShared<columns, element>;

  CUtensorMap rows, half_rows, weights, half_weights, out;

  static cudaError_t Make(const GemmOperands& p, RowsMaps* maps) {
    struct Made {
      CUtensorMap* map;
      GemmElement type;
      TensorShape shape;
    };
    constexpr int kRows = Shared::kRows;
    constexpr int kWeightRowBytes = Shared::kWeightRowBytes;
    const int64_t weight_bytes = WeightColumn(p.k);
    constexpr GemmElement kLoaded = RowElementOf(element);
    const Made all[] = {
        {&maps->rows, kLoaded, {p.a, p.k, p.rows, 0, kRows}},
        {&maps->half_rows, kLoaded, {p.a, p.k, p.rows, 0, kRows / 2}},
        {&maps->weights, kLoaded, {p.b, weight_bytes, p.n, p.experts, columns, kWeightRowBytes}},
        {&maps->half_weights,
         kLoaded,
         {p.b, weight_bytes, p.n, p.experts, columns / 2, kWeightRowBytes}},
        {&maps->out,
         Shared::kOutElement,
         {p.out, p.out_columns, p.rows, 0, kRowsPerWarpgroup,
          Shared::OutRowBytes(p.out_columns < p.n)}},
    };
    for (const Made& each : all) {
      const cudaError_t error = MakeTensorMap(each.shape, each.type, each.map);
      if (error != cudaSuccess) return error;
    }
    return cudaSuccess;
  }

  // Begins to copy a stage of the rows of a tile, from column `k` on; its barrier for full counts
  // the bytes. Each block loads half of what both have the same of.
  __device__ __forceinline__ void LoadRows(const Shared& at, const ToldUnit& told, int k,
                                           int stage) const {
    const uint32_t full = at.Full(stage);
    const uint32_t to = at.Rows(stage);
    if (told.same_rows) {
      constexpr int kHalf = Shared::kRows / 2;
      LoadBoxToBoth(to + at.rank * (Shared::kRowsBytes / 2), &half_rows, full, k,
                    told.tile.row + static_cast<int>(at.rank) * kHalf);
    } else {
      LoadBox(to, &rows, full, k, told.tile.row);
    }
  }
  // The same with weights.
  __device__ __forceinline__ void LoadWeights(const Shared& at, const ToldUnit& told, int k,
                                              int stage) const {
    const GemmTile& tile = told.tile;
    const uint32_t full = at.Full(stage);
    const uint32_t to = at.Weights(stage);
    if (told.same_rows) {
      LoadBox(to, &weights, full, k, tile.column, tile.expert);
      return;
    }
    LoadBoxToBoth(to + at.rank * (Shared::kWeightsBytes / 2), &half_weights, full, k,
                  tile.column + static_cast<int>(at.rank) * (columns / 2), tile.expert);
  }
  // The same with half `half` of the tile's weights, which this block converts, to a place for
  // codes.
  __device__ __forceinline__ void LoadCodes(const Shared& at, const GemmTile& tile, int half, int k,
                                            int place) const {
    LoadBox(at.Codes(place), &half_weights, at.CodesFull(place), WeightColumn(k),
            tile.column + half * (columns / 2), tile.expert);
  }

 private:
  // Column k of K as the copy unit counts them in a row of weights.
  static __host__ __device__ __forceinline__ int WeightColumn(int k) {
    return Shared::kConverts ? k / 2 : k;
  }
};

}  // namespace octet::device::internal

#endif  // OCTET_RUNTIME_PLATFORM_NVIDIA_GEMM_ROWS_LOAD_H_
