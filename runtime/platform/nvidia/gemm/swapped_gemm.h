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

#include "gemm/mxfp4.h"
#include "gemm/pipeline.h"
#include "gemm/tensor_map.h"
#include "octet/gemm_tiles.h"
#include "runtime/platform/gemm_scales.h"

namespace octet::device::internal {

template <int tile_rows, GemmElement element>
class SwappedGemm {
 public:
  static constexpr int kRows = tile_rows;
  static constexpr int kColumns = 2 * kRowsPerWarpgroup;
  static constexpr int kTilesPerUnit = 1;
  static constexpr int kRowUnitsPerGroup = 1 << 16;  // all
  // Warps beside the loading one, which reorder rows so that fewer instructions convert weights.
  // Many rows would keep shared memory too busy.
  static constexpr int kReorderingWarps = element != GemmElement::kMxfp4 || tile_rows > 64
                                              ? 0
                                              : (tile_rows > 32 ? 2 : 1);
  static constexpr int kThreads = 2 * kWarpgroup + 32 * (1 + kReorderingWarps);
  static constexpr int kClusterBlocks = 1;
  static constexpr int kFreeWaves = 0;
  // Warps that convert weights wait for one another's results; twice as many hide that.
  static constexpr int kBlocksPerComputeUnit =
      element == GemmElement::kMxfp4 && tile_rows <= 32 ? 2 : 1;

  struct Maps {
    CUtensorMap rows, weights, weight_scales;
  };

 private:
  // Weights that become bfloat16 in registers. Their scales are copied with them.
  static constexpr bool kConverts = element == GemmElement::kMxfp4;
  static constexpr bool kReorders = kReorderingWarps > 0;
  static constexpr int StagesOf(int rows) {
    if (rows > 64) return 4;
    if (rows > 32) return kConverts ? 7 : 8;
    if (rows > 16) return kConverts ? 5 : 10;
    return kConverts ? 7 : 12;
  }
  static constexpr int kStages = StagesOf(kRows);
  static constexpr int kStageColumns = kStageColumnsOf<element>;
  static constexpr GemmElement kOutElement = OutElementOf(element);
  static constexpr int kMultiplyingWarps = 8;
  static constexpr int kWeightRowBytes = kConverts ? kMxfp4RowBytes : kStageRowBytes;
  static constexpr int kRowBoxes = kConverts ? 2 : 1;  // of the rows of A, one behind the other
  static constexpr uint32_t kWeightsBytes = kColumns * kWeightRowBytes;
  static constexpr uint32_t kBoxBytes = kRows * kStageRowBytes;  // of rows, or a warpgroup's output
  static constexpr uint32_t kScalesBytes = kConverts ? kColumns * kMxfp4ScaleBytes : 0;
  static constexpr uint32_t kStageBytes = kWeightsBytes + kRowBoxes * kBoxBytes + kScalesBytes;
  static constexpr uint32_t kBarriers = kStages * kStageBytes + 2 * kBoxBytes;

 public:
  static constexpr size_t kSharedBytes = kBarriers + (kReorders ? 3 : 2) * kStages * kBarrierBytes;

  static cudaError_t MakeMaps(const GemmOperands& p, Maps* maps) {
    cudaError_t error =
        MakeTensorMap({p.a, p.k, p.rows, 0, kRows}, RowElementOf(element), &maps->rows);
    if (error != cudaSuccess) return error;
    if constexpr (kConverts) {
      constexpr GemmElement kBytes = GemmElement::kFp8;
      const int64_t scale_bytes = int64_t{p.scales.row_words} * 4;
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
    const SharedAddresses at = {SharedAddress(shared)};
    if (threadIdx.x == 0) {
      for (int i = 0; i < kStages; ++i) {
        InitBarrier(at.Full(i), 1);
        InitBarrier(at.Empty(i), kMultiplyingWarps);
        if constexpr (kReorders) InitBarrier(at.Reordered(i), kReorderingWarps);
      }
      PublishBarriers();
    }
    __syncthreads();
    if (threadIdx.x >= 2 * kWarpgroup) {
      if constexpr (kReorders) {
        const int warp = static_cast<int>(threadIdx.x - 2 * kWarpgroup) / 32;
        if (warp == 0 && Lane() == 0) LoadTiles(call, walk, at);
        if (warp > 0) ReorderRows(call.operands, walk, at, warp - 1);
      } else {
        if (Lane() == 0) LoadTiles(call, walk, at);
      }
    } else {
      MultiplyTiles(call, walk, at);
    }
  }

 private:
  using Ring = RingPlace<kStages>;
  using Sums = float[kRows / 2];

  // Addresses in shared memory.
  struct SharedAddresses {
    uint32_t base;

    __device__ uint32_t Weights(int stage) const {
      return base + static_cast<uint32_t>(stage) * kStageBytes;
    }
    __device__ uint32_t Rows(int stage) const { return Weights(stage) + kWeightsBytes; }
    __device__ uint32_t Scales(int stage) const { return Rows(stage) + kRowBoxes * kBoxBytes; }
    __device__ uint32_t Box(int warpgroup) const {
      return base + kStages * kStageBytes + static_cast<uint32_t>(warpgroup) * kBoxBytes;
    }
    __device__ uint32_t Full(int stage) const {
      return base + kBarriers + static_cast<uint32_t>(stage * kBarrierBytes);
    }
    __device__ uint32_t Empty(int stage) const { return Full(kStages + stage); }
    // The rows are in the order of converted weights.
    __device__ uint32_t Reordered(int stage) const { return Full(2 * kStages + stage); }
  };

  template <typename Call, typename Walk>
  static __device__ __forceinline__ void LoadTiles(const Call& call, Walk& walk,
                                                   const SharedAddresses& at) {
    const int stages = (call.operands.k + kStageColumns - 1) / kStageColumns;
    Ring ring;
    auto track = call.TrackOf(GemmTrack::kLoad, true);
    for (int unit = static_cast<int>(blockIdx.x); walk.Find(unit);
         unit += static_cast<int>(gridDim.x)) {
      const GemmTile tile = walk.Tile(0);
      for (int i = 0; i < stages; ++i) {
        if (!WaitForWarps(at.Empty(ring.stage), ring.parity ^ 1, walk)) EndKernel(walk);
        const uint32_t full = at.Full(ring.stage);
        ExpectBytes(full, kStageBytes);
        // The copy unit counts columns of weights in bytes if they have less than one.
        LoadBox(at.Weights(ring.stage), &call.maps.weights, full,
                kConverts ? i * kWeightRowBytes : i * kStageColumns, tile.column, tile.expert);
#pragma unroll
        for (int box = 0; box < kRowBoxes; ++box) {
          LoadBox(at.Rows(ring.stage) + box * kBoxBytes, &call.maps.rows, full,
                  i * kStageColumns + box * (kStageColumns / kRowBoxes), tile.row);
        }
        if constexpr (kConverts) {
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
                                                     const SharedAddresses& at, int warp) {
    const int stages = (p.k + kStageColumns - 1) / kStageColumns;
    const Mxfp4RowOrder order(kBoxBytes);
    Ring ring;
    for (int unit = static_cast<int>(blockIdx.x); walk.Find(unit);
         unit += static_cast<int>(gridDim.x)) {
      for (int i = 0; i < stages; ++i) {
        WaitBarrier(at.Full(ring.stage), ring.parity);
#pragma unroll
        for (int row = 0; row < kRows; row += kReorderingWarps * Mxfp4RowOrder::kRows) {
          order.Reorder(
              at.Rows(ring.stage) +
              static_cast<uint32_t>((row + warp * Mxfp4RowOrder::kRows) * kStageRowBytes));
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
                                                       const SharedAddresses& at) {
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
      } else if constexpr (kConverts) {
        MultiplyConverted(call.operands, at, ring, sums);
      } else {
        Multiply(at, stages, ring, sums);
      }
      EndSlice(track, GemmWork::kMultiply, tile);
      Finish(call, tile, sums);
      if constexpr (Call::Epilogue::kFloat32) {
        StoreFloatTile(call, tile, sums);
      } else {
        StoreTile(call, tile, at.Box(warpgroup), sums);
      }
      EndSlice(track, GemmWork::kEpilogue, tile);
    }
  }

  // Returns the offset of the warpgroup's part of a stage of weights.
  static __device__ __forceinline__ uint32_t OwnWeights() {
    return threadIdx.x / kWarpgroup * static_cast<uint32_t>(kRowsPerWarpgroup * kStageRowBytes);
  }

  static __device__ __forceinline__ void Multiply(const SharedAddresses& at, int stages, Ring& ring,
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

  // The weights of half a stage, which has a box of rows: the operands of four wgmma.
  struct ConvertedWeights {
    uint32_t of[kMmasPerStage][4];
  };

  // The first of the two rows of a stage of weights of which the thread converts a part; the other
  // is 8 more.
  static __device__ __forceinline__ int OwnWeightRow() {
    return static_cast<int>(threadIdx.x) / 32 * 16 + Lane() / 4;
  }

  // Four threads have the same two rows of a stage, and each the scales of one of their four blocks:
  // two factors, of which the second is 1, if `usual`, which the warp has in common.
  struct WeightScales {
    uint32_t first[2];
    uint32_t second[2];
    bool usual;
  };

  // Loads the scales of stage `ring_stage`, which is stage `stage` of K.
  static __device__ __forceinline__ WeightScales LoadScales(const GemmOperands& p,
                                                            const SharedAddresses& at,
                                                            int ring_stage, int stage) {
    constexpr int kStagesOfScales = kMxfp4ScaleBytes / kMxfp4Blocks;
    constexpr uint32_t kOne = 127;
    const int block = Lane() % kMxfp4Blocks;
    uint32_t exponents[2];
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      exponents[i] =
          LoadSharedByte(at.Scales(ring_stage) +
                         static_cast<uint32_t>((OwnWeightRow() + i * 8) * kMxfp4ScaleBytes +
                                               stage % kStagesOfScales * kMxfp4Blocks + block));
    }
    WeightScales scales;
    scales.usual = __all_sync(0xffffffffU, max(exponents[0], exponents[1]) <= kMostUsualScale);
    // Scales behind the last column may be NaN, which zeros do not hide.
    const bool exists = (stage * kMxfp4Blocks + block) * kMxBlock < p.k;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      scales.first[i] = Bf16PairOfUsualScale(exponents[i]);
      if (!scales.usual) {
        scales.first[i] = k2Pow126;
        scales.second[i] = Bf16PairOfScale(exists ? exponents[i] : kOne);
      }
    }
    return scales;
  }

  // Converts the thread's part of half `half` of a stage. If rows are reordered, it is half of the
  // blocks `own` of its two rows, else a quarter of two blocks of each.
  static __device__ __forceinline__ void Convert(const SharedAddresses& at, int ring_stage,
                                                 int half, const uint4 (&own)[2],
                                                 const WeightScales& scales,
                                                 ConvertedWeights& weights) {
    if constexpr (kReorders) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int second = i % 2;
        const uint4& block = own[second];
        const uint32_t words[] = {half == 0 ? block.x : block.z, half == 0 ? block.y : block.w};
        const Mxfp4Pairs pairs = PairsOfMxfp4(words[i / 2], scales.first[second]);
#pragma unroll
        for (int j = 0; j < 4; ++j) {
          weights.of[i / 2 * 2 + j / 2][second + j % 2 * 2] = pairs.of[j];
        }
      }
    } else {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int second = i % 2;
        const int block = half * 2 + i / 2;
        const uint4 v = LoadMxfp4Block(at.Weights(ring_stage), OwnWeightRow() + second * 8, block);
        const uint32_t scale = OfBlock(scales.first[second], block);
        const uint32_t words[] = {v.x, v.y, v.z, v.w};
#pragma unroll
        for (int j = 0; j < 4; ++j) {
          weights.of[i / 2 * 2 + j / 2][second + j % 2 * 2] =
              PairOfMxfp4(words[j], static_cast<uint32_t>(Lane() % kMxfp4Blocks), scale);
        }
      }
    }
    if (scales.usual) return;
#pragma unroll
    for (int i = 0; i < kMmasPerStage; ++i) {
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        uint32_t scale = scales.second[j % 2];
        if constexpr (!kReorders) scale = OfBlock(scale, half * 2 + i / 2);
        weights.of[i][j] = MultiplyBf16Pair(weights.of[i][j], scale);
      }
    }
  }
  // Returns `value` of the thread of the same rows that has the scales of `block`.
  static __device__ __forceinline__ uint32_t OfBlock(uint32_t value, int block) {
    return __shfl_sync(0xffffffffU, value, block, kMxfp4Blocks);
  }

  // While the tensor cores multiply one half of a stage, the warps convert the other.
  static __device__ __forceinline__ void MultiplyConverted(const GemmOperands& p,
                                                           const SharedAddresses& at, Ring& ring,
                                                           Sums& sums) {
    const int stages = (p.k + kStageColumns - 1) / kStageColumns;
    ConvertedWeights halves[2];
    int previous = 0;
    for (int i = 0; i < stages; ++i) {
      const uint32_t rows = UniformOf(TileDescriptor(at.Rows(ring.stage)));
      WaitBarrier(at.Full(ring.stage), ring.parity);
      uint4 own[2];
      if constexpr (kReorders) {
#pragma unroll
        for (int row = 0; row < 2; ++row) {
          own[row] = LoadMxfp4Block(at.Weights(ring.stage), OwnWeightRow() + row * 8,
                                    Lane() % kMxfp4Blocks);
        }
      }
      const WeightScales scales = LoadScales(p, at, ring.stage, i);
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        WaitWgmma<1>();  // this half of the stage before, whose registers are used again
        if (half == 1 && i > 0 && Lane() == 0) Arrive(at.Empty(previous));
        Convert(at, ring.stage, half, own, scales, halves[half]);
        if (kReorders && half == 0) WaitBarrier(at.Reordered(ring.stage), ring.parity);
        BeginWgmma();
#pragma unroll
        for (int k = 0; k < kMmasPerStage; ++k) {
          WgmmaOfRegisters<kRows>::Multiply(sums, halves[half].of[k],
                                            rows + half * (kBoxBytes >> 4) + k * 2, i | half | k);
        }
        CommitWgmma();
      }
      previous = ring.stage;
      ring.Next();
    }
    WaitWgmma<0>();
    if (Lane() == 0) Arrive(at.Empty(previous));
  }

  struct Worker {
    const SharedAddresses& at;
    Ring& ring;
  };

  // The row of the tile that element j of a thread's sums belongs to.
  static __device__ __forceinline__ int OwnRow(int j) { return j / 4 * 8 + Lane() % 4 * 2 + j % 2; }

  // The sums of each stage are scaled before they are added.
  template <bool gated>
  static __device__ __forceinline__ void MultiplyScaled(const GemmOperands& p, const GemmTile& tile,
                                                        const Worker& worker, Sums& sums) {
    const int stages = (p.k + kStageColumns - 1) / kStageColumns;
    const SharedAddresses& at = worker.at;
    Ring& ring = worker.ring;
    StageScales<gated> scales(p, tile);
#pragma unroll
    for (int j = 0; j < kRows / 2; ++j) sums[j] = 0;
    for (int i = 0; i < stages; ++i) {
      typename StageScales<gated>::Factors factors;
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

  // The scales of a tile, read a stage ahead: of the thread's rows and of the tile's columns.
  template <bool gated>
  class StageScales {
    static constexpr int kOwnRows = kRows / 4;
    static constexpr int kKinds = gated ? 2 : 1;  // of columns: gate and up

   public:
    struct Factors {
      float of[kKinds][kOwnRows];
    };

    __device__ __forceinline__ StageScales(const GemmOperands& p, const GemmTile& tile)
        : rows_(ScaleRows::OfRows(p.scales, tile.row)),
          columns_(ScaleRows::OfColumns<gated>(p, tile.expert, min(tile.column, p.n - 1))),
          up_row_(ScaleRows::UpRow(p)),
          last_row_(tile.rows - 1) {
      Read(0);
    }

    // Sets the factors of `stage`, which was read last, and reads the next stage's.
    __device__ __forceinline__ void Take(int stage, int stages, Factors& factors) {
#pragma unroll
      for (int kind = 0; kind < kKinds; ++kind) {
        const float of_columns = columns_.ScaleOf(column_words_[kind], stage);
#pragma unroll
        for (int i = 0; i < kOwnRows; ++i) {
          factors.of[kind][i] = rows_.ScaleOf(row_words_[i], stage) * of_columns;
        }
      }
      Read(min(stage + 1, stages - 1));
    }

   private:
    // Rows beyond the last repeat it.
    __device__ __forceinline__ void Read(int stage) {
#pragma unroll
      for (int i = 0; i < kOwnRows; ++i) {
        row_words_[i] = rows_.WordAt(min(OwnRow(i / 2 * 4 + i % 2), last_row_), stage);
      }
#pragma unroll
      for (int kind = 0; kind < kKinds; ++kind) {
        column_words_[kind] = columns_.WordAt(kind * up_row_, stage);
      }
    }

    ScaleRows rows_;
    ScaleRows columns_;
    int up_row_;  // of columns_
    int last_row_;
    uint32_t row_words_[kOwnRows];
    uint32_t column_words_[kKinds];
  };

  // The first of the 16 columns of B that the warp's sums belong to, counted in the warpgroup.
  static __device__ __forceinline__ int WarpColumn() {
    return static_cast<int>(threadIdx.x) / 32 % 4 * 16;
  }

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
        sums[j] *= call.epilogue.RowScale(tile.row + min(OwnRow(j), tile.rows - 1));
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
      if (OwnRow(j) >= tile.rows || (Epilogue::kGated && second)) continue;
      const int own_column = column + (second ? 8 : 0);
      if (own_column >= call.operands.out_columns) continue;
      float v = sums[j];
      if constexpr (Epilogue::kGated) {
        v = call.epilogue.Gate(v, sums[j + 2 < kRows / 2 ? j + 2 : j]);
      }
      StoreFloat(call.operands, tile.row + OwnRow(j), own_column, v);
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

#endif  // OCTET_RUNTIME_PLATFORM_NVIDIA_GEMM_SWAPPED_GEMM_H_
