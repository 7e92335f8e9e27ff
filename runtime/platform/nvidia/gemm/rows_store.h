// The output of a tile of many rows, and the part of it that the copy unit cannot store as a box:
// rows that go elsewhere, and the last rows and columns.
#ifndef OCTET_RUNTIME_PLATFORM_NVIDIA_GEMM_ROWS_STORE_H_
#define OCTET_RUNTIME_PLATFORM_NVIDIA_GEMM_ROWS_STORE_H_

#include <cuda_runtime.h>

#include <cstdint>

#include "gemm/pipeline.h"
#include "runtime/platform/gemm_call.h"

namespace octet::device::internal {

// Two elements of the output, of one row, from a thread's sums: columns 8 * chunk + Lane() % 4 * 2
// and the next.
template <GemmElement element, typename Epilogue>
__device__ __forceinline__ uint32_t OutPair(const Epilogue& epilogue, const float* sums, int chunk,
                                            int second_row) {
  if constexpr (Epilogue::kGated) {
    const float* const gate = sums + chunk * 8 + second_row * 2;
    const float* const up = gate + 4;
    return PackPair<element>(epilogue.Gate(gate[0], up[0]), epilogue.Gate(gate[1], up[1]));
  } else {
    const float* const pair = sums + chunk * 4 + second_row * 2;
    return PackPair<element>(pair[0], pair[1]);
  }
}

// A thread stores chunks of this many rows of a box.
inline constexpr int kChunkRows = kRowsPerWarpgroup * 8 / kWarpgroup;

// Where these rows go, if not to GemmOperands::out.
template <bool scatters>
struct OutRows {
  uint16_t* of[scatters ? kChunkRows : 1];

  template <typename Epilogue>
  __device__ __forceinline__ void Find(const Epilogue& epilogue, const GemmTile& tile) {
#pragma unroll
    for (int i = 0; i < kChunkRows; ++i) {
      const int row = (static_cast<int>(threadIdx.x) % kWarpgroup + i * kWarpgroup) / 8;
      of[i] = static_cast<uint16_t*>(epilogue.RowAt(tile.row + min(row, tile.rows - 1)));
    }
  }
};

// Stores the rows and columns of a box that there are: `part` in the output's columns.
template <bool scatters>
__device__ __forceinline__ void StorePart(const GemmOperands& p, uint32_t box, const GemmTile& part,
                                          int columns_left, const OutRows<scatters>& rows) {
#pragma unroll
  for (int i = 0; i < kChunkRows; ++i) {
    const int chunk = static_cast<int>(threadIdx.x) % kWarpgroup + i * kWarpgroup;
    const int row = chunk / 8;
    const int column = chunk % 8 * 8;
    if (row >= part.rows || column >= columns_left || part.column + column >= p.out_columns) {
      continue;
    }
    const uint32_t from = SwizzledChunk(box, row, chunk % 8);
    if constexpr (scatters) {
      StoreChunk(rows.of[i] + part.column + column, from);
    } else {
      StoreChunk(p, part.row + row, part.column + column, from);
    }
  }
}

}  // namespace octet::device::internal

#endif  // OCTET_RUNTIME_PLATFORM_NVIDIA_GEMM_ROWS_STORE_H_
