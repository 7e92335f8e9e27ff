// Units of tiles of many rows, as the thread that takes them tells the warps of both blocks of a
// cluster: where its tile is, so that no other warp has to find it.
#ifndef OCTET_RUNTIME_PLATFORM_NVIDIA_GEMM_ROWS_UNITS_H_
#define OCTET_RUNTIME_PLATFORM_NVIDIA_GEMM_ROWS_UNITS_H_

#include <cuda_runtime.h>

#include <cstdint>

#include "gemm/async.h"
#include "gemm/pipeline.h"
#include "gemm/wgmma.h"
#include "runtime/platform/gemm_call.h"

namespace octet::device::internal {

// A unit, as one block is told it.
struct ToldUnit {
  static constexpr int kNone = -1;   // instead of an expert: there are no more units
  static constexpr int kStuck = -2;  // to the loading thread alone: other warps have not come

  GemmTile tile;
  bool same_rows;  // as the other block's tile
  int unit;        // its number, if the walk tells

  __device__ __forceinline__ bool found() const { return tile.expert >= 0; }
};

// The bytes of a unit in shared memory: a tile, whose column is even, with `same_rows` in its
// lowest bit, then the number.
inline constexpr uint32_t kToldTileBytes = 16;
template <typename Walk>
inline constexpr uint32_t kToldBytes = kToldTileBytes + (Walk::kTells ? 4 : 0);
inline constexpr uint32_t kToldRoom = 32;  // of them, aligned to 16
inline constexpr int kUnitSlots = 2;       // units that are told at once

// Stores to `to` in block `block`; the barrier there counts the bytes.
template <typename Walk>
__device__ __forceinline__ void TellUnit(const ToldUnit& told, uint32_t to, uint32_t barrier,
                                         uint32_t block) {
  const GemmTile& tile = told.tile;
  const int last = tile.column | (told.same_rows ? 1 : 0);
  StoreWordsTo(to, make_uint4(tile.expert, tile.row, tile.rows, last), barrier, block);
  if constexpr (Walk::kTells) {
    StoreWordTo(to + kToldTileBytes, static_cast<uint32_t>(told.unit), barrier, block);
  }
}

template <typename Walk>
__device__ __forceinline__ ToldUnit LoadToldUnit(uint32_t from) {
  const auto v = LoadShared16(from);
  const GemmTile tile = {static_cast<int>(v.x), static_cast<int>(v.y), static_cast<int>(v.z),
                         static_cast<int>(v.w & ~1U)};
  ToldUnit told = {tile, (v.w & 1) != 0, 0};
  if constexpr (Walk::kTells) told.unit = static_cast<int>(LoadWord(from + kToldTileBytes));
  return told;
}

// The same tile, as values that the compiler knows all lanes have: then it also knows that they run
// the main loop together, and computes addresses once for all lanes.
__device__ __forceinline__ GemmTile UniformTile(const GemmTile& tile) {
  return {UniformOf(tile.expert), UniformOf(tile.row), UniformOf(tile.rows),
          UniformOf(tile.column)};
}

// By the loading thread of each block: tells both blocks the unit, or is told. `at`: where it goes
// (RowsShared).
template <typename Shared, typename Walk>
__device__ __forceinline__ ToldUnit ShareUnit(const Shared& at, Walk& walk, uint32_t round,
                                              int unit) {
  const int slot = static_cast<int>(round % kUnitSlots);
  const uint32_t parity = round / kUnitSlots & 1;
  const ToldUnit stuck = {{ToldUnit::kStuck}};
  if (at.rank == 0) {
    const bool found = walk.Find(unit);
    if (!WaitForWarps(at.UnitEmpty(slot), parity ^ 1, walk)) return stuck;
    ExpectBytes(at.UnitFull(slot), kToldBytes<Walk>);
#pragma unroll 1
    for (int block = 1;; --block) {
      ToldUnit told = {{ToldUnit::kNone}, walk.SameRows(), unit};
      if (found) told.tile = walk.Tile(block);
      TellUnit<Walk>(told, at.Unit(slot), at.UnitFull(slot), static_cast<uint32_t>(block));
      if (block == 0) return told;
    }
  }
  ExpectBytes(at.UnitFull(slot), kToldBytes<Walk>);
  if (!WaitForWarps(at.UnitFull(slot), parity, walk)) return stuck;
  const ToldUnit told = LoadToldUnit<Walk>(at.Unit(slot));
  ArriveAt(at.UnitEmpty(slot), 0);
  return told;
}

// By whole warps, for each round once.
template <typename Walk, typename Shared>
__device__ __forceinline__ ToldUnit TakeUnit(const Shared& at, uint32_t round) {
  const int slot = static_cast<int>(round % kUnitSlots);
  WaitBarrier(at.UnitFull(slot), round / kUnitSlots & 1);
  ToldUnit told = LoadToldUnit<Walk>(at.Unit(slot));
  told.tile = UniformTile(told.tile);
  __syncwarp();
  if (Lane() == 0) ArriveAt(at.UnitEmpty(slot), 0);
  return told;
}

}  // namespace octet::device::internal

#endif  // OCTET_RUNTIME_PLATFORM_NVIDIA_GEMM_ROWS_UNITS_H_
