// Matrix products by tiles on AMD GPUs (gfx90a, gfx942, gfx950): the matrix cores through MFMA,
// their operands through the LDS. runtime/platform/README.md states the contract.
//
// Weights are the instruction's first operand, so that a lane's sums are of one row of A and of
// four consecutive columns each, and so that gate and up meet in one lane.
#ifndef OCTET_RUNTIME_PLATFORM_AMD_TILE_GEMM_H_
#define OCTET_RUNTIME_PLATFORM_AMD_TILE_GEMM_H_

#include <hip/hip_runtime.h>

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "device_ops.h"
#include "fp8_ops.h"
#include "octet/fp4_format.h"
#include "octet/fp8_format.h"
#include "octet/fp8_scale.h"
#include "octet/gemm_tiles.h"
#include "octet/native_fp8.h"
#include "runtime/platform/gemm_call.h"
#include "runtime/platform/gemm_scales.h"

namespace octet::device {

struct alignas(16) GemmSharedBlock {
  char bytes[16];
};

__device__ __forceinline__ float Swish(float x, float alpha) {
  return x * __builtin_amdgcn_rcpf(1.0F + __expf(-(alpha * x)));
}

namespace internal {

// The sums of one lane: of 32 by 32 elements, row Lane() % 32 and columns
// 8 * (i / 4) + 4 * (Lane() / 32) + i % 4.
using MfmaSums = float __attribute__((ext_vector_type(16)));
inline constexpr int kMfmaRows = 32;  // and columns
inline constexpr int kSumGroups = 4;  // of four consecutive columns

// The halves of an operand's 16 bytes.
using Halves = uint64_t __attribute__((ext_vector_type(2)));

// Four 8-bit floats as bfloat16, exactly.
__device__ __forceinline__ uint64_t Bf16FromFp8(uint32_t bytes) {
  float v[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) v[i] = FloatFromFp8(NativeFp8{static_cast<uint8_t>(bytes >> 8 * i)});
  return PackBf16(v[0], v[1]) | static_cast<uint64_t>(PackBf16(v[2], v[3])) << 32;
}

// Multiplies 16 columns of K, of which a lane has 8.
template <typename Fp8>
__device__ __forceinline__ MfmaSums MfmaFp8(uint64_t columns, uint64_t rows, const MfmaSums& sums) {
  if constexpr (std::is_same_v<Fp8, ConvertedFp8>) {
    return __builtin_amdgcn_mfma_f32_32x32x16_fp8_fp8(static_cast<long>(columns),
                                                      static_cast<long>(rows), sums, 0, 0, 0);
  } else {
    using Operand = short __attribute__((ext_vector_type(4)));
    MfmaSums result = sums;
#pragma unroll
    for (int shift = 0; shift < 64; shift += 32) {
      const uint64_t c = Bf16FromFp8(static_cast<uint32_t>(columns >> shift));
      const uint64_t r = Bf16FromFp8(static_cast<uint32_t>(rows >> shift));
      result = __builtin_amdgcn_mfma_f32_32x32x8bf16_1k(
          __builtin_bit_cast(Operand, c), __builtin_bit_cast(Operand, r), result, 0, 0, 0);
    }
    return result;
  }
}

// Eight 4-bit floats times their scale, as bfloat16.
__device__ __forceinline__ Vec16 Bf16FromFp4(uint32_t numbers, float scale) {
  Vec16 out;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const uint32_t pair = numbers >> 8 * i;
    out.w[i] = PackBf16(FloatFromFp4(pair) * scale, FloatFromFp4(pair >> 4) * scale);
  }
  return out;
}

// Eight 8-bit floats, in two words, as bfloat16, which has all of them.
__device__ __forceinline__ Vec16 Bf16FromFp8(const uint32_t* words) {
  Vec16 out;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const uint32_t pair = words[i / 2] >> i % 2 * 16;
    out.w[i] = PackBf16(FloatFromFp8(NativeFp8{static_cast<uint8_t>(pair)}),
                        FloatFromFp8(NativeFp8{static_cast<uint8_t>(pair >> 8)}));
  }
  return out;
}

// Multiplies by half of each operand's 16 bytes.
template <GemmElement element>
__device__ __forceinline__ MfmaSums Mfma(const Vec16& columns, const Vec16& rows, int half,
                                         const MfmaSums& sums) {
  const uint64_t c = __builtin_bit_cast(Halves, columns)[half];
  const uint64_t r = __builtin_bit_cast(Halves, rows)[half];
  if constexpr (element == GemmElement::kFp8) {
    return MfmaFp8<NativeFp8>(c, r, sums);
  } else if constexpr (element == GemmElement::kBf16) {
    using Operand = short __attribute__((ext_vector_type(4)));
    return __builtin_amdgcn_mfma_f32_32x32x8bf16_1k(__builtin_bit_cast(Operand, c),
                                                    __builtin_bit_cast(Operand, r), sums, 0, 0, 0);
  } else {
    using Operand = _Float16 __attribute__((ext_vector_type(4)));
    return __builtin_amdgcn_mfma_f32_32x32x8f16(__builtin_bit_cast(Operand, c),
                                                __builtin_bit_cast(Operand, r), sums, 0, 0, 0);
  }
}

// How the four waves of a block divide a tile, and how many 32 by 32 products each computes.
struct WaveGrid {
  int row_waves;
  int column_waves;
  int row_products;  // of a wave
  int column_products;
};

constexpr WaveGrid GridOf(GemmTiles tiles) {
  switch (tiles) {
    case GemmTiles::kWide:
      return {2, 2, 2, 2};
    case GemmTiles::kMedium:
      return {2, 2, 2, 1};
    case GemmTiles::kFew64:
      return {1, 4, 2, 1};
    case GemmTiles::kFew32:
    case GemmTiles::kFew16:  // the instruction has 32 rows, and memory is the limit anyway
      break;
  }
  return {1, 4, 1, 1};
}

}  // namespace internal

// Persistent blocks of four waves. While a stage of 64 bytes of each row is multiplied out of the
// LDS, the next one is on its way to registers.
template <GemmTiles tiles, GemmElement element>
class TileGemm {
  static constexpr internal::WaveGrid kGrid = internal::GridOf(tiles);

 public:
  static constexpr int kRows = internal::kMfmaRows * kGrid.row_waves * kGrid.row_products;
  static constexpr int kColumns = internal::kMfmaRows * kGrid.column_waves * kGrid.column_products;
  static constexpr int kTilesPerUnit = 1;
  static constexpr int kRowUnitsPerGroup = 8;
  static constexpr int kThreads = 4 * kWaveSize;
  static constexpr int kClusterBlocks = 1;
  // Sums that are not scaled yet take registers, too.
  static constexpr int kTellers = 1;
  static constexpr int kFreeWaves = 0;
  static constexpr int kBlocksPerComputeUnit =
      tiles == GemmTiles::kWide && RowElementOf(element) == GemmElement::kFp8 ? 2 : 3;

 private:
  // Weights become bfloat16, as rows of 8-bit floats then do, too.
  static constexpr bool kConverts = HasMxfp4Weights(element);
  static constexpr bool kConvertsRows = element == GemmElement::kFp8Mxfp4;
  static constexpr GemmElement kMultiplied = kConverts ? GemmElement::kBf16 : RowElementOf(element);
  static constexpr bool kScales = RowElementOf(element) == GemmElement::kFp8;
  static constexpr int kVecElements = 16 / BytesOf(kMultiplied);
  static constexpr int kStageVecs = 4;  // of a row
  static constexpr int kStageElements = kStageVecs * kVecElements;
  static constexpr int kStagesPerScale = kGemmScaleGroup / kStageElements;
  // Of a row of A in memory.
  static constexpr int kRowVecs = kConvertsRows ? kStageVecs / 2 : kStageVecs;
  static constexpr int kRowLoads = (kRows * kRowVecs + kThreads - 1) / kThreads;
  // Of weights that become bfloat16, a stage is what a scale is for: 16 bytes of a row.
  static_assert(!kConverts || kStageElements == kMxBlock);
  static constexpr int kColumnVecs = kConverts ? 1 : kStageVecs;
  static constexpr int kColumnLoads = (kColumns * kColumnVecs + kThreads - 1) / kThreads;

 public:
  static constexpr size_t kSharedBytes =
      sizeof(GemmSharedBlock) + (kRows + kColumns) * kStageVecs * sizeof(Vec16);

  // The LDS of a compute unit, with room for the caller's part.
  static constexpr size_t kLdsBytes = size_t{64} << 10;
  static constexpr size_t kCallerBytes = size_t{2} << 10;
  static_assert(kBlocksPerComputeUnit * (kSharedBytes + kCallerBytes) <= kLdsBytes);

  struct Maps {};
  static hipError_t MakeMaps(const GemmOperands& /*operands*/, Maps* /*maps*/) {
    return hipSuccess;
  }

  static __device__ __forceinline__ bool AllOfCluster(bool ok, char* /*shared*/) { return ok; }

  template <typename Call, typename Walk, typename Beside = NothingBeside>
  static __device__ __forceinline__ void Run(const Call& call, Walk walk, char* shared,
                                             Beside /*beside*/ = {}) {
    auto* const unit = reinterpret_cast<int32_t*>(shared);
    auto* const stage = reinterpret_cast<Vec16*>(shared + sizeof(GemmSharedBlock));
    auto track = call.TrackOf(GemmTrack::kMultiply, threadIdx.x == 0);
    while (true) {
      if (threadIdx.x == 0) *unit = FetchAddRelaxed<Scope::kDevice>(call.next_unit, 1);
      __syncthreads();
      const int current = __builtin_amdgcn_readfirstlane(*unit);
      __syncthreads();
      const bool found = walk.Find(current);
      if constexpr (Walk::kTells) {
        if (walk.HasToTell()) {
          SyncBlockStores();
          walk.Tell(threadIdx.x == 0);
        }
      }
      if (!found) {
        const int last = walk.units() + walk.blocks() - 1;
        if (threadIdx.x == 0 && current == last) {
          StoreRelaxed<Scope::kDevice>(call.next_unit, 0);
        }
        return;
      }
      const GemmTile tile = walk.Tile(0);
      if constexpr (Walk::kAwaits) {
        if (threadIdx.x == 0) walk.Await(tile, kRows);
        __syncthreads();
      }
      Sums sums = {};
      track.End(GemmWork::kWait, tile);
      Multiply(call, tile, stage, sums);
      track.End(GemmWork::kMultiply, tile);
      StoreTile(call, tile, sums);
      track.End(GemmWork::kEpilogue, tile);
    }
  }

 private:
  struct Sums {
    internal::MfmaSums of[kGrid.row_products][kGrid.column_products];
  };

  // The vectors of one stage that this thread loads.
  struct Loads {
    Vec16 rows[kRowLoads];
    Vec16 columns[kColumnLoads];
    uint8_t exponents[kConverts ? kColumnLoads : 1];  // of the columns
  };

  // A row of the LDS has its four vectors in an order that spreads the rows over the banks.
  static __device__ __forceinline__ int StageIndex(int row, int vec) {
    return row * kStageVecs + (vec ^ (row / 2 % kStageVecs));
  }

  // Vector `vec` of a row of K elements; zeros behind its end.
  template <int elements = kVecElements>
  static __device__ __forceinline__ Vec16 LoadVec(const void* rows, int64_t row, int vec, int k) {
    if (vec * elements >= k) return {};
    const auto* const all = (const internal::Global<Vec16>*)rows;
    return *(const Vec16*)(all + row * (k / elements) + vec);
  }

  // Rows and columns behind the last one repeat it: their sums are not stored.
  static __device__ __forceinline__ void Load(const GemmOperands& p, const GemmTile& tile,
                                              int stage, Loads& loads) {
    const int thread = static_cast<int>(threadIdx.x);
    const int vec = stage * kStageVecs + thread % kStageVecs;
    const int row_vec = stage * kRowVecs + thread % kRowVecs;
#pragma unroll
    for (int i = 0; i < kRowLoads; ++i) {
      const int row = (thread + i * kThreads) / kRowVecs;
      loads.rows[i] =
          LoadVec<kStageElements / kRowVecs>(p.a, tile.row + min(row, tile.rows - 1), row_vec, p.k);
    }
#pragma unroll
    for (int i = 0; i < kColumnLoads; ++i) {
      const int column = tile.column + (thread + i * kThreads) / kColumnVecs;
      const int64_t row = static_cast<int64_t>(tile.expert) * p.n + min(column, p.n - 1);
      if constexpr (kConverts) {
        const auto* const blocks = (const internal::Global<Vec16>*)p.b;
        const auto* const exponents = (const internal::Global<uint8_t>*)p.scales.b;
        loads.columns[i] = *(const Vec16*)(blocks + row * (p.k / kMxBlock) + stage);
        loads.exponents[i] = exponents[row * p.scales.mxfp4_words * 4 + stage];
      } else {
        loads.columns[i] = LoadVec(p.b, row, vec, p.k);
      }
    }
  }

  static __device__ __forceinline__ void StoreStage(const Loads& loads, Vec16* stage) {
    const int thread = static_cast<int>(threadIdx.x);
    const int vec = thread % kStageVecs;
#pragma unroll
    for (int i = 0; i < kRowLoads; ++i) {
      const int row = (thread + i * kThreads) / kRowVecs;
      if (row >= kRows) continue;
      if constexpr (kConvertsRows) {
        const int first = thread % kRowVecs * 2;
        stage[StageIndex(row, first)] = internal::Bf16FromFp8(loads.rows[i].w);
        stage[StageIndex(row, first + 1)] = internal::Bf16FromFp8(loads.rows[i].w + 2);
      } else {
        stage[StageIndex(row, vec)] = loads.rows[i];
      }
    }
#pragma unroll
    for (int i = 0; i < kColumnLoads; ++i) {
      const int column = (thread + i * kThreads) / kColumnVecs;
      if (column >= kColumns) continue;
      if constexpr (kConverts) {
        const float scale = ScaleFromUe8m0(loads.exponents[i]);
#pragma unroll
        for (int own = 0; own < kStageVecs; ++own) {
          stage[StageIndex(kRows + column, own)] =
              internal::Bf16FromFp4(loads.columns[i].w[own], scale);
        }
      } else {
        stage[StageIndex(kRows + column, vec)] = loads.columns[i];
      }
    }
  }

  template <typename Call>
  static __device__ __forceinline__ void Multiply(const Call& call, const GemmTile& tile,
                                                  Vec16* stage, Sums& sums) {
    using Scales = StageScales<Call::Epilogue::kGated>;
    const GemmOperands& p = call.operands;
    const int stages = (p.k + kStageElements - 1) / kStageElements;
    Loads loads;
    Load(p, tile, 0, loads);
    Scales scales;
    if constexpr (kScales) scales = Scales(p, tile);
    for (int i = 0; i < stages; ++i) {
      __syncthreads();  // all have multiplied the previous stage
      StoreStage(loads, stage);
      __syncthreads();
      const Scales own = scales;
      if (i + 1 < stages) {
        Load(p, tile, i + 1, loads);
        if constexpr (kScales) scales.Read((i + 1) / kStagesPerScale);
      }
      if constexpr (kScales) {
        MultiplyScaledStage(stage, own, i / kStagesPerScale, sums);
      } else {
        MultiplyStage(stage, sums);
      }
    }
  }

  // The scales of a stage: of the lane's rows, and of the wave's columns, which have one, or one of
  // gate and one of up.
  template <bool gated>
  class StageScales {
    static constexpr int kKinds = gated ? 2 : 1;  // of columns

   public:
    StageScales() = default;
    __device__ __forceinline__ StageScales(const GemmOperands& p, const GemmTile& tile)
        : rows_(ScaleRows::OfRows(p.scales, tile.row)),
          // Columns beyond the last repeat it.
          columns_(ScaleRows::OfColumns<gated>(p, tile.expert,
                                               min(tile.column + FirstColumn(), p.n - 1))),
          up_row_(ScaleRows::UpRow(p)),
          last_row_(tile.rows - 1) {
      static_assert(kGemmScaleGroup % (kGrid.column_products * internal::kMfmaRows) == 0);
      Read(0);
    }

    // Rows beyond the last repeat it.
    __device__ __forceinline__ void Read(int group) {
      if constexpr (!kConverts) {
        column_words_[0] = columns_.WordAt(0, group);
        if constexpr (gated) column_words_[1] = columns_.WordAt(up_row_, group);
      }
#pragma unroll
      for (int r = 0; r < kGrid.row_products; ++r) {
        const int row = FirstRow() + r * internal::kMfmaRows + Lane() % internal::kMfmaRows;
        row_words_[r] = rows_.WordAt(min(row, last_row_), group);
      }
    }

    // Returns the scales' products for the lane's sums of row product r. Read(group) comes first.
    __device__ __forceinline__ internal::MfmaSums Factors(int r, int group) const {
      const float of_row = rows_.ScaleOf(row_words_[r], group);
      if constexpr (kConverts) return of_row;  // in all elements
      const float first = of_row * columns_.ScaleOf(column_words_[0], group);
      if constexpr (gated) {
        const float up = of_row * columns_.ScaleOf(column_words_[1], group);
        return {first, first, first, first, up, up, up, up,
                first, first, first, first, up, up, up, up};
      } else {
        return first;  // in all elements
      }
    }

   private:
    ScaleRows rows_;
    ScaleRows columns_;
    int up_row_;  // of columns_
    int last_row_;
    uint32_t row_words_[kGrid.row_products];
    uint32_t column_words_[kKinds];
  };

  static __device__ __forceinline__ int FirstRow() {
    return Wave() / kGrid.column_waves * kGrid.row_products * internal::kMfmaRows;
  }
  static __device__ __forceinline__ int FirstColumn() {
    return Wave() % kGrid.column_waves * kGrid.column_products * internal::kMfmaRows;
  }

  // A lane multiplies every other vector of its rows and columns of a stage. Both operands take K
  // in the same order: the lower lanes have the first 16 of 32 bytes.
  struct Fragments {
    Vec16 rows[kGrid.row_products];
    Vec16 columns[kGrid.column_products];
  };
  static __device__ __forceinline__ Fragments LoadFragments(const Vec16* stage, int vec) {
    const int lane_row = Lane() % internal::kMfmaRows;
    const int own_vec = vec + Lane() / internal::kMfmaRows;
    Fragments fragments;
#pragma unroll
    for (int r = 0; r < kGrid.row_products; ++r) {
      const int row = FirstRow() + r * internal::kMfmaRows + lane_row;
      fragments.rows[r] = stage[StageIndex(row, own_vec)];
    }
#pragma unroll
    for (int c = 0; c < kGrid.column_products; ++c) {
      const int column = FirstColumn() + c * internal::kMfmaRows + lane_row;
      fragments.columns[c] = stage[StageIndex(kRows + column, own_vec)];
    }
    return fragments;
  }

  static __device__ __forceinline__ void MultiplyStage(const Vec16* stage, Sums& sums) {
#pragma unroll
    for (int vec = 0; vec < kStageVecs; vec += 2) {
      const Fragments own = LoadFragments(stage, vec);
#pragma unroll
      for (int half = 0; half < 2; ++half) {
#pragma unroll
        for (int r = 0; r < kGrid.row_products; ++r) {
#pragma unroll
          for (int c = 0; c < kGrid.column_products; ++c) {
            sums.of[r][c] =
                internal::Mfma<kMultiplied>(own.columns[c], own.rows[r], half, sums.of[r][c]);
          }
        }
      }
    }
  }

  // Scales the products of a stage before they are added; one 32 by 32 product after the other, so
  // that few registers hold sums that are not scaled yet.
  template <bool gated>
  static __device__ __forceinline__ void MultiplyScaledStage(const Vec16* stage,
                                                             const StageScales<gated>& scales,
                                                             int group, Sums& sums) {
    Fragments own[kStageVecs / 2];
#pragma unroll
    for (int i = 0; i < kStageVecs / 2; ++i) own[i] = LoadFragments(stage, 2 * i);
#pragma unroll
    for (int r = 0; r < kGrid.row_products; ++r) {
      const internal::MfmaSums factors = scales.Factors(r, group);
#pragma unroll
      for (int c = 0; c < kGrid.column_products; ++c) {
        internal::MfmaSums partial = {};
#pragma unroll
        for (int i = 0; i < kStageVecs; ++i) {
          const Fragments& of = own[i / 2];
          partial = internal::Mfma<kMultiplied>(of.columns[c], of.rows[r], i % 2, partial);
        }
        sums.of[r][c] = __builtin_elementwise_fma(partial, factors, sums.of[r][c]);
      }
    }
  }

  template <typename Call>
  static __device__ __forceinline__ void StoreTile(const Call& call, const GemmTile& tile,
                                                   const Sums& sums) {
#pragma unroll
    for (int r = 0; r < kGrid.row_products; ++r) {
      const int row = FirstRow() + r * internal::kMfmaRows + Lane() % internal::kMfmaRows;
      if (row >= tile.rows) continue;
      const float scale =
          call.epilogue.HasRowScale() ? call.epilogue.RowScale(tile.row + row) : 1.0F;
#pragma unroll
      for (int c = 0; c < kGrid.column_products; ++c) {
        const int column = tile.column + FirstColumn() + c * internal::kMfmaRows;
        StoreSums(call, {tile.expert, tile.row + row, 1, column}, scale, sums.of[r][c]);
      }
    }
  }

  // The lane's sums of 32 columns of one row.
  template <typename Call>
  static __device__ __forceinline__ void StoreSums(const Call& call, const GemmTile& place,
                                                   float scale, internal::MfmaSums v) {
    using Epilogue = Call::Epilogue;
    const int own = Lane() / internal::kMfmaRows * 4;
#pragma unroll
    for (int g = 0; g < internal::kSumGroups; ++g) {
      const int column = place.column + 8 * g + own;
      if (column >= call.operands.n || !call.epilogue.HasBias()) continue;
#pragma unroll
      for (int i = 0; i < 4; ++i) v[4 * g + i] += call.epilogue.Bias(place.expert, column + i);
    }
    constexpr int kStep = Epilogue::kGated ? 2 : 1;
#pragma unroll
    for (int g = 0; g < internal::kSumGroups; g += kStep) {
      if (place.column + 8 * g >= call.operands.n) continue;
      float out[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        if constexpr (Epilogue::kGated) {
          out[i] = call.epilogue.Gate(v[4 * g + i], v[4 * g + 4 + i] * scale);
        } else {
          out[i] = v[4 * g + i] * scale;
        }
      }
      const int column = (place.column + 8 * g) / kStep + own;
      StoreFour(call, place.row, column, out);
    }
  }

  template <typename Call>
  static __device__ __forceinline__ void StoreFour(const Call& call, int row, int column,
                                                   const float (&v)[4]) {
    using Epilogue = Call::Epilogue;
    const GemmOperands& p = call.operands;
    if constexpr (Epilogue::kFloat32) {
      using Floats = float __attribute__((ext_vector_type(4)));
      auto* const floats = (internal::Global<float>*)p.out;
      *(internal::Global<Floats>*)(floats + static_cast<int64_t>(row) * p.out_columns + column) =
          Floats{v[0], v[1], v[2], v[3]};
      return;
    }
    uint32_t pairs[2];
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      pairs[i] = element == GemmElement::kFp16 ? PackFp16(v[2 * i], v[2 * i + 1])
                                               : PackBf16(v[2 * i], v[2 * i + 1]);
    }
    using Words = uint32_t __attribute__((ext_vector_type(2)));
    if constexpr (Epilogue::kScatters) {
      auto* const out = (internal::Global<uint16_t>*)call.epilogue.RowAt(row);
      *(internal::Global<Words>*)(out + column) = Words{pairs[0], pairs[1]};
    } else {
      auto* const out = (internal::Global<uint16_t>*)p.out;
      *(internal::Global<Words>*)(out + static_cast<int64_t>(row) * p.out_columns + column) =
          Words{pairs[0], pairs[1]};
    }
  }
};

// Launches a kernel that calls TileGemm::Run().
template <typename Gemm, typename... Parameters>
hipError_t LaunchTileGemm(void (*kernel)(Parameters...), const TileGemmLaunch& launch, void** args,
                          hipStream_t stream) {
  const dim3 blocks(static_cast<unsigned>(launch.blocks));
  if (!launch.cooperative) {
    return hipLaunchKernel(kernel, blocks, dim3(Gemm::kThreads), args, launch.shared_bytes, stream);
  }
  return hipLaunchCooperativeKernel(kernel, blocks, dim3(Gemm::kThreads), args,
                                    static_cast<unsigned>(launch.shared_bytes), stream);
}

}  // namespace octet::device

#endif  // OCTET_RUNTIME_PLATFORM_AMD_TILE_GEMM_H_
