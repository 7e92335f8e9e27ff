// MXFP4 weights of tiles of many rows on their way to the tensor cores: a free warp copies them and
// their exponents to shared memory, ahead of the rows, and a warpgroup makes FP8 of a stage in a
// place from which the tensor cores read it (Fp8OfMxfp4).
//
// Where both blocks of a cluster have the same columns, each copies and converts one half, and its
// copy unit copies the result to the other block. The multiplying warps of both then tell both that
// a place is free.
#ifndef OCTET_RUNTIME_PLATFORM_NVIDIA_GEMM_ROWS_CONVERT_H_
#define OCTET_RUNTIME_PLATFORM_NVIDIA_GEMM_ROWS_CONVERT_H_

#include <cuda_runtime.h>

#include <cstdint>

#include "gemm/async.h"
#include "gemm/mxfp4_fp8.h"
#include "gemm/pipeline.h"
#include "gemm/rows_units.h"

namespace octet::device::internal {

inline constexpr int kMxfp4StageColumns = kMxfp4Blocks * kMxBlock;

// By one warp: copies weights stage by stage, and exponents a round of stages at once. load(tile,
// half, k, place) begins to copy half of a tile's weights, from column `k` of K on, to a place.
template <typename Walk, int columns, typename Shared, typename Load>
__device__ __forceinline__ void LoadCodes(const GemmOperands& p, const Shared& at,
                                          const Load& load) {
  using Rounds = ExponentRounds<columns>;
  // Of the turn whose stage is next, and of the other one; the first place of the former.
  RingPlace<Shared::kCodesOfTurn> ring;
  RingPlace<Shared::kCodesOfTurn> other;
  int first_place = 0;
  RingPlace<Shared::kExponentRounds> round;
  for (uint32_t unit = 0;; ++unit) {
    const ToldUnit told = TakeUnit<Walk>(at, unit);
    if (!told.found()) break;
    // The tile may lie behind the last column.
    const Rounds rounds(p, told.tile.expert, min(told.tile.column, p.n - 1));
    const int first_half = told.same_rows ? 0 : static_cast<int>(at.rank);
    const int end_half = told.same_rows ? 2 : first_half + 1;
    int next_round = 0;
#pragma unroll 1
    for (int k = 0; k < p.k; k += kMxfp4StageColumns) {
      if (k % (Rounds::kStages * kMxfp4StageColumns) == 0) {
        WaitBarrier(at.ExponentsEmpty(round.stage), round.parity ^ 1);
        rounds.Read(next_round++, at.Exponents(round.stage));
        ArriveWithCopies(at.ExponentsFull(round.stage));
        round.Next();
      }
#pragma unroll 1
      for (int half = first_half; half < end_half; ++half) {
        const int place = first_place + ring.stage;
        WaitBarrier(at.CodesEmpty(place), ring.parity ^ 1);
        if (ElectOne()) {
          ExpectBytes(at.CodesFull(place), Shared::kCodesBytes);
          load(told.tile, half, k, place);
        }
        __syncwarp();
        ring.Next();
      }
      const auto next = other;
      other = ring;
      ring = next;
      first_place = Shared::kCodesOfTurn - first_place;
    }
  }
  WaitCopies<0>();
  __syncwarp();
}

// The warpgroup that converts: two warps a stage, which take turns with the other two. A lane has
// every eighth column of its warp's, and one of the four blocks of a stage. Where a warp waits for
// its own results, the other turn's goes on; no warp waits for another one.
//
// A wait for a parity tells phases of a barrier apart only if none is left out: loads need not end
// in the order in which they begin. So each turn has places for codes of its own, and both of its
// warps wait for all of them.
template <int columns, typename Shared>
class Converter {
  static constexpr int kHalf = columns / 2;
  static constexpr int kPartColumns = 32 / kMxfp4Blocks;          // of a warp at once
  static constexpr int kRound = kMxfp4ScaleBytes / kMxfp4Blocks;  // stages
  // The scales of a half's columns, of which the halves may have one in common.
  static constexpr int kScales = kHalf % kMxfp4Fp8Columns == 0 ? 1 : 2;
  static constexpr uint32_t kFactorPitch = 16;
  static_assert(Shared::kTurns * Shared::kWarpsOfStage == Shared::kConvertingWarps);
  static_assert(Shared::kStages % Shared::kTurns == 0);
  static_assert(kHalf == kMxfp4Fp8Columns || 2 * kHalf == 3 * kMxfp4Fp8Columns);

 public:
  __device__ __forceinline__ explicit Converter(const Shared& at)
      : at_(at),
        turn_(UniformOf(threadIdx.x / 32 / Shared::kWarpsOfStage % Shared::kTurns)),
        warp_(UniformOf(threadIdx.x / 32 % Shared::kWarpsOfStage)) {}

  // Converts a tile with so many blocks of K. `both`: both halves of its columns, each by a warp;
  // otherwise one by two, and the other block the other one.
  template <bool both>
  __device__ __forceinline__ void ConvertTile(int blocks) {
    const uint32_t half = both ? warp_ : at_.rank;
    const Places places(half * kHalf, both ? 0 : warp_ * kWarpColumns<both>);
    int of_round = 0;
#pragma unroll 1
    for (; blocks > 0; blocks -= kMxfp4Blocks) {
      if (of_round == 0) WaitBarrier(at_.ExponentsFull(round_.stage), round_.parity);
      if (static_cast<uint32_t>(place_.stage) % Shared::kTurns == turn_) {
        const uint32_t exponents =
            at_.Exponents(round_.stage) + static_cast<uint32_t>(of_round * kMxfp4Blocks);
        Largest largest;
        FindLargest(exponents + half * kMxfp4Fp8Columns * kMxfp4ScaleBytes, blocks, largest);
        Convert<both>(places, exponents, blocks, largest);
        Publish<both>(half, largest);
      }
      place_.Next();
      if (++of_round == kRound || blocks <= kMxfp4Blocks) {
        of_round = 0;
        __syncwarp();
        if (Lane() == 0) Arrive(at_.ExponentsEmpty(round_.stage));
        round_.Next();
      }
    }
  }

 private:
  // Where a lane's first column is: its exponents in a stage's, its codes in a half's, and these
  // converted in a stage's, the first 16 bytes of two, of which the others are ^ 16.
  struct Places {
    uint32_t exponent;
    uint32_t codes;
    uint32_t converted;
    uint32_t first_column;  // the warp's, from the first that has its half's scales on

    // `first`: of the half. `warp`: the warp's first column from there on.
    __device__ __forceinline__ Places(uint32_t first, uint32_t warp) {
      const uint32_t in_part = static_cast<uint32_t>(Lane()) / kMxfp4Blocks;
      const uint32_t block = static_cast<uint32_t>(Lane()) % kMxfp4Blocks;
      const uint32_t column = warp + in_part;
      exponent = (first + column) * kMxfp4ScaleBytes + block;
      codes = column * kMxfp4RowBytes + (block ^ (in_part / 2 % kMxfp4Blocks)) * 16;
      converted = (first + column) * kStageRowBytes + ((2 * block) ^ in_part) * 16;
      first_column = first % kMxfp4Fp8Columns + warp;
    }
  };

  // The largest exponents of a stage, of each of the half's scales.
  using Largest = int[kScales];

  template <bool both>
  static constexpr uint32_t kWarpColumns = both ? kHalf : kHalf / Shared::kWarpsOfStage;

  // Finds them. `exponents`: of the first column of the scales. `blocks`: so many of K are left;
  // what is behind the last column may be anything.
  static __device__ __forceinline__ void FindLargest(uint32_t exponents, int blocks,
                                                     Largest& largest) {
    constexpr int kWords = kMxfp4Fp8Columns / 32;
    uint32_t words[kScales][kWords];
#pragma unroll
    for (int i = 0; i < kScales * kWords; ++i) {
      words[i / kWords][i % kWords] =
          LoadWord(exponents + static_cast<uint32_t>((i * 32 + Lane()) * kMxfp4ScaleBytes));
    }
    if (blocks < kMxfp4Blocks) {
      const uint32_t exist = (1U << (8 * blocks)) - 1;
#pragma unroll
      for (int i = 0; i < kScales * kWords; ++i) words[i / kWords][i % kWords] &= exist;
    }
    LargestExponents(words, largest);
  }

  // Calls use(place, parity) for the places of the stage's codes, the warp's own one last.
  template <bool both, typename Use>
  __device__ __forceinline__ void ForCodes(Use use) const {
    const auto first_place = static_cast<int>(turn_ * Shared::kCodesOfTurn);
    RingPlace<Shared::kCodesOfTurn> second = codes_;
    if constexpr (both) {
      second.Next();
      const auto& other = warp_ == 0 ? second : codes_;
      use(first_place + other.stage, other.parity);
    }
    const auto& own = both && warp_ == 1 ? second : codes_;
    use(first_place + own.stage, own.parity);
  }

  // Converts the warp's part of the stage at place_.
  template <bool both>
  __device__ __forceinline__ void Convert(const Places& places, uint32_t exponents, int blocks,
                                          const Largest& largest) const {
    constexpr int kParts = kWarpColumns<both> / kPartColumns;
    // Of blocks behind the last column, whose codes are zeros, the last block's do as well.
    const uint32_t own_exponents =
        exponents + places.exponent +
        static_cast<uint32_t>(min(blocks - 1 - Lane() % kMxfp4Blocks, 0));
    uint32_t own_codes = 0;
    uint32_t own[kParts];
    uint4 codes[kParts];
    uint2 magnitudes[kParts];
    const auto load_exponent = [&](int i) __attribute__((always_inline)) {
      own[i] = LoadSharedByte(own_exponents + i * kPartColumns * kMxfp4ScaleBytes);
    };
    const auto load = [&](int i) __attribute__((always_inline)) {
      int of_scale = largest[0];
      if constexpr (kScales == 2) {
        const bool first = places.first_column + i * kPartColumns < kMxfp4Fp8Columns;
        of_scale = first ? largest[0] : largest[1];
      }
      magnitudes[i] = Fp8OfMxfp4::Magnitudes(at_.Table(), Fp8OfMxfp4::EntryOf(of_scale, own[i]));
      codes[i] = LoadShared16(own_codes + i * kPartColumns * kMxfp4RowBytes);
    };
    load_exponent(0);
    load_exponent(1);
    ForCodes<both>([&](int place, uint32_t parity) __attribute__((always_inline)) {
      WaitBarrier(at_.CodesFull(place), parity);
      own_codes = at_.Codes(place) + places.codes;
    });
    load(0);
    WaitBarrier(at_.ConvertedEmpty(place_.stage), place_.parity ^ 1);
    const uint32_t to = at_.Converted(place_.stage) + places.converted;
#pragma unroll
    for (int i = 0; i < kParts; ++i) {
      if (i + 2 < kParts) load_exponent(i + 2);
      if (i + 1 < kParts) load(i + 1);
      const uint32_t of_part = i * kPartColumns * kStageRowBytes;
      const uint2 a = Fp8OfWord(codes[i].x, magnitudes[i]);
      const uint2 b = Fp8OfWord(codes[i].y, magnitudes[i]);
      StoreShared16(to + of_part, {a.x, a.y, b.x, b.y});
      const uint2 c = Fp8OfWord(codes[i].z, magnitudes[i]);
      const uint2 d = Fp8OfWord(codes[i].w, magnitudes[i]);
      StoreShared16((to ^ 16) + of_part, {c.x, c.y, d.x, d.y});
    }
  }

  // Stores the factors of the half's scales, of which both warps and both blocks know one that the
  // halves have in common, and tells the multiplying warps, or sends all to the other block.
  template <bool both>
  __device__ __forceinline__ void Publish(uint32_t half, const Largest& largest) {
    const uint32_t factors = at_.Factors(place_.stage);
    if ((both || warp_ == 0) && Lane() == 0) {
#pragma unroll
      for (uint32_t i = 0; i < kScales; ++i) {
        StoreFloatShared(factors + (half + i) * kFactorPitch, ScaleOfLargest(largest[i]));
      }
    }
    FenceSharedForCopies();  // the tensor cores read as the copy unit does
    __syncwarp();
    if (ElectOne()) {
      ForCodes<both>([&](int place, uint32_t /*parity*/)
                         __attribute__((always_inline)) { Arrive(at_.CodesEmpty(place)); });
      const uint32_t full = at_.ConvertedFull(place_.stage);
      if constexpr (both) {
        Arrive(full);
      } else {
        constexpr uint32_t kBytes = kWarpColumns<both> * kStageRowBytes;
        const uint32_t converted = at_.Converted(place_.stage) +
                                   (half * kHalf + warp_ * kWarpColumns<both>)*kStageRowBytes;
        const uint32_t other = at_.rank ^ 1;
        ExpectBytes(full, kBytes + (warp_ == 0 ? kFactorPitch : 0));  // from there
        CopyToBlock(converted, kBytes, full, other);
        if (warp_ == 0) {  // the factor that the other block does not know
          CopyToBlock(factors + half * (columns / kMxfp4Fp8Columns - 1) * kFactorPitch,
                      kFactorPitch, full, other);
        }
      }
    }
    __syncwarp();
    codes_.Next();
    if (both) codes_.Next();
  }

  const Shared& at_;
  uint32_t turn_;
  uint32_t warp_;  // of the stage's
  RingPlace<Shared::kCodesOfTurn> codes_;
  RingPlace<Shared::kExponentRounds> round_;
  RingPlace<Shared::kStages> place_;
};

template <typename Walk, int columns, typename Shared>
__device__ __forceinline__ void ConvertStages(const GemmOperands& p, const Shared& at) {
  Converter<columns, Shared> converter(at);
  for (uint32_t unit = 0;; ++unit) {
    const ToldUnit told = TakeUnit<Walk>(at, unit);
    if (!told.found()) break;
    if (told.same_rows) {
      converter.template ConvertTile<true>(p.k / kMxBlock);
    } else {
      converter.template ConvertTile<false>(p.k / kMxBlock);
    }
  }
}

}  // namespace octet::device::internal

#endif  // OCTET_RUNTIME_PLATFORM_NVIDIA_GEMM_ROWS_CONVERT_H_
