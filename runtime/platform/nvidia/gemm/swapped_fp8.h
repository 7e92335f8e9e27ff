// Tiles of few FP8 rows whose MXFP4 weights become FP8 in the registers from which wgmma
// multiplies.
#ifndef OCTET_RUNTIME_PLATFORM_NVIDIA_GEMM_SWAPPED_FP8_H_
#define OCTET_RUNTIME_PLATFORM_NVIDIA_GEMM_SWAPPED_FP8_H_

#include <cuda_runtime.h>

#include <cstdint>

#include "gemm/mxfp4_fp8.h"
#include "gemm/pipeline.h"
#include "gemm/swapped_shared.h"
#include "runtime/platform/gemm_call.h"
#include "runtime/platform/gemm_scales.h"

namespace octet::device::internal {

template <typename Shared>
class SwappedToFp8 {
  static constexpr int kRows = Shared::kRows;
  static constexpr int kStages = Shared::kStages;
  static constexpr int kStageColumns = Shared::kStageColumns;
  static constexpr uint32_t kStagePitch = Shared::kStagePitch;
  using Ring = Shared::Ring;
  using Sums = Shared::Sums;

 public:
  // While the tensor cores multiply a stage, the warps wait for the next one and load it.
  static __device__ __forceinline__ void Multiply(const GemmOperands& p, const Shared& at,
                                                  Ring& ring, Sums& sums) {
    const int stages = (p.k + kStageColumns - 1) / kStageColumns;
    // Places in stage 0 of what belongs to the thread's first row of weights, and its sums'
    // factors.
    const int block = Lane() % kMxfp4Blocks;
    const auto row = static_cast<uint32_t>(OwnWeightRow());
    uint32_t own_codes = at.Weights(0) + row * kMxfp4RowBytes +
                         (static_cast<uint32_t>(block) ^ (row / 2 % kMxfp4Blocks)) * 16;
    uint32_t own_entries = at.Entries(0) + row * kMxfp4Blocks + static_cast<uint32_t>(block);
    const int warpgroup = static_cast<int>(threadIdx.x) / kWarpgroup;
    uint32_t own_factors = at.Factors(0, warpgroup) + static_cast<uint32_t>(block * 8);
    asm volatile("" : "+r"(own_codes), "+r"(own_entries), "+r"(own_factors));
    Sums partial;
#pragma unroll
    for (int j = 0; j < kRows / 2; ++j) sums[j] = 0;
    auto stage = UniformOf(static_cast<uint32_t>(ring.stage));
    uint32_t parity = UniformOf(ring.parity);
    uint32_t previous = stage;
    const auto add = [&]() __attribute__((always_inline)) {
      float2 factors[kRows / 8];
#pragma unroll
      for (int j = 0; j < kRows / 8; ++j) {
        factors[j] = LoadFloatsShared(own_factors + previous * kStagePitch + j * 32);
      }
      WaitWgmma<0>();
      if (Lane() == 0) Arrive(at.Empty(0) + previous * kBarrierBytes);
#pragma unroll
      for (int j = 0; j < kRows / 2; ++j) {
        sums[j] = __fmaf_rn(partial[j], j % 2 == 0 ? factors[j / 4].x : factors[j / 4].y, sums[j]);
      }
    };
#pragma unroll 1
    for (int i = 0; i < stages; ++i) {
      const uint32_t rows = UniformOf(TileDescriptor(at.Rows(0) + stage * kStagePitch));
      WaitBarrier(at.Reordered(0) + stage * kBarrierBytes, parity);
      uint4 codes[2];
      uint2 magnitudes[2];
#pragma unroll
      for (uint32_t second = 0; second < 2; ++second) {
        magnitudes[second] = Fp8OfMxfp4::Magnitudes(
            at.Table(),
            LoadSharedByte(own_entries + stage * kStagePitch + second * 8 * kMxfp4Blocks));
        if constexpr (kRows != 32) {
          codes[second] =
              LoadShared16(own_codes + stage * kStagePitch + second * 8 * kMxfp4RowBytes);
        }
      }
      if (i > 0) add();
      if constexpr (kRows == 32) {
#pragma unroll
        for (uint32_t second = 0; second < 2; ++second) {
          codes[second] =
              LoadShared16(own_codes + stage * kStagePitch + second * 8 * kMxfp4RowBytes);
        }
      }
      uint32_t weights[kMmasPerStage][4];
#pragma unroll
      for (int second = 0; second < 2; ++second) {
        const uint4& own = codes[second];
        const uint32_t words[] = {own.x, own.y, own.z, own.w};
#pragma unroll
        for (int k = 0; k < kMmasPerStage; ++k) {
          const uint2 v = Fp8OfWord(words[k], magnitudes[second]);
          weights[k][second] = v.x;
          weights[k][2 + second] = v.y;
        }
      }
      BeginWgmma();
#pragma unroll
      for (int k = 0; k < kMmasPerStage; ++k) {
        WgmmaOfRegisters<kRows, GemmElement::kFp8>::Multiply(partial, weights[k], rows + k * 2, k);
      }
      CommitWgmma();
      previous = stage;
      stage = stage == kStages - 1 ? 0 : stage + 1;
      if (stage == 0) parity ^= 1;
    }
    add();
    ring.stage = static_cast<int>(stage);
    ring.parity = parity;
  }
};

inline constexpr uint32_t kNextColumn =
    32 * kMxfp4ScaleBytes;  // of a lane, in a round of exponents

// Writes the entries of a stage, and the factors of its sums, whose scales are read a stage ahead.
template <typename Shared, bool ue8m0>
class EntryWriter {
  static constexpr int kWarp = 32;
  static constexpr int kRows = Shared::kRows;
  static constexpr int kOwnRows = (kRows + kWarp - 1) / kWarp;
  static constexpr int kGroups = Shared::kScaledColumns / kMxfp4Fp8Columns;
  static constexpr int kWords = kMxfp4Fp8Columns / kWarp;

 public:
  // Rows beyond the last repeat it.
  __device__ __forceinline__ EntryWriter(const GemmOperands& p, const GemmTile& tile,
                                         const Shared& at, int warp)
      : entries_(at.Entries(0) +
                 static_cast<uint32_t>((warp * Shared::kScaledColumns + Lane()) * kMxfp4Blocks)),
        factors_(at.Factors(0, warp * kGroups)),
        last_stage_(Shared::StagesOfTile(p.k) - 1) {
    const ScaleRows rows = ScaleRows::OfRows(p.scales, tile.row);
#pragma unroll
    for (int i = 0; i < kOwnRows; ++i) rows_[i] = rows.RowAt(min(Row(i), tile.rows - 1));
    Read(0);
  }

  // Of stage `of_k` of K, to stage `stage`. `exponents`: where those of the lane's first column
  // are.
  __device__ __forceinline__ void Write(int of_k, int stage, uint32_t exponents) {
    const uint32_t step = static_cast<uint32_t>(stage) * Shared::kStagePitch;
#pragma unroll
    for (int group = 0; group < kGroups; ++group) {
      uint32_t words[1][kWords];
#pragma unroll
      for (int i = 0; i < kWords; ++i) {
        words[0][i] = LoadWord(exponents + (group * kWords + i) * kNextColumn);
      }
      int largest[1];
      LargestExponents(words, largest);
#pragma unroll
      for (int i = 0; i < kWords; ++i) {
        StoreWord(entries_ + step + (group * kWords + i) * kWarp * kMxfp4Blocks,
                  EntriesOf(words[0][i], largest[0]));
      }
      const float scale = ScaleOfLargest(largest[0]);
#pragma unroll
      for (int i = 0; i < kOwnRows; ++i) {
        StoreFloatShared(
            factors_ + step + group * Shared::kFactorsBytes + static_cast<uint32_t>(Row(i) * 4),
            ScaleRows::ScaleOf<ue8m0>(words_[i], of_k) * scale);
      }
    }
    Read(min(of_k + 1, last_stage_));
  }

 private:
  static __device__ __forceinline__ int Row(int i) { return (Lane() + i * kWarp) % kRows; }

  __device__ __forceinline__ void Read(int of_k) {
#pragma unroll
    for (int i = 0; i < kOwnRows; ++i) words_[i] = rows_[i][ScaleRows::WordOf<ue8m0>(of_k)];
  }

  uint32_t entries_;  // in stage 0, like
  uint32_t factors_;
  int last_stage_;
  const uint32_t* rows_[kOwnRows];
  uint32_t words_[kOwnRows];
};

// By scaling warp `warp`, which has all weights, or those of one warpgroup: brings their exponents,
// those of four stages at once, as the copy unit would take as long for 16 bytes of each row as for
// its weights, and writes what follows from them.
template <bool ue8m0, typename Shared, typename Walk>
__device__ __forceinline__ void WriteEntries(const GemmOperands& p, Walk& walk, const Shared& at,
                                             int warp) {
  using Rounds = Shared::Rounds;
  const int stages = Shared::StagesOfTile(p.k);
  const int first_column = warp * Shared::kScaledColumns;
  typename Shared::Ring ring;
  for (int unit = static_cast<int>(blockIdx.x); walk.Find(unit);
       unit += static_cast<int>(gridDim.x)) {
    const GemmTile tile = walk.Tile(0);
    EntryWriter<Shared, ue8m0> writer(p, tile, at, warp);
    const Rounds rounds(p, tile.expert, min(tile.column + first_column, p.n - 1));
    const auto place = [&](int round) {
      return at.ExponentsOf(warp) + static_cast<uint32_t>(round % 2) * Rounds::kBytes;
    };
    rounds.Read(0, place(0));
    for (int i = 0; i < stages; ++i) {
      const int round = i / Rounds::kStages;
      if (i % Rounds::kStages == 0) {
        __syncwarp();
        rounds.Read(round + 1, place(round + 1));
        rounds.Await(round, place(round));
        __syncwarp();
      }
      WaitBarrier(at.Empty(ring.stage), ring.parity ^ 1);
      writer.Write(i, ring.stage,
                   place(round) + static_cast<uint32_t>(Lane() * kMxfp4ScaleBytes +
                                                        i % Rounds::kStages * kMxfp4Blocks));
      __syncwarp();
      if (Lane() == 0) Arrive(at.Reordered(ring.stage));
      ring.Next();
    }
    WaitCopies<0>();
    __syncwarp();
  }
}

}  // namespace octet::device::internal

#endif  // OCTET_RUNTIME_PLATFORM_NVIDIA_GEMM_SWAPPED_FP8_H_
