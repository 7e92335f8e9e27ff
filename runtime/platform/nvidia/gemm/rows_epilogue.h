// What becomes of the sums of a tile of many rows: bias and rows' scales, the gate, and the way to
// the output.
//
// A warpgroup has 64 rows. Whole boxes of 64 rows and 64 columns (of 128 bytes) go through shared
// memory to the copy unit, two in turn; parts of a box, and rows that are scattered, are copied
// from there in chunks of 16 bytes. Float32 goes from the registers to global memory.
#ifndef OCTET_RUNTIME_PLATFORM_NVIDIA_GEMM_ROWS_EPILOGUE_H_
#define OCTET_RUNTIME_PLATFORM_NVIDIA_GEMM_ROWS_EPILOGUE_H_

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>

#include "gemm/pipeline.h"
#include "gemm/tensor_map.h"
#include "octet/gemm_tiles.h"
#include "runtime/platform/gemm_call.h"

namespace octet::device::internal {

template <int columns, GemmElement element>
class RowsEpilogue {
 public:
  static constexpr GemmElement kOutElement = OutElementOf(element);

 private:
  static constexpr int kBoxColumns = kBoxRowBytes / BytesOf(kOutElement);
  static constexpr int kBoxes = 2;  // of a warpgroup
  static constexpr uint32_t kBoxBytes = kRowsPerWarpgroup * kStageRowBytes;

 public:
  static constexpr uint32_t kBoxesBytes = kBoxes * kBoxBytes;

  // Of a thread: two rows of the tile, in wgmma's order.
  using Sums = float[columns / 2];

  // The boxes of a warpgroup in shared memory, which its threads take in turn.
  struct Boxes {
    uint32_t base;  // address of kBoxesBytes
    int barrier;    // of SyncThreads(), of the warpgroup
    int box = 0;

    __device__ __forceinline__ uint32_t Next() {
      const uint32_t next = base + static_cast<uint32_t>(box) * kBoxBytes;
      box = (box + 1) % kBoxes;
      return next;
    }
  };

  // The first of the two rows of the tile that the thread's sums belong to; the other is 8 more.
  static __device__ __forceinline__ int OwnRow() {
    return static_cast<int>(threadIdx.x) / 32 % 4 * 16 + Lane() / 4;
  }

  // Adds the bias and multiplies by the rows' scales.
  template <typename Call>
  static __device__ __forceinline__ void Finish(const Call& call, const GemmTile& tile,
                                                Sums& sums) {
    if (call.epilogue.HasBias()) {
#pragma unroll
      for (int j = 0; j < columns / 2; ++j) {
        const int column = tile.column + j / 4 * 8 + Lane() % 4 * 2 + j % 2;
        if (column < call.operands.n) sums[j] += call.epilogue.Bias(tile.expert, column);
      }
    }
    if (call.epilogue.HasRowScale()) {
      float scales[2];
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const int row = OwnRow() + i * 8;
        scales[i] = call.epilogue.RowScale(tile.row + min(row, tile.rows - 1));
      }
#pragma unroll
      for (int j = 0; j < columns / 2; ++j) {
        // Where gate and up alternate by eight columns, only `up` is scaled.
        if (!Call::Epilogue::kGated || j / 4 % 2 == 1) sums[j] *= scales[j / 2 % 2];
      }
    }
  }

  // Float32 goes from the registers to global memory: four lanes have 32 bytes of a row.
  template <typename Call>
  static __device__ __forceinline__ void StoreFloatTile(const Call& call, const GemmTile& tile,
                                                        const Sums& sums) {
    using Epilogue = Call::Epilogue;
    constexpr int kOutColumns = Epilogue::kGated ? columns / 2 : columns;
    const int out_column = (Epilogue::kGated ? tile.column / 2 : tile.column) + Lane() % 4 * 2;
#pragma unroll
    for (int second_row = 0; second_row < 2; ++second_row) {
      const int row = OwnRow() + second_row * 8;
      if (row >= tile.rows) continue;
#pragma unroll
      for (int chunk = 0; chunk < kOutColumns / 8; ++chunk) {
        const int column = out_column + chunk * 8;
        if (column >= call.operands.out_columns) continue;
        const float* const pair = sums + chunk * (Epilogue::kGated ? 8 : 4) + second_row * 2;
        if constexpr (Epilogue::kGated) {
          StoreFloats(call.operands, tile.row + row, column, call.epilogue.Gate(pair[0], pair[4]),
                      call.epilogue.Gate(pair[1], pair[5]));
        } else {
          StoreFloats(call.operands, tile.row + row, column, pair[0], pair[1]);
        }
      }
    }
  }

  // Boxes of 64 rows and columns go through shared memory, two in turn.
  template <typename Call>
  static __device__ __forceinline__ void StoreTile(const Call& call, const GemmTile& tile,
                                                   Boxes& boxes, const Sums& sums) {
    using Epilogue = Call::Epilogue;
    constexpr int kOutColumns = Epilogue::kGated ? columns / 2 : columns;
    const int out_column = Epilogue::kGated ? tile.column / 2 : tile.column;
    const bool leader = threadIdx.x % kWarpgroup == 0;
    OutRows<Epilogue::kScatters> rows;
    if constexpr (Epilogue::kScatters) rows.Find(call.epilogue, tile);
#pragma unroll
    for (int first = 0; first < kOutColumns; first += kBoxColumns) {
      const uint32_t box = boxes.Next();
      if (leader) WaitStoresRead<kBoxes - 1>();
      SyncThreads(boxes.barrier, kWarpgroup);
      const int row = static_cast<int>(threadIdx.x) / 32 % 4 * 16 + Lane() % 16;
#pragma unroll
      for (int c = 0; c < kBoxColumns / 8; c += 2) {
        if (first + c * 8 >= kOutColumns) continue;
        const int chunk = first / 8 + c;
        StoreMatrices(
            SwizzledChunk(box, row, c + Lane() / 16), OutPair(call.epilogue, sums, chunk, 0),
            OutPair(call.epilogue, sums, chunk, 1), OutPair(call.epilogue, sums, chunk + 1, 0),
            OutPair(call.epilogue, sums, chunk + 1, 1));
      }
      FenceSharedForCopies();
      SyncThreads(boxes.barrier, kWarpgroup);
      const bool whole = !Epilogue::kScatters && first + kBoxColumns <= kOutColumns &&
                         tile.rows >= kRowsPerWarpgroup;
      if (whole && leader) StoreBox(&call.maps.out, box, out_column + first, tile.row);
      // An empty group, too, so that "all but the last" means the other box.
      if (leader) CommitStores();
      if (!whole) {
        StorePart(call.operands, box, {tile.expert, tile.row, tile.rows, out_column + first},
                  kOutColumns - first, rows);
      }
    }
  }

 private:
  // Two elements of the output, of one row: columns 8 * chunk + Lane() % 4 * 2 and the next.
  template <typename Epilogue>
  static __device__ __forceinline__ uint32_t OutPair(const Epilogue& epilogue, const Sums& sums,
                                                     int chunk, int second_row) {
    if constexpr (Epilogue::kGated) {
      const float* const gate = sums + chunk * 8 + second_row * 2;
      const float* const up = gate + 4;
      return PackPair<kOutElement>(epilogue.Gate(gate[0], up[0]), epilogue.Gate(gate[1], up[1]));
    } else {
      const float* const pair = sums + chunk * 4 + second_row * 2;
      return PackPair<kOutElement>(pair[0], pair[1]);
    }
  }

  // A thread stores chunks of this many rows of a box.
  static constexpr int kChunkRows = kRowsPerWarpgroup * 8 / kWarpgroup;

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
  static __device__ __forceinline__ void StorePart(const GemmOperands& p, uint32_t box,
                                                   const GemmTile& part, int columns_left,
                                                   const OutRows<scatters>& rows) {
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
};

}  // namespace octet::device::internal

#endif  // OCTET_RUNTIME_PLATFORM_NVIDIA_GEMM_ROWS_EPILOGUE_H_
