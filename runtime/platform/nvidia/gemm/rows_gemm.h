// Tiles of many rows: 128 rows by up to 256 columns, rows being wgmma's M.
//
// Persistent blocks of three warpgroups in clusters of two. One thread of the third warpgroup
// loads, and its other warps are free, but for one with FP8, which loads scales; the other two
// warpgroups multiply 64 rows each. The blocks of a cluster take a unit of two tiles: two row tiles
// share the weights, of which each block loads one half for both; two column tiles share the rows
// likewise. Units come from a counter in global memory: the loading thread of block 0 takes the
// next one while the last stages of the current one are under way, finds its tiles, and tells all
// warps of both blocks.
#ifndef OCTET_RUNTIME_PLATFORM_NVIDIA_GEMM_ROWS_GEMM_H_
#define OCTET_RUNTIME_PLATFORM_NVIDIA_GEMM_ROWS_GEMM_H_

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "gemm/pipeline.h"
#include "gemm/rows_scales.h"
#include "gemm/rows_store.h"
#include "gemm/rows_units.h"
#include "gemm/tensor_map.h"
#include "octet/gemm_tiles.h"
#include "runtime/platform/gemm_call.h"
#include "runtime/platform/gemm_scales.h"

namespace octet::device::internal {

template <int columns, GemmElement element>
class RowsGemm {
 public:
  static constexpr int kRows = 2 * kRowsPerWarpgroup;
  static constexpr int kColumns = columns;
  static constexpr int kTilesPerUnit = 2;
  static constexpr int kRowUnitsPerGroup = 8;
  static constexpr int kThreads = 3 * kWarpgroup;
  static constexpr int kClusterBlocks = 2;
  static constexpr int kBlocksPerComputeUnit = 1;
  static constexpr int kTellers = 2;  // the multiplying warpgroups
  // Sums of FP8 products leave too few registers for what free warps do.
  static constexpr int kFreeWaves = element == GemmElement::kFp8 ? 0 : 3;

  struct Maps {
    CUtensorMap rows, half_rows, weights, half_weights, out;
  };

 private:
  static constexpr int kStages = 4;
  static constexpr int kStageColumns = kStageColumnsOf<element>;
  static constexpr GemmElement kOutElement = OutElementOf(element);
  static constexpr int kBoxColumns = kBoxRowBytes / BytesOf(kOutElement);
  static constexpr int kMultiplyingWarps = 8;  // of a block
  static constexpr uint32_t kRowsBytes = kRows * kStageRowBytes;
  static constexpr uint32_t kWeightsBytes = kColumns * kStageRowBytes;
  static constexpr uint32_t kStageBytes = kRowsBytes + kWeightsBytes;
  static constexpr bool kScales = element == GemmElement::kFp8;
  // Of output, for each warpgroup: all at once where there is room, or two in turn.
  static constexpr int kBoxesAtOnce = kScales ? kColumns / kBoxColumns : 1;
  static constexpr int kBoxes = kScales ? kBoxesAtOnce : 2;
  static constexpr uint32_t kBoxBytes = kRowsPerWarpgroup * kStageRowBytes;
  // Room for the scales of a gated product, which has more.
  static constexpr int kScalingWarps = kScales ? 1 : 0;
  static constexpr int kScalingLanes = kScalingWarps * 32;
  static constexpr uint32_t kScalesBytes = kScales ? StageScalesOf<kColumns, true>::kBytes : 0;
  static constexpr uint32_t kScalesAt = kStages * kStageBytes + 2 * kBoxes * kBoxBytes;
  static constexpr uint32_t kBarriers = kScalesAt + kStages * kScalesBytes;
  static constexpr int kUnitSlots = 2;  // units that are announced at once
  static constexpr uint32_t kUnits =
      (kBarriers + (2 * kStages + 2 * kUnitSlots + 1) * kBarrierBytes + 15) / 16 * 16;
  // Of SyncThreads(); the multiplying warpgroups have 1 and 2.
  static constexpr int kLoadingBarrier = 3;
  // Warpgroups begin with so many registers, which become fewer for loading and more for
  // multiplying.
  static constexpr int kFirstRegisters = 168;
  // An FFMA that reads the sum and the partial sum that is added to it from one bank of registers
  // takes twice as long. With 224 registers instead of 232 the compiler puts them apart.
  static constexpr int LoadingRegisters(bool awaits, bool moves) {
    return moves ? 88 : (awaits || kScales ? 56 : 40);
  }
  static constexpr int MultiplyingRegisters(bool awaits, bool moves) {
    return (3 * kFirstRegisters - LoadingRegisters(awaits, moves)) / 2;
  }

 public:
  static constexpr size_t kSharedBytes = kUnits + kUnitSlots * kToldRoom;

  static cudaError_t MakeMaps(const GemmOperands& p, Maps* maps) {
    struct Made {
      CUtensorMap* map;
      GemmElement type;
      TensorShape shape;
    };
    const Made all[] = {
        {&maps->rows, element, {p.a, p.k, p.rows, 0, kRows}},
        {&maps->half_rows, element, {p.a, p.k, p.rows, 0, kRows / 2}},
        {&maps->weights, element, {p.b, p.k, p.n, p.experts, kColumns}},
        {&maps->half_weights, element, {p.b, p.k, p.n, p.experts, kColumns / 2}},
        {&maps->out, kOutElement, {p.out, p.out_columns, p.rows, 0, kRowsPerWarpgroup}},
    };
    for (const Made& each : all) {
      const cudaError_t error = MakeTensorMap(each.shape, each.type, each.map);
      if (error != cudaSuccess) return error;
    }
    return cudaSuccess;
  }

  static __device__ __forceinline__ bool AllOfCluster(bool ok, char* shared) {
    const uint32_t word = SharedAddress(shared);
    if (threadIdx.x == 0) *reinterpret_cast<uint32_t*>(shared) = ok ? 1 : 0;
    // The copy unit loads the first tiles to where this word is, and whatever else the kernel has
    // kept there until now. A barrier alone does not order its writes after these stores.
    FenceSharedForCopies();
    SyncCluster();
    const bool both = LoadWordOf(word, 0) != 0 && LoadWordOf(word, 1) != 0;
    SyncCluster();  // both have read the words
    return both;
  }

  template <typename Call, typename Walk, typename Beside = NothingBeside>
  static __device__ __forceinline__ void Run(const Call& call, Walk walk, char* shared,
                                             Beside beside = {}) {
    constexpr bool kMoves = kFreeWaves > 0 && !std::is_same_v<Beside, NothingBeside>;
    const SharedAddresses at = {SharedAddress(shared), RankInCluster()};
    if (threadIdx.x == 0) InitBarriers(at);
    __syncthreads();
    SyncCluster();
    if (UniformOf(threadIdx.x / kWarpgroup) == 2) {
      ShrinkRegisters<LoadingRegisters(Walk::kAwaits, kMoves)>();
      const int wave = static_cast<int>(UniformOf(threadIdx.x % kWarpgroup / 32));
      if (wave == 0 && ElectOne() && !LoadTiles(call, walk, at)) EndKernel(walk);
      if constexpr (kMoves) {
        if (wave > 0) beside(wave - 1);
      }
      if constexpr (kScales) {
        if (wave == 1) {
          if (call.operands.scales.ue8m0) {
            LoadScales<true>(call, walk, at);
          } else {
            LoadScales<false>(call, walk, at);
          }
        }
      }
      if constexpr (Walk::kTells) {
        // Only now: free warps come here at once, and what they took early would be missing to a
        // multiplying warp, which waits for its registers without end. A barrier of the block at
        // two places would do, but compute-sanitizer takes it for divergence.
        __syncwarp();
        SyncThreads(kLoadingBarrier, kWarpgroup);
        if (!WaitForWarps(at.Shrunk(), 0, walk)) EndKernel(walk);
        __syncwarp();
        GrowRegisters<kFirstRegisters>();
      }
    } else {
      GrowRegisters<MultiplyingRegisters(Walk::kAwaits, kMoves)>();
      MultiplyTiles(call, walk, at);
      if constexpr (Walk::kTells) {
        ShrinkRegisters<kFirstRegisters>();
        if (Lane() == 0) Arrive(at.Shrunk());
      }
    }
    // A block's barriers and operands are in use until the other block has ended, too.
    __syncwarp();
    SyncCluster();
  }

 private:
  using Ring = RingPlace<kStages>;

  // Addresses in shared memory.
  struct SharedAddresses {
    uint32_t base;
    uint32_t rank;  // of the block in its cluster

    __device__ uint32_t Rows(int stage) const {
      return base + static_cast<uint32_t>(stage) * kStageBytes;
    }
    __device__ uint32_t Weights(int stage) const { return Rows(stage) + kRowsBytes; }
    __device__ uint32_t Box(int warpgroup, int box) const {
      return base + kStages * kStageBytes +
             static_cast<uint32_t>(warpgroup * kBoxes + box) * kBoxBytes;
    }
    __device__ uint32_t Scales(int stage) const {
      return base + kScalesAt + static_cast<uint32_t>(stage) * kScalesBytes;
    }
    __device__ uint32_t Barrier(int i) const {
      return base + kBarriers + static_cast<uint32_t>(i * kBarrierBytes);
    }
    __device__ uint32_t Full(int stage) const { return Barrier(stage); }
    __device__ uint32_t Empty(int stage) const { return Barrier(kStages + stage); }
    __device__ uint32_t UnitFull(int slot) const { return Barrier(2 * kStages + slot); }
    __device__ uint32_t UnitEmpty(int slot) const {
      return Barrier(2 * kStages + kUnitSlots + slot);
    }
    // The multiplying warps have handed their registers back.
    __device__ uint32_t Shrunk() const { return Barrier(2 * kStages + 2 * kUnitSlots); }
    __device__ uint32_t Unit(int slot) const {
      return base + kUnits + static_cast<uint32_t>(slot) * kToldRoom;
    }
  };

  static __device__ void InitBarriers(const SharedAddresses& at) {
    for (int i = 0; i < kStages; ++i) {
      InitBarrier(at.Full(i), 1 + kScalingLanes);
      InitBarrier(at.Empty(i), 2 * kMultiplyingWarps);  // of both blocks
    }
    for (int i = 0; i < kUnitSlots; ++i) {
      InitBarrier(at.UnitFull(i), 1);
      // And block 1's loading thread.
      InitBarrier(at.UnitEmpty(i), 2 * (kMultiplyingWarps + kScalingWarps) + 1);
    }
    InitBarrier(at.Shrunk(), kMultiplyingWarps);
    PublishBarriers();
  }

  // ---- the loading thread. It waits for other warps with a deadline, and all others wait for it.

  // Tells both blocks the unit, or is told.
  template <typename Walk>
  static __device__ __forceinline__ ToldUnit ShareUnit(const SharedAddresses& at, Walk& walk,
                                                       uint32_t round, int unit) {
    const int slot = static_cast<int>(round % kUnitSlots);
    const uint32_t parity = round / kUnitSlots & 1;
    const ToldUnit stuck = {{ToldUnit::kStuck}};
    if (at.rank == 0) {
      const bool found = walk.Find(unit);
      if (!WaitForWarps(at.UnitEmpty(slot), parity ^ 1, walk)) return stuck;
      ExpectBytes(at.UnitFull(slot), kToldBytes<Walk>);
#pragma unroll 1
      for (int block = kClusterBlocks - 1;; --block) {
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

  template <typename Call, typename Walk>
  static __device__ __forceinline__ bool LoadTiles(const Call& call, Walk& walk,
                                                   const SharedAddresses& at) {
    const int stages = (call.operands.k + kStageColumns - 1) / kStageColumns;
    Ring ring;
    auto track = call.TrackOf(GemmTrack::kLoad, true);
    int next = at.rank == 0 ? atomicAdd(call.next_unit, 1) : 0;
    for (uint32_t round = 0;; ++round) {
      const ToldUnit told = ShareUnit(at, walk, round, next);
      const GemmTile& tile = told.tile;
      if (tile.expert == ToldUnit::kStuck) return false;
      if (!told.found()) {
        const int last = walk.units() + walk.blocks() / kClusterBlocks - 1;
        if (at.rank == 0 && next == last) atomicExch(call.next_unit, 0);
        return true;
      }
      if constexpr (Walk::kAwaits) {
        walk.Await(tile, kRows);
        FenceGlobalForCopies();
      }
      track.End(GemmWork::kWait, tile);
      for (int i = 0; i < stages; ++i) {
        // Early enough that the answer is there in time, and late enough that blocks stay level.
        if (at.rank == 0 && i == max(stages - kStages, 0)) next = atomicAdd(call.next_unit, 1);
        if (!WaitForWarps(at.Empty(ring.stage), ring.parity ^ 1, walk)) return false;
        ExpectBytes(at.Full(ring.stage), kStageBytes);
        LoadStage(call.maps, tile, i * kStageColumns, {at, ring.stage, told.same_rows});
        ring.Next();
      }
      track.End(GemmWork::kLoad, tile);
    }
  }

  struct StageLoad {
    SharedAddresses at;
    int stage;
    bool same_rows;
  };

  static __device__ __forceinline__ void LoadStage(const Maps& maps, const GemmTile& tile, int k,
                                                   const StageLoad& load) {
    const uint32_t full = load.at.Full(load.stage);
    const uint32_t rows = load.at.Rows(load.stage);
    const uint32_t weights = load.at.Weights(load.stage);
    const uint32_t rank = load.at.rank;
    if (load.same_rows) {
      LoadBoxToBoth(rows + rank * (kRowsBytes / 2), &maps.half_rows, full, k,
                    tile.row + static_cast<int>(rank) * (kRows / 2));
      LoadBox(weights, &maps.weights, full, k, tile.column, tile.expert);
    } else {
      LoadBox(rows, &maps.rows, full, k, tile.row);
      LoadBoxToBoth(weights + rank * (kWeightsBytes / 2), &maps.half_weights, full, k,
                    tile.column + static_cast<int>(rank) * (kColumns / 2), tile.expert);
    }
  }

  // ---- the multiplying warpgroups

  using Sums = float[kColumns / 2];

  // What a warpgroup keeps from tile to tile.
  struct Worker {
    SharedAddresses at;
    int warpgroup;
    int box = 0;  // of output, the next one
    Ring ring = {};
  };

  // The stage is free as far as this warp of both blocks' readers goes.
  static __device__ __forceinline__ void Release(const SharedAddresses& at, int stage) {
    if (Lane() < kClusterBlocks) ArriveAt(at.Empty(stage), static_cast<uint32_t>(Lane()));
  }

  template <typename Walk>
  static __device__ __forceinline__ ToldUnit TakeUnit(const SharedAddresses& at, uint32_t round) {
    const int slot = static_cast<int>(round % kUnitSlots);
    WaitBarrier(at.UnitFull(slot), round / kUnitSlots & 1);
    ToldUnit told = LoadToldUnit<Walk>(at.Unit(slot));
    told.tile = UniformTile(told.tile);
    __syncwarp();
    if (Lane() == 0) ArriveAt(at.UnitEmpty(slot), 0);
    return told;
  }

  template <typename Call, typename Walk>
  static __device__ __forceinline__ void MultiplyTiles(const Call& call, Walk& walk,
                                                       const SharedAddresses& at) {
    const GemmOperands& p = call.operands;
    const int stages = (p.k + kStageColumns - 1) / kStageColumns;
    Worker worker = {at, static_cast<int>(UniformOf(threadIdx.x / kWarpgroup))};
    auto track = call.TrackOf(GemmTrack::kMultiply, threadIdx.x == 0);
    Sums sums;
    for (uint32_t round = 0;; ++round) {
      const ToldUnit told = TakeUnit<Walk>(at, round);
      if constexpr (Walk::kTells) {
        walk.Find(told.unit);
        if (walk.HasToTell()) TellPasses(walk, worker.warpgroup);
      }
      if (!told.found()) break;
      GemmTile tile = told.tile;
      tile.row += worker.warpgroup * kRowsPerWarpgroup;
      tile.rows -= worker.warpgroup * kRowsPerWarpgroup;
      if (tile.rows > 0 && tile.column < p.n) {
        if constexpr (track.kRecords) WaitBarrier(at.Full(worker.ring.stage), worker.ring.parity);
        EndSlice(track, GemmWork::kWait, tile);
        if constexpr (kScales) {
          MultiplyScaled<Call::Epilogue::kGated>(worker, stages, sums);
        } else {
          Multiply(worker, stages, sums);
        }
        EndSlice(track, GemmWork::kMultiply, tile);
        Finish(call, tile, sums);
        if constexpr (Call::Epilogue::kFloat32) {
          StoreFloatTile(call, tile, sums);
        } else {
          StoreTile(call, tile, worker, sums);
        }
        EndSlice(track, GemmWork::kEpilogue, tile);
      } else {
        Skip(worker, stages);
      }
    }
    if (threadIdx.x % kWarpgroup == 0) WaitStoresWritten();
  }

  // The copy unit's stores are the first thread's, others those of the warpgroup.
  template <typename Walk>
  static __device__ __forceinline__ void TellPasses(Walk& walk, int warpgroup) {
    const bool leader = threadIdx.x % kWarpgroup == 0;
    SyncThreads(1 + warpgroup, kWarpgroup);
    if (leader) {
      WaitStoresWritten();
      FenceGlobalForCopies();
    }
    walk.Tell(leader);
    __syncwarp();
  }

  // Nothing of the tile is this warpgroup's, but the stages must go round.
  static __device__ __forceinline__ void Skip(Worker& worker, int stages) {
    for (int i = 0; i < stages; ++i) {
      WaitBarrier(worker.at.Full(worker.ring.stage), worker.ring.parity);
      __syncwarp();
      Release(worker.at, worker.ring.stage);
      worker.ring.Next();
    }
  }

  static __device__ __forceinline__ void Multiply(Worker& worker, int stages, Sums& sums) {
    const SharedAddresses& at = worker.at;
    const uint32_t own_rows =
        static_cast<uint32_t>(worker.warpgroup) * kRowsPerWarpgroup * kStageRowBytes;
    Ring& ring = worker.ring;
    int previous = 0;
    for (int i = 0; i < stages; ++i) {
      const uint32_t rows = UniformOf(TileDescriptor(at.Rows(ring.stage) + own_rows));
      const uint32_t weights = UniformOf(TileDescriptor(at.Weights(ring.stage)));
      WaitBarrier(at.Full(ring.stage), ring.parity);
      BeginWgmma();
#pragma unroll
      for (int k = 0; k < kMmasPerStage; ++k) {
        Wgmma<kColumns, element>::Multiply(sums, rows + k * 2, weights + k * 2, i | k);
      }
      CommitWgmma();
      WaitWgmma<1>();
      if (i > 0) Release(at, previous);
      previous = ring.stage;
      ring.Next();
    }
    WaitWgmma<0>();
    Release(at, previous);
  }

  // What the scaling warp does.
  template <bool ue8m0, typename Call, typename Walk>
  static __device__ __forceinline__ void LoadScales(const Call& call, Walk& walk,
                                                    const SharedAddresses& at) {
    using Writer = StageScalesWriter<kColumns, Call::Epilogue::kGated>;
    const GemmOperands& p = call.operands;
    const int stages = (p.k + kStageColumns - 1) / kStageColumns;
    Ring ring;
    for (uint32_t round = 0;; ++round) {
      const ToldUnit told = TakeUnit<Walk>(at, round);
      if (!told.found()) break;
      const GemmTile& tile = told.tile;
      if constexpr (Walk::kAwaits) {
        // The scales are read before the rows are known to be there.
        if (Lane() == 0) walk.Await(tile, kRows);
        __syncwarp();
      }
      const Writer writer(p, tile);
      for (int i = 0; i < stages; ++i) {
        WaitBarrier(at.Empty(ring.stage), ring.parity ^ 1);
        writer.template Write<ue8m0>(i, at.Scales(ring.stage), at.Full(ring.stage));
        ring.Next();
      }
    }
  }

  // The sums of each stage are scaled before they are added. While one warpgroup does that, the
  // tensor cores multiply for the other, if its wgmmas come one right after the other: nothing
  // between them waits.
  template <bool gated>
  static __device__ __forceinline__ void MultiplyScaled(Worker& worker, int stages, Sums& sums) {
    const SharedAddresses& at = worker.at;
    const int own_row = worker.warpgroup * kRowsPerWarpgroup;
#pragma unroll
    for (int j = 0; j < kColumns / 2; ++j) sums[j] = 0;
    // Of stage 0, and what each stage adds to it.
    const uint32_t first_rows =
        UniformOf(TileDescriptor(at.Rows(0) + static_cast<uint32_t>(own_row) * kStageRowBytes));
    const uint32_t first_weights = UniformOf(TileDescriptor(at.Weights(0)));
    constexpr uint32_t kStageStep = kStageBytes >> 4;
    uint32_t own_scales = at.Scales(0) + static_cast<uint32_t>(own_row + OwnWgmmaRow()) * 4;
    // Otherwise the compiler computes it anew in each stage.
    asm volatile("" : "+r"(own_scales));
    const bool releases = Lane() < kClusterBlocks;
    const uint32_t empty = BarrierOf(at.Empty(0), static_cast<uint32_t>(Lane() % kClusterBlocks));
    uint32_t stage = UniformOf(static_cast<uint32_t>(worker.ring.stage));
    uint32_t parity = worker.ring.parity;
#pragma unroll 4
    for (int i = 0; i < stages; ++i) {
      WaitBarrier(at.Full(0) + stage * kBarrierBytes, parity);
      const uint32_t scales = stage * kScalesBytes;
      const StageFactors<kColumns, gated> factors(at.Scales(0) + scales, own_scales + scales);
      const uint32_t rows = first_rows + stage * kStageStep;
      const uint32_t weights = first_weights + stage * kStageStep;
      Sums partial;
      BeginWgmma();
#pragma unroll
      for (int k = 0; k < kMmasPerStage; ++k) {
        Wgmma<kColumns, element>::Multiply(partial, rows + k * 2, weights + k * 2, k);
      }
      CommitWgmma();
      WaitWgmma<0>();
      if (releases) ArriveAt(empty + stage * kBarrierBytes);
#pragma unroll
      for (int j = 0; j < kColumns / 2; ++j) {
        sums[j] = __fmaf_rn(partial[j], factors.Of(j), sums[j]);
      }
      stage = stage == kStages - 1 ? 0 : stage + 1;
      if (stage == 0) parity ^= 1;
    }
    worker.ring.stage = static_cast<int>(stage);
    worker.ring.parity = parity;
  }

  // Adds the bias and multiplies by the rows' scales.
  template <typename Call>
  static __device__ __forceinline__ void Finish(const Call& call, const GemmTile& tile,
                                                Sums& sums) {
    if (call.epilogue.HasBias()) {
#pragma unroll
      for (int j = 0; j < kColumns / 2; ++j) {
        const int column = tile.column + j / 4 * 8 + Lane() % 4 * 2 + j % 2;
        if (column < call.operands.n) sums[j] += call.epilogue.Bias(tile.expert, column);
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
      for (int j = 0; j < kColumns / 2; ++j) {
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
    constexpr int kOutColumns = Epilogue::kGated ? kColumns / 2 : kColumns;
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

  // Boxes of 64 rows and columns go through shared memory.
  template <typename Call>
  static __device__ __forceinline__ void StoreTile(const Call& call, const GemmTile& tile,
                                                   Worker& worker, const Sums& sums) {
    using Epilogue = Call::Epilogue;
    constexpr int kOutColumns = Epilogue::kGated ? kColumns / 2 : kColumns;
    const int out_column = Epilogue::kGated ? tile.column / 2 : tile.column;
    const bool leader = threadIdx.x % kWarpgroup == 0;
    OutRows<Epilogue::kScatters> rows;
    if constexpr (Epilogue::kScatters) rows.Find(call.epilogue, tile);
    const int row = static_cast<int>(threadIdx.x) / 32 % 4 * 16 + Lane() % 16;
#pragma unroll
    for (int some = 0; some < kOutColumns; some += kBoxesAtOnce * kBoxColumns) {
      const int end = min(some + kBoxesAtOnce * kBoxColumns, kOutColumns);
      const int first_box = worker.box;
      if (leader) WaitStoresRead<kBoxes - kBoxesAtOnce>();
      SyncThreads(1 + worker.warpgroup, kWarpgroup);
#pragma unroll
      for (int chunk = some / 8; chunk < end / 8; chunk += 2) {
        const uint32_t box =
            worker.at.Box(worker.warpgroup, first_box + (chunk * 8 - some) / kBoxColumns);
        const int c = chunk % (kBoxColumns / 8);
        StoreMatrices(SwizzledChunk(box, row, c + Lane() / 16),
                      OutPair<kOutElement>(call.epilogue, sums, chunk, 0),
                      OutPair<kOutElement>(call.epilogue, sums, chunk, 1),
                      OutPair<kOutElement>(call.epilogue, sums, chunk + 1, 0),
                      OutPair<kOutElement>(call.epilogue, sums, chunk + 1, 1));
      }
      FenceSharedForCopies();
      SyncThreads(1 + worker.warpgroup, kWarpgroup);
#pragma unroll
      for (int first = some; first < end; first += kBoxColumns) {
        const uint32_t box =
            worker.at.Box(worker.warpgroup, first_box + (first - some) / kBoxColumns);
        const bool whole = !Epilogue::kScatters && first + kBoxColumns <= kOutColumns &&
                           tile.rows >= kRowsPerWarpgroup;
        if (whole && leader) StoreBox(&call.maps.out, box, out_column + first, tile.row);
        if (!whole) {
          StorePart(call.operands, box, {tile.expert, tile.row, tile.rows, out_column + first},
                    kOutColumns - first, rows);
        }
      }
      // An empty group, too, so that "all but the last" means the other box.
      if (leader) CommitStores();
      worker.box = (worker.box + kBoxesAtOnce) % kBoxes;
    }
  }
};

}  // namespace octet::device::internal

#endif  // OCTET_RUNTIME_PLATFORM_NVIDIA_GEMM_ROWS_GEMM_H_
