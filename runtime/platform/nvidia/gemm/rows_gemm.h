// Tiles of many rows: 128 rows by up to 256 columns, rows being wgmma's M.
//
// Persistent blocks of three warpgroups in clusters of two. One thread of the third warpgroup
// loads, and its other warps are free; with FP8 rows one of them loads scales, and one stores
// output, so that nobody else waits until the copy unit takes it. With MXFP4 weights one more loads
// these, and one more warpgroup converts them (rows_convert.h). The other two warpgroups multiply
// 64 rows each. The blocks of a cluster take a unit of two tiles: two row tiles share the weights,
// of which each block loads one half for both; two column tiles share the rows likewise. Units come
// from a counter in global memory: the loading thread of block 0 takes the next one while the last
// stages of the current one are under way, finds its tiles, and tells all warps of both blocks.
#ifndef OCTET_RUNTIME_PLATFORM_NVIDIA_GEMM_ROWS_GEMM_H_
#define OCTET_RUNTIME_PLATFORM_NVIDIA_GEMM_ROWS_GEMM_H_

#include <cuda_runtime.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "gemm/pipeline.h"
#include "gemm/rows_convert.h"
#include "gemm/rows_load.h"
#include "gemm/rows_scales.h"
#include "gemm/rows_shared.h"
#include "gemm/rows_store.h"
#include "gemm/rows_units.h"
#include "gemm/tensor_map.h"
#include "octet/gemm_tiles.h"
#include "runtime/platform/gemm_call.h"
#include "runtime/platform/gemm_scales.h"

namespace octet::device::internal {

template <int columns, GemmElement element>
class RowsGemm {
  using Shared = RowsShared<columns, element>;

 public:
  static constexpr int kRows = RowsShared<columns, element>::kRows;
  static constexpr int kColumns = columns;
  static constexpr int kTilesPerUnit = 2;
  static constexpr int kRowUnitsPerGroup = 8;
  static constexpr bool kConverts = HasMxfp4Weights(element);
  static constexpr int kThreads = (kConverts ? 4 : 3) * kWarpgroup;
  static constexpr int kClusterBlocks = 2;
  static constexpr int kBlocksPerComputeUnit = 1;
  static constexpr int kTellers = 2;  // the multiplying warpgroups
  // Sums of FP8 products leave too few registers for what free warps do.
  static constexpr int kFreeWaves = Shared::kScales ? 0 : 3;

  using Maps = RowsMaps<columns, element>;

 private:
  static constexpr int kStages = Shared::kStages;
  static constexpr int kStageColumns = kStageColumnsOf<element>;
  static constexpr bool kScales = Shared::kScales;
  // Of SyncThreads(); the multiplying warpgroups have 1 and 2.
  static constexpr int kLoadingBarrier = 3;
  // Warpgroups begin with so many registers, which become fewer for loading and more for
  // multiplying.
  static constexpr int kFirstRegisters = kConverts ? 128 : 168;
  static constexpr int kConvertingRegisters = 48;
  // An FFMA that reads the sum and the partial sum that is added to it from one bank of registers
  // takes twice as long. With 224 registers instead of 232 the compiler puts them apart.
  static constexpr int LoadingRegisters(bool awaits, bool moves) {
    if (kConverts) return 32;
    return moves ? 88 : (awaits || kScales ? 56 : 40);
  }
  static constexpr int MultiplyingRegisters(bool awaits, bool moves) {
    return (kThreads / kWarpgroup * kFirstRegisters - LoadingRegisters(awaits, moves) -
            (kConverts ? kConvertingRegisters : 0)) /
           2 / 8 * 8;
  }

 public:
  static constexpr size_t kSharedBytes = Shared::kBytes;

  static cudaError_t MakeMaps(const GemmOperands& p, Maps* maps) { return Maps::Make(p, maps); }

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
    const Shared at = {SharedAddress(shared), RankInCluster()};
    if (threadIdx.x == 0) at.InitBarriers(InRounds<Walk>(call));
    if constexpr (kConverts) Fp8OfMxfp4::MakeTable(at.Table());
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
      if constexpr (Shared::kHandsOver) {
        static_assert(!Call::Epilogue::kFloat32, "float32 does not go through boxes");
        if (wave == 2) StoreTiles<Walk>(call, at);
      }
      if constexpr (kConverts) {
        if (wave == 3) {
          const auto load = [&](const GemmTile& tile, int half, int k, int place) {
            call.maps.LoadCodes(at, tile, half, k, place);
          };
          LoadCodes<Walk, kColumns>(call.operands, at, load);
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
    } else if (kConverts && UniformOf(threadIdx.x / kWarpgroup) > 2) {
      if constexpr (kConverts) {
        ShrinkRegisters<kConvertingRegisters>();
        ConvertStages<Walk, columns>(call.operands, at);
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

  template <typename Call>
  static __device__ __forceinline__ int StagesOf(const Call& call) {
    return (call.operands.k + kStageColumns - 1) / kStageColumns;
  }

  // Whether each tile has whole rounds of stages, so that scales come in rounds and the places of
  // stages are constants. Kernels that await rows have no registers for a second main loop.
  template <typename Walk, typename Call>
  static __device__ __forceinline__ bool InRounds(const Call& call) {
    if constexpr (!kScales || Walk::kAwaits) {
      return false;
    } else {
      return ScalesComeInRounds(call.operands, StagesOf(call));
    }
  }

  // ---- the loading thread. It waits for other warps with a deadline, and all others wait for it.

  template <typename Call, typename Walk>
  static __device__ __forceinline__ bool LoadTiles(const Call& call, Walk& walk, const Shared& at) {
    const int stages = StagesOf(call);
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
        ExpectBytes(at.Full(ring.stage), Shared::kStageBytes);
        call.maps.LoadRows(at, told, i * kStageColumns, ring.stage);
        if constexpr (!kConverts) {
          call.maps.LoadWeights(at, told, i * kStageColumns, ring.stage);
        }
        ring.Next();
      }
      track.End(GemmWork::kLoad, tile);
    }
  }

  // ---- the multiplying warpgroups

  using Sums = float[kColumns / 2];

  // What a warpgroup keeps from tile to tile.
  struct Worker {
    Shared at;
    int warpgroup;
    int box = 0;              // of output, the next one
    uint32_t out_parity = 0;  // of the output's barriers
    Ring ring = {};
  };

  // Addresses in stage 0 that a warp computes once for a tile; each stage adds the same to them.
  struct StageAddresses {
    uint32_t rows;  // descriptors
    uint32_t weights;
    uint32_t scales;  // of the thread's first row
    uint32_t empty;   // the barrier that the lane arrives at, if it is one of the first two

    __device__ __forceinline__ explicit StageAddresses(const Worker& worker) {
      const Shared& at = worker.at;
      const auto own_row = static_cast<uint32_t>(worker.warpgroup * kRowsPerWarpgroup);
      rows = UniformOf(TileDescriptor(at.Rows(0) + own_row * kStageRowBytes));
      weights = UniformOf(TileDescriptor(kConverts ? at.Converted(0) : at.Weights(0)));
      scales = at.Scales(0) + (own_row + static_cast<uint32_t>(OwnWgmmaRow())) *
                                  StageScalesOf<kColumns, false>::kRowPitch;
      empty = BarrierOf(at.Empty(0), static_cast<uint32_t>(Lane() % kClusterBlocks));
      // Otherwise the compiler computes it anew in each stage.
      asm volatile("" : "+r"(scales));
    }
  };

  // The stage is free as far as this warp of both blocks' readers goes.
  static __device__ __forceinline__ void Release(const Shared& at, int stage) {
    if (Lane() < kClusterBlocks) ArriveAt(at.Empty(stage), static_cast<uint32_t>(Lane()));
  }

  template <typename Call, typename Walk>
  static __device__ __forceinline__ void MultiplyTiles(const Call& call, Walk& walk,
                                                       const Shared& at) {
    const int stages = StagesOf(call);
    Worker worker = {at, static_cast<int>(UniformOf(threadIdx.x / kWarpgroup))};
    auto track = call.TrackOf(GemmTrack::kMultiply, threadIdx.x == 0);
    Sums sums;
    for (uint32_t round = 0;; ++round) {
      const ToldUnit told = TakeUnit<Walk>(at, round);
      if constexpr (Walk::kTells) {
        walk.Find(told.unit);
        if (walk.HasToTell()) {
          if constexpr (Shared::kHandsOver) {
            WaitBarrier(at.OutEmpty(worker.warpgroup), worker.out_parity ^ 1);
          }
          TellPasses(walk, worker.warpgroup);
        }
      }
      if (!told.found()) break;
      GemmTile tile = told.tile;
      tile.row += worker.warpgroup * kRowsPerWarpgroup;
      tile.rows -= worker.warpgroup * kRowsPerWarpgroup;
      if (tile.rows > 0 && tile.column < call.operands.n) {
        if constexpr (track.kRecords) WaitBarrier(at.Full(worker.ring.stage), worker.ring.parity);
        EndSlice(track, GemmWork::kWait, tile);
        if constexpr (kScales) {
          MultiplyScaled<Walk>(call, worker, sums);
        } else {
          Multiply(worker, stages, sums);
        }
        EndSlice(track, GemmWork::kMultiply, tile);
        // Biases are loaded together as far as there are registers for them.
        FinishSums<kColumns, kScales ? kColumns / 4 : 1>(call, tile, sums);
        if constexpr (Call::Epilogue::kFloat32) {
          StoreFloatTile<kColumns>(call, tile, sums);
        } else if constexpr (Shared::kHandsOver) {
          HandOverTile(call, tile, worker, sums);
        } else {
          StoreTile(call, tile, worker, sums);
        }
        EndSlice(track, GemmWork::kEpilogue, tile);
      } else {
        Skip(worker, stages);
      }
    }
    if (!Shared::kHandsOver && threadIdx.x % kWarpgroup == 0) WaitStoresWritten();
  }

  // The copy unit's stores are the first thread's, or the storing warp's, which has seen them
  // written; others are those of the warpgroup.
  template <typename Walk>
  static __device__ __forceinline__ void TellPasses(Walk& walk, int warpgroup) {
    const bool leader = threadIdx.x % kWarpgroup == 0;
    SyncThreads(1 + warpgroup, kWarpgroup);
    if (!Shared::kHandsOver && leader) {
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
      if constexpr (kConverts) {
        WaitBarrier(worker.at.ConvertedFull(worker.ring.stage), worker.ring.parity);
        __syncwarp();
        if (Lane() < kClusterBlocks) {
          ArriveAt(worker.at.ConvertedEmpty(worker.ring.stage), static_cast<uint32_t>(Lane()));
        }
      }
      __syncwarp();
      Release(worker.at, worker.ring.stage);
      worker.ring.Next();
    }
  }

  static __device__ __forceinline__ void Multiply(Worker& worker, int stages, Sums& sums) {
    const Shared& at = worker.at;
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
                                                    const Shared& at) {
    using Writer = StageScalesWriter<kColumns, Call::Epilogue::kGated, kConverts>;
    const int stages = StagesOf(call);
    const bool in_rounds = InRounds<Walk>(call);
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
      const Writer writer(call.operands, tile, in_rounds);
      for (int i = 0; i < stages;) {
        const uint32_t to = at.Scales(in_rounds ? ring.parity : 0);
        WaitBarrier(at.Empty(ring.stage), ring.parity ^ 1);
        if (in_rounds) {
          writer.template WriteRound<ue8m0>(i, to, at.ScalesFull(0));
          ring.parity ^= 1;
          i += kStages;
        } else {
          writer.template Write<ue8m0>(i, ring.stage, to, at.ScalesFull(ring.stage));
          ring.Next();
          ++i;
        }
      }
    }
  }

  // The sums of each stage are scaled before they are added. While one warpgroup does that, the
  // tensor cores multiply for the other, if its wgmmas come one right after the other: nothing
  // between them waits.
  template <typename Walk, typename Call>
  static __device__ __forceinline__ void MultiplyScaled(const Call& call, Worker& worker,
                                                        Sums& sums) {
    using Scales = StageScalesOf<kColumns, !kConverts && Call::Epilogue::kGated,
                                 kConverts ? kMxfp4Fp8Columns : 0>;
    const int stages = StagesOf(call);
    const Shared& at = worker.at;
    const StageAddresses first(worker);
    const bool releases = Lane() < kClusterBlocks;
    uint32_t parity = UniformOf(worker.ring.parity);
    // `first_scales`: of a round, or of the stage.
    const auto multiply_stage = [&](uint32_t stage, uint32_t slot,
                                    bool first_scales) __attribute__((always_inline)) {
      WaitBarrier(at.Full(0) + stage * kBarrierBytes, parity);
      uint32_t of_columns = at.Scales(slot) + Scales::kColumnsAt + stage * Scales::kColumnsPitch;
      if constexpr (kConverts) {
        if (first_scales) WaitBarrier(at.ScalesFull(0) + stage * kBarrierBytes, parity);
        WaitBarrier(at.ConvertedFull(0) + stage * kBarrierBytes, parity);
        of_columns = at.Factors(0) + stage * Shared::kFactorsBytes;
      }
      const StageFactors<Scales, kConverts> factors(
          first.scales + slot * Shared::kScalesBytes + stage * 4, of_columns);
      constexpr uint32_t kStageStep = Shared::kStageBytes >> 4;
      const uint32_t rows = first.rows + stage * kStageStep;
      const uint32_t weights =
          first.weights + stage * (kConverts ? Shared::kConvertedBytes >> 4 : kStageStep);
      Sums partial;
      BeginWgmma();
#pragma unroll
      for (int k = 0; k < kMmasPerStage; ++k) {
        Wgmma<kColumns, RowElementOf(element)>::Multiply(partial, rows + k * 2, weights + k * 2, k);
      }
      CommitWgmma();
      WaitWgmma<0>();
      if (releases) ArriveAt(first.empty + stage * kBarrierBytes);
      if (kConverts && releases) {
        ArriveAt(first.empty + at.ConvertedEmpty(0) - at.Empty(0) + stage * kBarrierBytes);
      }
#pragma unroll
      for (int j = 0; j < kColumns / 2; ++j) {
        sums[j] = __fmaf_rn(partial[j], factors.Of(j), sums[j]);
      }
    };
#pragma unroll
    for (int j = 0; j < kColumns / 2; ++j) sums[j] = 0;
    if (InRounds<Walk>(call)) {
#pragma unroll 1
      for (int i = 0; i < stages; i += kStages) {
#pragma unroll
        for (uint32_t stage = 0; stage < kStages; ++stage) {
          multiply_stage(stage, parity, stage == 0);
        }
        parity ^= 1;
      }
    } else {
      uint32_t stage = UniformOf(static_cast<uint32_t>(worker.ring.stage));
#pragma unroll 2
      for (int i = 0; i < stages; ++i) {
        multiply_stage(stage, 0, true);
        stage = stage == kStages - 1 ? 0 : stage + 1;
        if (stage == 0) parity ^= 1;
      }
      worker.ring.stage = static_cast<int>(stage);
    }
    worker.ring.parity = parity;
  }

  // Boxes of 64 rows and columns go through shared memory, in turn through two places.
  template <typename Call>
  static __device__ __forceinline__ void StoreTile(const Call& call, const GemmTile& tile,
                                                   Worker& worker, const Sums& sums) {
    using Epilogue = Call::Epilogue;
    using Boxes = OutBoxes<Epilogue, Shared::kOutElement, kColumns, kBoxRowBytes>;
    static_assert(Boxes::kBytes == Shared::kBoxBytes);
    const bool leader = threadIdx.x % kWarpgroup == 0;
    const OutPart<Boxes, Epilogue> part(call.epilogue, tile);
#pragma unroll
    for (int i = 0; i < Boxes::kNumber; ++i) {
      const uint32_t box = worker.at.Box(worker.warpgroup, worker.box);
      if (leader) WaitStoresRead<Shared::kBoxesInTurn - 1>();
      SyncThreads(1 + worker.warpgroup, kWarpgroup);
      Boxes::Fill(call.epilogue, sums, i, box);
      FenceSharedForCopies();
      SyncThreads(1 + worker.warpgroup, kWarpgroup);
      if (Boxes::IsWhole(tile, i)) {
        if (leader) StoreBox(&call.maps.out, box, Boxes::ColumnOf(tile, i), tile.row);
      } else {
        part.Store(call.operands, box, i);
      }
      // An empty group, too, so that "all but the last" means the other box.
      if (leader) CommitStores();
      worker.box = (worker.box + 1) % Shared::kBoxesInTurn;
    }
  }

  // All boxes of a pass at once, which the storing warp stores. What is less than a box the warps
  // store.
  template <typename Call>
  static __device__ __forceinline__ void HandOverTile(const Call& call, const GemmTile& tile,
                                                      Worker& worker, const Sums& sums) {
    using Boxes = HandedBoxes<Call>;
    const uint32_t boxes = worker.at.Box(worker.warpgroup, 0);
#pragma unroll
    for (int pass = 0; pass < kPasses<Call>; ++pass) {
      const int first = pass * kBoxesOfPass<Call>;
      WaitBarrier(worker.at.OutEmpty(worker.warpgroup), worker.out_parity ^ 1);
      worker.out_parity ^= 1;
#pragma unroll
      for (int i = 0; i < kBoxesOfPass<Call> && first + i < Boxes::kNumber; ++i) {
        Boxes::Fill(call.epilogue, sums, first + i, boxes + i * Boxes::kBytes);
      }
      FenceSharedForCopies();
      __syncwarp();
      if (!Boxes::IsWhole(tile, 0)) {
        const OutPart<Boxes, typename Call::Epilogue> part(call.epilogue, tile);
#pragma unroll
        for (int i = 0; i < kBoxesOfPass<Call> && first + i < Boxes::kNumber; ++i) {
          part.Store(call.operands, boxes + i * Boxes::kBytes, first + i);
        }
        __syncwarp();
      }
      if (Lane() == 0) Arrive(worker.at.OutFull(worker.warpgroup));
    }
  }

  // ---- the storing warp

  template <typename Call>
  using HandedBoxes = OutBoxes<typename Call::Epilogue, Shared::kOutElement, kColumns,
                               Shared::OutRowBytes(Call::Epilogue::kGated)>;
  template <typename Call>
  static constexpr int kBoxesOfPass =
      std::min<int>(HandedBoxes<Call>::kNumber, Shared::kBoxesBytes / HandedBoxes<Call>::kBytes);
  template <typename Call>
  static constexpr int kPasses =
      (HandedBoxes<Call>::kNumber + kBoxesOfPass<Call> - 1) / kBoxesOfPass<Call>;

  template <typename Walk, typename Call>
  static __device__ __forceinline__ void StoreTiles(const Call& call, const Shared& at) {
    using Boxes = HandedBoxes<Call>;
    uint32_t parities[2] = {0, 0};
    for (uint32_t round = 0;; ++round) {
      const ToldUnit told = TakeUnit<Walk>(at, round);
      if (!told.found()) break;
#pragma unroll
      for (int turn = 0; turn < 2 * kPasses<Call>; ++turn) {
        const int warpgroup = turn % 2;
        const int first = turn / 2 * kBoxesOfPass<Call>;
        GemmTile tile = told.tile;
        tile.row += warpgroup * kRowsPerWarpgroup;
        tile.rows -= warpgroup * kRowsPerWarpgroup;
        if (tile.rows <= 0 || tile.column >= call.operands.n) continue;
        WaitBarrier(at.OutFull(warpgroup), parities[warpgroup]);
        parities[warpgroup] ^= 1;
        __syncwarp();
        if (ElectOne()) {
          if (Boxes::IsWhole(tile, 0)) {
#pragma unroll
            for (int i = 0; i < kBoxesOfPass<Call> && first + i < Boxes::kNumber; ++i) {
              StoreBox(&call.maps.out, at.Box(warpgroup, 0) + i * Boxes::kBytes,
                       Boxes::ColumnOf(tile, first + i), tile.row);
            }
            CommitStores();
          }
          if constexpr (Walk::kTells) {
            WaitStoresWritten();
            FenceGlobalForCopies();
          } else {
            WaitStoresRead<0>();
          }
          Arrive(at.OutEmpty(warpgroup));
        }
        __syncwarp();
      }
    }
    if (ElectOne()) WaitStoresWritten();
    __syncwarp();
  }
};

}  // namespace octet::device::internal

#endif  // OCTET_RUNTIME_PLATFORM_NVIDIA_GEMM_ROWS_GEMM_H_
