// Tiles of few rows: the weights are wgmma's M, 128 of them by 16, 32 or 64 rows of A, so that a
// tile of one row costs little more than reading its weights. The GPU's memory is the limit, which
// a deep ring of stages keeps busy.
//
// Persistent blocks of two multiplying warpgroups and one loading warp. Block b takes units b, b +
// blocks, ...: all tiles read equally much, and the row tiles of the same weights are neighbours.
//
// Weights of four bits become bfloat16 in registers. Eight of them are a word, from which pairs of
// numbers that are 16 bits apart take the fewest instructions, so one or two more warps put the
// columns of A in that order.
#ifndef OCTET_RUNTIME_PLATFORM_NVIDIA_GEMM_SWAPPED_GEMM_H_
#define OCTET_RUNTIME_PLATFORM_NVIDIA_GEMM_SWAPPED_GEMM_H_

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "gemm/mxfp4.h"
#include "gemm/mxfp4_fp8.h"
#include "gemm/pipeline.h"
#include "gemm/swapped_bf16.h"
#include "gemm/swapped_fp8.h"
#include "gemm/swapped_scales.h"
#include "gemm/swapped_shared.h"
#include "gemm/swapped_store.h"
#include "gemm/tensor_map.h"
#include "octet/gemm_tiles.h"

namespace octet::device::internal {

template <int tile_rows, GemmElement element>
class SwappedGemm {
  using Shared = SwappedShared<tile_rows, element>;

 public:
  static constexpr int kRows = Shared::kRows;
  static constexpr int kColumns = Shared::kColumns;
  static constexpr int kTilesPerUnit = 1;
  static constexpr int kRowUnitsPerGroup = 1 << 16;  // all
  static constexpr int kThreads =
      2 * kWarpgroup + 32 * (1 + Shared::kReorderingWarps + Shared::kScalingWarps);
  static constexpr int kClusterBlocks = 1;
  static constexpr int kFreeWaves = 0;
  // Warps that convert weights wait for one another's results; twice as many hide that.
  static constexpr int kBlocksPerComputeUnit = HasMxfp4Weights(element) && tile_rows <= 32 ? 2 : 1;

  struct Maps {
    CUtensorMap rows, weights, weight_scales;
  };

 private:
  static constexpr bool kConverts = Shared::kConverts;
  static constexpr bool kToFp8 = Shared::kToFp8;
  static constexpr bool kReorders = Shared::kReorders;
  static constexpr int kStages = Shared::kStages;
  static constexpr int kStageColumns = Shared::kStageColumns;
  static constexpr int kWeightRowBytes = Shared::kWeightRowBytes;
  static constexpr int kRowBoxes = Shared::kRowBoxes;
  static constexpr int kReorderingWarps = Shared::kReorderingWarps;
  static constexpr uint32_t kBoxBytes = Shared::kBoxBytes;
  using Store = SwappedStore<tile_rows, OutElementOf(element)>;

 public:
  static constexpr size_t kSharedBytes = Shared::kBytes;

  static cudaError_t MakeMaps(const GemmOperands& p, Maps* maps) {
    cudaError_t error =
        MakeTensorMap({p.a, p.k, p.rows, 0, kRows}, RowElementOf(element), &maps->rows);
    if (error != cudaSuccess) return error;
    if constexpr (kConverts) {
      constexpr GemmElement kBytes = GemmElement::kFp8;
      const int64_t scale_bytes = int64_t{p.scales.mxfp4_words} * 4;
      error = MakeTensorMap({p.scales.b, scale_bytes, p.n, p.experts, kColumns, kMxfp4ScaleBytes},
                            kBytes, &maps->weight_scales);
      if (error != cudaSuccess) return error;
      return MakeTensorMap({p.b, p.k / 2, p.n, p.experts, kColumns, kMxfp4RowBytes}, kBytes,
                           &maps->weights);
    } else {
      return MakeTensorMap({p.b, p.k, p.n, p.experts, kColumns}, element, &maps->weights);
    }
  }

  template <typename Call, typename Walk>
  static __device__ __forceinline__ void Run(const Call& call, Walk walk, char* shared) {
    static_assert(!Walk::kAwaits && !Walk::kTells);
    const Shared at = {SharedAddress(shared)};
    if (threadIdx.x == 0) at.InitBarriers();
    if constexpr (kToFp8) Fp8OfMxfp4::MakeTable(at.Table());
    __syncthreads();
    if (threadIdx.x >= 2 * kWarpgroup) {
      if constexpr (kReorders) {
        const int warp = static_cast<int>(threadIdx.x - 2 * kWarpgroup) / 32;
        if (warp == 0 && Lane() == 0) LoadTiles(call, walk, at);
        if (warp > 0 && warp <= kReorderingWarps) ReorderRows(call.operands, walk, at, warp - 1);
        if constexpr (kToFp8) {
          if (warp > kReorderingWarps) {
            const int scaling = warp - kReorderingWarps - 1;
            if (call.operands.scales.ue8m0) {
              WriteEntries<true>(call.operands, walk, at, scaling);
            } else {
              WriteEntries<false>(call.operands, walk, at, scaling);
            }
          }
        }
      } else {
        if (Lane() == 0) LoadTiles(call, walk, at);
      }
    } else {
      MultiplyTiles(call, walk, at);
    }
  }

 private:
  using Ring = Shared::Ring;
  using Sums = Shared::Sums;

  template <typename Call, typename Walk>
  static __device__ __forceinline__ void LoadTiles(const Call& call, Walk& walk, const Shared& at) {
    const int stages = Shared::StagesOfTile(call.operands.k);
    Ring ring;
    auto track = call.TrackOf(GemmTrack::kLoad, true);
    for (int unit = static_cast<int>(blockIdx.x); walk.Find(unit);
         unit += static_cast<int>(gridDim.x)) {
      const GemmTile tile = walk.Tile(0);
      for (int i = 0; i < stages; ++i) {
        if (!WaitForWarps(at.Empty(ring.stage), ring.parity ^ 1, walk)) EndKernel(walk);
        const uint32_t full = at.Full(ring.stage);
        ExpectBytes(full, Shared::kStageBytes);
        // The copy unit counts columns of weights in bytes if they have less than one.
        LoadBox(at.Weights(ring.stage), &call.maps.weights, full,
                kConverts ? i * kWeightRowBytes : i * kStageColumns, tile.column, tile.expert);
#pragma unroll
        for (int box = 0; box < kRowBoxes; ++box) {
          LoadBox(at.Rows(ring.stage) + box * kBoxBytes, &call.maps.rows, full,
                  i * kStageColumns + box * (kStageColumns / kRowBoxes), tile.row);
        }
        if constexpr (Shared::kScalesBytes > 0) {
          LoadBox(at.Scales(ring.stage), &call.maps.weight_scales, full,
                  i * kMxfp4Blocks / kMxfp4ScaleBytes * kMxfp4ScaleBytes, tile.column, tile.expert);
        }
        ring.Next();
      }
      track.End(GemmWork::kLoad, tile);
    }
  }

  // Reordering warp `warp` reorders its part of the rows of each stage.
  template <typename Walk>
  static __device__ __forceinline__ void ReorderRows(const GemmOperands& p, Walk& walk,
                                                     const Shared& at, int warp) {
    const int stages = (p.k + kStageColumns - 1) / kStageColumns;
    using Order = std::conditional_t<kToFp8, Fp8RowOrder, Mxfp4RowOrder>;
    const Order order(kBoxBytes);
    Ring ring;
    for (int unit = static_cast<int>(blockIdx.x); walk.Find(unit);
         unit += static_cast<int>(gridDim.x)) {
      for (int i = 0; i < stages; ++i) {
        WaitBarrier(at.Full(ring.stage), ring.parity);
#pragma unroll
        for (int row = 0; row < kRows; row += kReorderingWarps * Order::kRows) {
          order.Reorder(at.Rows(ring.stage) +
                        static_cast<uint32_t>((row + warp * Order::kRows) * kStageRowBytes));
        }
        FenceSharedForCopies();  // the tensor cores read as the copy unit does
        __syncwarp();
        if (Lane() == 0) Arrive(at.Reordered(ring.stage));
        ring.Next();
      }
    }
  }

  template <typename Call, typename Walk>
  static __device__ __forceinline__ void MultiplyTiles(const Call& call, Walk& walk,
                                                       const Shared& at) {
    const int stages = (call.operands.k + kStageColumns - 1) / kStageColumns;
    const int warpgroup = static_cast<int>(threadIdx.x) / kWarpgroup;
    Ring ring;
    auto track = call.TrackOf(GemmTrack::kMultiply, threadIdx.x == 0);
    Sums sums;
    for (int unit = static_cast<int>(blockIdx.x); walk.Find(unit);
         unit += static_cast<int>(gridDim.x)) {
      GemmTile tile = walk.Tile(0);
      tile.column += warpgroup * kRowsPerWarpgroup;
      if constexpr (track.kRecords) WaitBarrier(at.Full(ring.stage), ring.parity);
      EndSlice(track, GemmWork::kWait, tile);
      if constexpr (element == GemmElement::kFp8) {
        MultiplyScaled<Call::Epilogue::kGated>(call.operands, tile, {at, ring}, sums);
      } else if constexpr (kToFp8) {
        SwappedToFp8<Shared>::Multiply(call.operands, at, ring, sums);
      } else if constexpr (kConverts) {
        SwappedToBf16<Shared>::Multiply(call.operands, at, ring, sums);
      } else {
        Multiply(at, stages, ring, sums);
      }
      EndSlice(track, GemmWork::kMultiply, tile);
      Store::Finish(call, tile, sums);
      if constexpr (Call::Epilogue::kFloat32) {
        Store::StoreFloatTile(call, tile, sums);
      } else {
        Store::StoreTile(call, tile, at.Box(warpgroup), sums);
      }
      EndSlice(track, GemmWork::kEpilogue, tile);
    }
  }

  // Returns the offset of the warpgroup's part of a stage of weights.
  static __device__ __forceinline__ uint32_t OwnWeights() {
    return threadIdx.x / kWarpgroup * static_cast<uint32_t>(kRowsPerWarpgroup * kStageRowBytes);
  }

  static __device__ __forceinline__ void Multiply(const Shared& at, int stages, Ring& ring,
                                                  Sums& sums) {
    const uint32_t own_weights = OwnWeights();
    int previous = 0;
    for (int i = 0; i < stages; ++i) {
      const uint32_t weights = UniformOf(TileDescriptor(at.Weights(ring.stage) + own_weights));
      const uint32_t own_rows = UniformOf(TileDescriptor(at.Rows(ring.stage)));
      WaitBarrier(at.Full(ring.stage), ring.parity);
      BeginWgmma();
#pragma unroll
      for (int k = 0; k < kMmasPerStage; ++k) {
        Wgmma<kRows, element>::Multiply(sums, weights + k * 2, own_rows + k * 2, i | k);
      }
      CommitWgmma();
      WaitWgmma<1>();
      if (i > 0 && Lane() == 0) Arrive(at.Empty(previous));
      previous = ring.stage;
      ring.Next();
    }
    WaitWgmma<0>();
    if (Lane() == 0) Arrive(at.Empty(previous));
  }

  struct Worker {
    const Shared& at;
    Ring& ring;
  };

  // The sums of each stage are scaled before they are added.
  template <bool gated>
  static __device__ __forceinline__ void MultiplyScaled(const GemmOperands& p, const GemmTile& tile,
                                                        const Worker& worker, Sums& sums) {
    const int stages = (p.k + kStageColumns - 1) / kStageColumns;
    const Shared& at = worker.at;
    Ring& ring = worker.ring;
    SwappedScales<kRows, gated> scales(p, tile);
#pragma unroll
    for (int j = 0; j < kRows / 2; ++j) sums[j] = 0;
    for (int i = 0; i < stages; ++i) {
      typename SwappedScales<kRows, gated>::Factors factors;
      scales.Take(i, stages, factors);
      const uint32_t weights = UniformOf(TileDescriptor(at.Weights(ring.stage) + OwnWeights()));
      const uint32_t rows = UniformOf(TileDescriptor(at.Rows(ring.stage)));
      WaitBarrier(at.Full(ring.stage), ring.parity);
      Sums partial;
      BeginWgmma();
#pragma unroll
      for (int k = 0; k < kMmasPerStage; ++k) {
        Wgmma<kRows, element>::Multiply(partial, weights + k * 2, rows + k * 2, k);
      }
      CommitWgmma();
      WaitWgmma<0>();
      if (Lane() == 0) Arrive(at.Empty(ring.stage));
#pragma unroll
      for (int j = 0; j < kRows / 2; ++j) {
        const int kind = gated ? j / 2 % 2 : 0;
        sums[j] = __fmaf_rn(partial[j], factors.of[kind][j / 4 * 2 + j % 2], sums[j]);
      }
      ring.Next();
    }
  }
};

}  // namespace octet::device::internal

#endif  // OCTET_RUNTIME_PLATFORM_NVIDIA_GEMM_SWAPPED_GEMM_H_
