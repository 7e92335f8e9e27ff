// Matrix products by tiles on emulated GPUs. runtime/platform/README.md states the contract.
//
// Each lane computes patches of 2 rows by 16 columns, along all of K, in vectors of eight floats.
#ifndef OCTET_RUNTIME_PLATFORM_EMULATION_TILE_GEMM_H_
#define OCTET_RUNTIME_PLATFORM_EMULATION_TILE_GEMM_H_

#include <hip/hip_runtime.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "device_ops.h"
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

inline float Swish(float x, float alpha) { return x / (1.0F + std::exp(-(alpha * x))); }

namespace internal {

struct GemmTileShape {
  int rows;
  int columns;
  int tiles_per_unit;
};

constexpr GemmTileShape ShapeOfTiles(GemmTiles tiles) {
  switch (tiles) {
    case GemmTiles::kWide:
      return {64, 64, 2};
    case GemmTiles::kMedium:
      return {64, 48, 2};
    case GemmTiles::kFew64:
      return {64, 32, 1};
    case GemmTiles::kFew32:
      return {32, 32, 1};
    case GemmTiles::kFew16:
      return {16, 64, 1};
  }
  return {};
}

// Eight numbers, the unit of work along K.
inline constexpr int kGemmVec = 8;
using Floats = float __attribute__((ext_vector_type(kGemmVec)));

template <GemmElement kElement>
inline Floats LoadFloats(const uint8_t* p) {
  using Bits32 = uint32_t __attribute__((ext_vector_type(kGemmVec)));
  if constexpr (kElement == GemmElement::kBf16) {
    using Bits16 = uint16_t __attribute__((ext_vector_type(kGemmVec)));
    Bits16 bits;
    std::memcpy(&bits, p, sizeof(bits));
    return std::bit_cast<Floats>(__builtin_convertvector(bits, Bits32) << 16);
  } else if constexpr (kElement == GemmElement::kFp8) {  // as FloatFromFp8()
    using Bits8 = uint8_t __attribute__((ext_vector_type(kGemmVec)));
    Bits8 bytes;
    std::memcpy(&bytes, p, sizeof(bytes));
    const Bits32 bits = __builtin_convertvector(bytes, Bits32);
    const Floats values = std::bit_cast<Floats>((bits & 0x80U) << 24 | (bits & 0x7fU) << 20) *
                          kFp8BitsScale<NativeFp8>;
    const Bits32 is_nan = std::bit_cast<Bits32>(NativeFp8::IsNan(bits));  // all bits, or none
    return std::bit_cast<Floats>(std::bit_cast<Bits32>(values) | (is_nan & 0x7fc00000U));
  } else {
    using Halves = _Float16 __attribute__((ext_vector_type(kGemmVec)));
    Halves halves;
    std::memcpy(&halves, p, sizeof(halves));
    return __builtin_convertvector(halves, Floats);
  }
}

// Loads eight elements of a row of weights from `index` on. `scales`, of MXFP4, are the row's.
template <GemmElement kElement>
inline Floats LoadWeights(const uint8_t* row, const uint8_t* scales, int index) {
  if constexpr (HasMxfp4Weights(kElement)) {
    using Bits32 = uint32_t __attribute__((ext_vector_type(kGemmVec)));
    uint32_t bits = 0;
    std::memcpy(&bits, row + index / 2, sizeof(bits));
    constexpr Bits32 kShifts = {0, 4, 8, 12, 16, 20, 24, 28};
    return FloatsFromFp4<Floats>(Bits32(bits) >> kShifts) *
           ScaleFromUe8m0(scales[index / kMxBlock]);
  } else {
    return LoadFloats<kElement>(row + index * BytesOf(kElement));
  }
}

inline float SumOf(const Floats& v) {
  return ((v[0] + v[4]) + (v[2] + v[6])) + ((v[1] + v[5]) + (v[3] + v[7]));
}

// The rows and columns that a lane multiplies at once, and where their sums go.
template <int rows, int columns>
struct Dots {
  const uint8_t* const (&a)[rows];
  const uint8_t* const* b;
  const uint8_t* const* b_scales;  // of MXFP4
  float (*sums)[2 * kGemmVec];
};

// acc[r][c] += a[r] · b[c] over columns [begin, end) of K.
template <GemmElement kElement, int rows, int columns>
inline void MultiplyColumns(const Dots<rows, columns>& dots, int begin, int end,
                            Floats (&acc)[rows][columns]) {
  constexpr int kBytes = BytesOf(kElement);
  for (int i = begin; i < end; i += kGemmVec) {
    Floats x[rows];
#pragma unroll
    for (int r = 0; r < rows; ++r) {
      x[r] = LoadFloats<RowElementOf(kElement)>(dots.a[r] + i * kBytes);
    }
#pragma unroll
    for (int c = 0; c < columns; ++c) {
      const Floats y = LoadWeights<kElement>(dots.b[c], dots.b_scales[c], i);
#pragma unroll
      for (int r = 0; r < rows; ++r) acc[r][c] += x[r] * y;
    }
  }
}

// sums[r][c] = a[r] · b[c].
template <GemmElement kElement, int rows, int columns>
inline void MultiplyRows(const Dots<rows, columns>& dots, int k) {
  Floats acc[rows][columns] = {};
  MultiplyColumns<kElement>(dots, 0, k, acc);
  for (int r = 0; r < rows; ++r) {
    for (int c = 0; c < columns; ++c) dots.sums[r][c] = SumOf(acc[r][c]);
  }
}

// The scales of the rows, and of the columns, which have them in common.
struct DotScales {
  ScaleRows of_rows;
  ScaleRows of_columns;
  int last_row;    // rows beyond repeat it
  int column_row;  // of `of_columns`
};

// The same, where the sums over 128 columns of K are scaled before they are added; MXFP4 weights
// have been scaled.
template <GemmElement kElement, int rows, int columns>
inline void MultiplyScaledRows(const Dots<rows, columns>& dots, const DotScales& scales, int k) {
  for (int r = 0; r < rows; ++r) std::fill_n(dots.sums[r], columns, 0.0F);
  for (int group = 0; group * kGemmScaleGroup < k; ++group) {
    const int begin = group * kGemmScaleGroup;
    Floats acc[rows][columns] = {};
    MultiplyColumns<kElement>(dots, begin, std::min(begin + kGemmScaleGroup, k), acc);
    for (int r = 0; r < rows; ++r) {
      float scale = scales.of_rows.At(std::min(r, scales.last_row), group);
      if constexpr (!HasMxfp4Weights(kElement)) {
        scale *= scales.of_columns.At(scales.column_row, group);
      }
      for (int c = 0; c < columns; ++c) dots.sums[r][c] += SumOf(acc[r][c]) * scale;
    }
  }
}

}  // namespace internal

template <GemmTiles kTiles, GemmElement kElement>
class TileGemm {
  static constexpr internal::GemmTileShape kShape = internal::ShapeOfTiles(kTiles);

 public:
  static constexpr int kRows = kShape.rows;
  static constexpr int kColumns = kShape.columns;
  static constexpr int kTilesPerUnit = kShape.tiles_per_unit;
  static constexpr int kRowUnitsPerGroup = 4;
  static constexpr int kThreads = 64;
  static constexpr int kClusterBlocks = 1;
  static constexpr int kBlocksPerComputeUnit = 1;
  static constexpr int kTellers = 1;
  // The last one is free at first: it multiplies once it has nothing else to do.
  static constexpr int kFreeWaves = 1;
  static constexpr size_t kSharedBytes = sizeof(GemmSharedBlock);

  struct Maps {};
  static hipError_t MakeMaps(const GemmOperands& /*operands*/, Maps* /*maps*/) {
    return hipSuccess;
  }

  static bool AllOfCluster(bool ok, char* /*shared*/) { return ok; }

  template <typename Call, typename Walk, typename Beside = NothingBeside>
  static void Run(const Call& call, Walk walk, char* shared, Beside beside = {}) {
    if (Wave() == kThreads / kWaveSize - 1) beside(0);
    auto* const unit = reinterpret_cast<int32_t*>(shared);
    auto track = call.TrackOf(GemmTrack::kMultiply, threadIdx.x == 0);
    while (true) {
      if (threadIdx.x == 0) *unit = FetchAddRelaxed<Scope::kDevice>(call.next_unit, 1);
      __syncthreads();
      const int current = *unit;
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
      for (int member = 0; member < kTilesPerUnit; ++member) {
        const GemmTile tile = walk.Tile(member);
        if constexpr (Walk::kAwaits) {
          if (threadIdx.x == 0) walk.Await(tile, kRows);
          __syncthreads();
        }
        if (tile.column >= call.operands.n) continue;
        track.End(GemmWork::kWait, tile);
        MultiplyTile(call, tile);
        if constexpr (track.kRecords) __syncthreads();  // all lanes have multiplied
        track.End(GemmWork::kMultiply, tile);
      }
    }
  }

 private:
  static constexpr int kPatchRows = 2;
  static constexpr int kPatchColumns = 2 * internal::kGemmVec;
  static constexpr int kDotColumns = 4;  // at once: what the CPU's registers hold

  template <typename Call>
  static void MultiplyTile(const Call& call, const GemmTile& tile) {
    constexpr int kPatchesAcross = kColumns / kPatchColumns;
    constexpr int kPatches = kRows / kPatchRows * kPatchesAcross;
    for (int patch = static_cast<int>(threadIdx.x); patch < kPatches; patch += kThreads) {
      const int row = patch / kPatchesAcross * kPatchRows;
      const int column = tile.column + patch % kPatchesAcross * kPatchColumns;
      if (row >= tile.rows || column >= call.operands.n) continue;
      MultiplyPatch(call, {tile.expert, tile.row + row, tile.rows - row, column});
    }
  }

  template <typename Call>
  static void MultiplyPatch(const Call& call, const GemmTile& patch) {
    const GemmOperands& p = call.operands;
    const uint8_t* a[kPatchRows];
    const uint8_t* b[kPatchColumns];
    const uint8_t* b_scales[kPatchColumns] = {};
    // Rows and columns beyond the end repeat the last one.
    constexpr int kRowBits = 8 * BytesOf(kElement);
    for (int r = 0; r < kPatchRows; ++r) {
      a[r] = RowOf(p.a, patch.row + std::min(r, patch.rows - 1), int64_t{p.k} * kRowBits);
    }
    for (int c = 0; c < kPatchColumns; ++c) {
      const int64_t row =
          static_cast<int64_t>(patch.expert) * p.n + std::min(patch.column + c, p.n - 1);
      b[c] = RowOf(p.b, row, int64_t{p.k} * WeightBitsOf(kElement));
      if constexpr (HasMxfp4Weights(kElement)) {
        constexpr int kWordBits = 32;
        b_scales[c] = RowOf(p.scales.b, row, int64_t{p.scales.mxfp4_words} * kWordBits);
      }
    }
    float sums[kPatchRows][kPatchColumns];
    for (int c = 0; c < kPatchColumns; c += kDotColumns) {
      const internal::Dots<kPatchRows, kDotColumns> dots = {
          a, b + c, b_scales + c, reinterpret_cast<float (*)[kPatchColumns]>(&sums[0][c])};
      if constexpr (RowElementOf(kElement) == GemmElement::kFp8) {
        internal::MultiplyScaledRows<kElement>(dots, ScalesOf<Call::Epilogue::kGated>(p, patch, c),
                                               p.k);
      } else {
        internal::MultiplyRows<kElement>(dots, p.k);
      }
    }
    for (int r = 0; r < std::min(kPatchRows, patch.rows); ++r) {
      StoreRow(call, patch, patch.row + r, sums[r]);
    }
  }

  // The scales of the patch's columns from `column` on, which are of gate or of up if gated. A
  // patch's columns lie in one group of columns with a scale, or in one of gate and one of up.
  template <bool gated>
  static internal::DotScales ScalesOf(const GemmOperands& p, const GemmTile& patch, int column) {
    static_assert(kGemmScaleGroup % kPatchColumns == 0 && kColumns % kPatchColumns == 0);
    static_assert(internal::kGemmVec % kDotColumns == 0);
    const bool up = gated && column >= internal::kGemmVec;
    return {ScaleRows::OfRows(p.scales, patch.row),
            ScaleRows::OfColumns<gated>(p, patch.expert, patch.column), patch.rows - 1,
            up ? ScaleRows::UpRow(p) : 0};
  }

  static const uint8_t* RowOf(const void* rows, int64_t row, int64_t bits) {
    const int64_t bytes = bits / 8;
    const uint8_t* p = static_cast<const uint8_t*>(rows) + row * bytes;
    // The emulation checks accesses of this kind: do the ends of the row lie in live memory?
    (void)LoadStream(reinterpret_cast<const Vec16*>(p));
    (void)LoadStream(reinterpret_cast<const Vec16*>(p + bytes - sizeof(Vec16)));
    return p;
  }

  template <typename Call>
  static void StoreRow(const Call& call, const GemmTile& patch, int row,
                       float (&v)[kPatchColumns]) {
    using Epilogue = Call::Epilogue;
    const GemmOperands& p = call.operands;
    const Epilogue& epilogue = call.epilogue;
    const int columns = std::min(kPatchColumns, p.n - patch.column);
    for (int c = 0; c < columns && epilogue.HasBias(); ++c) {
      v[c] += epilogue.Bias(patch.expert, patch.column + c);
    }
    const float scale = epilogue.HasRowScale() ? epilogue.RowScale(row) : 1.0F;
    if constexpr (Epilogue::kGated) {
      for (int c = 0; c < internal::kGemmVec; ++c) {
        v[c] = epilogue.Gate(v[c], v[internal::kGemmVec + c] * scale);
      }
      StoreVec(call, row, patch.column / 2, v);
    } else {
      for (int c = 0; c < columns; c += internal::kGemmVec) {
        for (int i = 0; i < internal::kGemmVec; ++i) v[c + i] *= scale;
        StoreVec(call, row, patch.column + c, v + c);
      }
    }
  }

  // Stores eight columns of the output.
  template <typename Call>
  static void StoreVec(const Call& call, int row, int column, const float* v) {
    using Epilogue = Call::Epilogue;
    const GemmOperands& p = call.operands;
    const int64_t first = static_cast<int64_t>(row) * p.out_columns + column;
    if constexpr (Epilogue::kFloat32) {
      Vec16 floats[2];
      std::memcpy(floats, v, sizeof(floats));
      auto* const out = reinterpret_cast<Vec16*>(static_cast<float*>(p.out) + first);
      StoreStream(out, floats[0]);
      StoreStream(out + 1, floats[1]);
      return;
    }
    uint16_t* to = nullptr;
    if constexpr (Epilogue::kScatters) {
      to = static_cast<uint16_t*>(call.epilogue.RowAt(row)) + column;
    } else {
      to = static_cast<uint16_t*>(p.out) + first;
    }
    Vec16 packed;
    for (int i = 0; i < 4; ++i) {
      packed.w[i] = kElement == GemmElement::kFp16 ? PackFp16(v[2 * i], v[2 * i + 1])
                                                   : PackBf16(v[2 * i], v[2 * i + 1]);
    }
    StoreStream(reinterpret_cast<Vec16*>(to), packed);
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

#endif  // OCTET_RUNTIME_PLATFORM_EMULATION_TILE_GEMM_H_
