// The output of a tile of many rows: boxes in shared memory, which the copy unit stores, and what
// it cannot store as a box: rows that go elsewhere, and the last ones.
#ifndef OCTET_RUNTIME_PLATFORM_NVIDIA_GEMM_ROWS_STORE_H_
#define OCTET_RUNTIME_PLATFORM_NVIDIA_GEMM_ROWS_STORE_H_

#include <cuda_runtime.h>

#include <cstdint>

#include "gemm/pipeline.h"
#include "gemm/wgmma.h"
#include "runtime/platform/gemm_call.h"

namespace octet::device::internal {

// Adds the biases to a thread's sums, so many loaded together, and multiplies by the rows' scales.
template <int columns, int together, typename Call>
__device__ __forceinline__ void FinishSums(const Call& call, const GemmTile& tile,
                                           float (&sums)[columns / 2]) {
  if (call.epilogue.HasBias()) {
#pragma unroll
    for (int first = 0; first < columns / 4; first += together) {
      float biases[together];
#pragma unroll
      for (int i = 0; i < together; ++i) {
        const int number = first + i;  // of the thread's columns
        const int column = tile.column + number / 2 * 8 + Lane() % 4 * 2 + number % 2;
        biases[i] = column < call.operands.n ? call.epilogue.Bias(tile.expert, column) : 0;
      }
#pragma unroll
      for (int i = 0; i < together; ++i) {
        const int number = first + i;
        float* const of_rows = sums + number / 2 * 4 + number % 2;
        of_rows[0] += biases[i];
        of_rows[2] += biases[i];
      }
      asm volatile("" ::: "memory");  // otherwise the compiler loads more together
    }
  }
  if (call.epilogue.HasRowScale()) {
    float scales[2];
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int row = OwnWgmmaRow() + i * 8;
      scales[i] = call.epilogue.RowScale(tile.row + min(row, tile.rows - 1));
    }
#pragma unroll
    for (int j = 0; j < columns / 2; ++j) {
      // Where gate and up alternate by eight columns, only `up` is scaled.
      if (!Call::Epilogue::kGated || j / 4 % 2 == 1) sums[j] *= scales[j / 2 % 2];
    }
  }
}

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

inline constexpr int kRowsPerWarp = kRowsPerWarpgroup / 4;
// The first of the warp's rows of a box.
__device__ __forceinline__ int FirstOwnRow() {
  return static_cast<int>(threadIdx.x) / 32 % 4 * kRowsPerWarp;
}

// The output of a warpgroup's 64 rows of a tile of `columns` columns of the product, in boxes whose
// rows have `row_bytes` bytes: 128, or 64.
template <typename Epilogue, GemmElement element, int columns, int row_bytes>
struct OutBoxes {
  static constexpr int kRowBytes = row_bytes;
  static constexpr int kColumns = row_bytes / BytesOf(element);
  static constexpr int kOutColumns = Epilogue::kGated ? columns / 2 : columns;
  static constexpr int kNumber = (kOutColumns + kColumns - 1) / kColumns;
  static constexpr uint32_t kBytes = kRowsPerWarpgroup * row_bytes;

  // Returns the first column of box i.
  static __device__ __forceinline__ int ColumnOf(const GemmTile& tile, int i) {
    return (Epilogue::kGated ? tile.column / 2 : tile.column) + i * kColumns;
  }
  // Whether the copy unit can store box i. It leaves out columns beyond the last by itself.
  static __device__ __forceinline__ bool IsWhole(const GemmTile& tile, int i) {
    return !Epilogue::kScatters && (i + 1) * kColumns <= kOutColumns &&
           tile.rows >= kRowsPerWarpgroup;
  }
  // Returns the address of 16 bytes of a row, as the copy unit swizzles them.
  static __device__ __forceinline__ uint32_t Chunk(uint32_t box, int row, int chunk) {
    if constexpr (row_bytes == kStageRowBytes) return SwizzledChunk(box, row, chunk);
    return box + static_cast<uint32_t>(row * row_bytes + ((chunk ^ (row / 2 & 3)) * 16));
  }
  // Puts the warp's rows of box i there.
  static __device__ __forceinline__ void Fill(const Epilogue& epilogue, const float* sums, int i,
                                              uint32_t box) {
    constexpr int kChunks = kColumns / 8;
    const int row = FirstOwnRow() + Lane() % 16;
#pragma unroll
    for (int chunk = 0; chunk < kChunks && i * kChunks + chunk < kOutColumns / 8; chunk += 2) {
      const int of_tile = i * kChunks + chunk;
      StoreMatrices(Chunk(box, row, chunk + Lane() / 16),
                    OutPair<element>(epilogue, sums, of_tile, 0),
                    OutPair<element>(epilogue, sums, of_tile, 1),
                    OutPair<element>(epilogue, sums, of_tile + 1, 0),
                    OutPair<element>(epilogue, sums, of_tile + 1, 1));
    }
  }
};

// Float32 goes from the registers to global memory: four lanes have 32 bytes of a row.
template <int columns, typename Call>
__device__ __forceinline__ void StoreFloatTile(const Call& call, const GemmTile& tile,
                                               const float* sums) {
  using Epilogue = Call::Epilogue;
  constexpr int kOutColumns = Epilogue::kGated ? columns / 2 : columns;
  const int out_column = (Epilogue::kGated ? tile.column / 2 : tile.column) + Lane() % 4 * 2;
#pragma unroll
  for (int second_row = 0; second_row < 2; ++second_row) {
    const int row = OwnWgmmaRow() + second_row * 8;
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

// Stores a warp's rows of boxes that are not whole, 16 bytes at a time.
template <typename Boxes, typename Epilogue>
class OutPart {
  static constexpr int kChunks = Boxes::kRowBytes / 16;  // of a row
  static constexpr int kOwn = kRowsPerWarp * kChunks / 32;

 public:
  __device__ __forceinline__ OutPart(const Epilogue& epilogue, const GemmTile& tile) : tile_(tile) {
    if constexpr (Epilogue::kScatters) {
#pragma unroll
      for (int i = 0; i < kOwn; ++i) {
        const int row = min(RowOf(i), tile.rows - 1);
        rows_[i] = static_cast<uint16_t*>(epilogue.RowAt(tile.row + row));
      }
    }
  }

  // Box number `number`, the rows and columns of it that there are.
  __device__ __forceinline__ void Store(const GemmOperands& p, uint32_t box, int number) const {
    const int chunk = Lane() % kChunks;
    const int column = Boxes::ColumnOf(tile_, number) + chunk * 8;
    if (number * Boxes::kColumns + chunk * 8 >= Boxes::kOutColumns || column >= p.out_columns) {
      return;
    }
#pragma unroll
    for (int i = 0; i < kOwn; ++i) {
      const int row = RowOf(i);
      if (row >= tile_.rows) continue;
      const uint32_t from = Boxes::Chunk(box, row, chunk);
      if constexpr (Epilogue::kScatters) {
        StoreChunk(rows_[i] + column, from);
      } else {
        StoreChunk(p, tile_.row + row, column, from);
      }
    }
  }

 private:
  static __device__ __forceinline__ int RowOf(int i) {
    return FirstOwnRow() + (Lane() + i * 32) / kChunks;
  }

  const GemmTile& tile_;
  uint16_t* rows_[Epilogue::kScatters ? kOwn : 1];
};

}  // namespace octet::device::internal

#endif  // OCTET_RUNTIME_PLATFORM_NVIDIA_GEMM_ROWS_STORE_H_
