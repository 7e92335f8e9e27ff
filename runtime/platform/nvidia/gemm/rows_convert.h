// MXFP4 weights of tiles of many rows on their way to the tensor cores: a free warp copies them and
// their exponents to shared memory, ahead of the rows, and two warpgroups in turn make FP8 of a stage
// in a place from which the tensor cores read it (Fp8OfMxfp4).
//
// Where both blocks of a cluster have the same columns, each copies and converts half of them, and
// its copy unit copies the result to the other block. The multiplying warps of both then tell both
// that a place is free.
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

// By one warp: copies weights stage by stage, and exponents a round of stages at once. `load` begins
// to copy the weights of a tile from a column of K on.
template <typename Walk, int columns, typename Shared, typename Load>
__device__ __forceinline__ void LoadCodes(const GemmOperands& p, const Shared& at,
                                          const Load& load) {
  using Rounds = ExponentRounds<columns>;
  RingPlace<Shared::kCodeStages> place;
  RingPlace<Shared::kExponentRounds> round;
  for (uint32_t unit = 0;; ++unit) {
    const ToldUnit told = TakeUnit<Walk>(at, unit);
    if (!told.found()) break;
    // The tile may lie behind the last column.
    const Rounds rounds(p, told.tile.expert, min(told.tile.column, p.n - 1));
    int next_round = 0;
#pragma unroll 1
    for (int k = 0; k < p.k; k += kMxfp4StageColumns) {
      if (k % (Rounds::kStages * kMxfp4StageColumns) == 0) {
        WaitBarrier(at.ExponentsEmpty(round.stage), round.parity ^ 1);
        rounds.Read(next_round++, at.Exponents(round.stage));
        ArriveWithCopies(at.ExponentsFull(round.stage));
        round.Next();
      }
      WaitBarrier(at.CodesEmpty(place.stage), place.parity ^ 1);
      if (ElectOne()) {
        const uint32_t full = at.CodesFull(place.stage);
        ExpectBytes(full, told.same_rows ? Shared::kWeightsBytes : Shared::kWeightsBytes / 2);
        load(told, k, at.Codes(place.stage), full);
      }
      __syncwarp();
      place.Next();
    }
  }
  WaitCopies<0>();
  __syncwarp();
}

// A converting warpgroup. A lane has every 32nd column, and a warp one of the four blocks of a stage.
template <int columns, typename Shared>
class Converter {
 public:
  __device__ __forceinline__ Converter(const Shared& at, uint32_t warpgroup)
      : at_(at),
        warpgroup_(static_cast<int>(warpgroup)),
        block_(UniformOf(threadIdx.x / 32 % kMxfp4Blocks)) {
    const auto lane = static_cast<uint32_t>(Lane());
    own_codes_ = lane * kMxfp4RowBytes + (block_ ^ (lane / 2 % kMxfp4Blocks)) * 16;
    own_chunk_ = lane * kStageRowBytes + ((2 * block_) ^ (lane & 7)) * 16;
  }

  // Converts this warpgroup's stages of a tile with so many blocks of K. `halves`: it converts half
  // of the columns, and the other block the other half.
  template <bool halves>
  __device__ __forceinline__ void ConvertTile(int blocks) {
    constexpr int kRound = kMxfp4ScaleBytes / kMxfp4Blocks;
    const int stages = (blocks + kMxfp4Blocks - 1) / kMxfp4Blocks;
#pragma unroll 1
    for (int i = 0; i < stages; ++i) {
      if (place_.stage % Shared::kConvertingWarpgroups == warpgroup_) {
        ConvertStage<halves>(i % kRound, blocks - i * kMxfp4Blocks);
      }
      if (i % kRound == kRound - 1 || i == stages - 1) {
        if (Lane() == 0) Arrive(at_.ExponentsEmpty(round_.stage));
        round_.Next();
      }
      place_.Next();
      codes_.Next();
    }
  }

 private:
  // `of_round`: the stage in its round. `blocks`: so many of K are left.
  template <bool halves>
  __device__ __forceinline__ void ConvertStage(int of_round, int blocks) const {
    constexpr int kColumns = halves ? columns / 2 : columns;
    constexpr int kParts = kColumns / 32;
    constexpr int kGroups = kColumns / kMxfp4Fp8Columns;
    static_assert(kMxfp4Fp8Columns == 2 * 32);
    const uint32_t first = halves ? at_.rank * kColumns : 0;  // column

    WaitBarrier(at_.ExponentsFull(round_.stage), round_.parity);
    const uint32_t exponents = at_.Exponents(round_.stage) +
                               (first + static_cast<uint32_t>(Lane())) * kMxfp4ScaleBytes +
                               static_cast<uint32_t>(of_round * kMxfp4Blocks);
    // Those behind the last column of K may be anything.
    const uint32_t exist = blocks < kMxfp4Blocks ? (1U << (8 * blocks)) - 1 : ~0U;
    uint32_t words[kGroups][2];
    int largest[kGroups];
#pragma unroll
    for (int part = 0; part < kParts; ++part) {
      words[part / 2][part % 2] = LoadWord(exponents + part * 32 * kMxfp4ScaleBytes) & exist;
    }
#pragma unroll
    for (int group = 0; group < kGroups; ++group) largest[group] = LargestExponent(words[group]);

    WaitBarrier(at_.CodesFull(codes_.stage), codes_.parity);
    const uint32_t from = at_.Codes(codes_.stage) + first * kMxfp4RowBytes + own_codes_;
    uint4 codes[kParts];
    uint2 magnitudes[kParts];
#pragma unroll
    for (int part = 0; part < kParts; ++part) {
      codes[part] = LoadShared16(from + part * 32 * kMxfp4RowBytes);
      const uint32_t exponent = SelectBytes(words[part / 2][part % 2], 0, 0x4440U | block_);
      magnitudes[part] =
          Fp8OfMxfp4::Magnitudes(at_.Table(), Fp8OfMxfp4::EntryOf(largest[part / 2], exponent));
    }

    WaitBarrier(at_.ConvertedEmpty(place_.stage), place_.parity ^ 1);
    const uint32_t converted = at_.Converted(place_.stage) + first * kStageRowBytes;
    const uint32_t to = converted + own_chunk_;
#pragma unroll
    for (int part = 0; part < kParts; ++part) {
      const uint4& own = codes[part];
      const uint2 m = magnitudes[part];
      const uint32_t of_part = to + part * 32 * kStageRowBytes;
      const uint2 a = Fp8OfWord(own.x, m);
      const uint2 b = Fp8OfWord(own.y, m);
      StoreShared16(of_part, {a.x, a.y, b.x, b.y});
      const uint2 c = Fp8OfWord(own.z, m);
      const uint2 d = Fp8OfWord(own.w, m);
      StoreShared16(of_part ^ 16, {c.x, c.y, d.x, d.y});
    }
    const bool leads = threadIdx.x % kWarpgroup == 0;
    const uint32_t factors = at_.Factors(place_.stage) + first / kMxfp4Fp8Columns * 16;
    if (leads) {
#pragma unroll
      for (int group = 0; group < kGroups; ++group) {
        StoreFloatShared(factors + group * 16, ScaleOfLargest(largest[group]));
      }
    }
    FenceSharedForCopies();  // the tensor cores read as the copy unit does
    SyncThreads(kFirstBarrier + warpgroup_, kWarpgroup);
    const uint32_t full = at_.ConvertedFull(place_.stage);
    if (leads) {
      if constexpr (halves) {
        constexpr uint32_t kBytes = kColumns * kStageRowBytes;
        const uint32_t other = at_.rank ^ 1;
        ExpectBytes(full, kBytes + kGroups * 16);  // from there
        CopyToBlock(converted, kBytes, full, other);
        CopyToBlock(factors, kGroups * 16, full, other);
      } else {
        Arrive(full);
      }
    }
    if (Lane() == 0) Arrive(at_.CodesEmpty(codes_.stage));
  }

  static constexpr int kFirstBarrier = 4;  // of SyncThreads(), for the first converting warpgroup

  const Shared& at_;
  int warpgroup_;
  uint32_t block_;
  uint32_t own_codes_;  // in those of the tile's first 32 columns
  uint32_t own_chunk_;  // in these converted: the first of two, of which the other is ^ 16
  RingPlace<Shared::kStages> place_;
  RingPlace<Shared::kCodeStages> codes_;
  RingPlace<Shared::kExponentRounds> round_;
};

// By each of the converting warpgroups, which take turns.
template <typename Walk, int columns, typename Shared>
__device__ __forceinline__ void ConvertStages(const GemmOperands& p, const Shared& at,
                                              uint32_t warpgroup) {
  Converter<columns, Shared> converter(at, warpgroup);
  for (uint32_t unit = 0;; ++unit) {
    const ToldUnit told = TakeUnit<Walk>(at, unit);
    if (!told.found()) break;
    if (told.same_rows) {
      converter.template ConvertTile<false>(p.k / kMxBlock);
    } else {
      converter.template ConvertTile<true>(p.k / kMxBlock);
    }
  }
}

}  // namespace octet::device::internal

#endif  // OCTET_RUNTIME_PLATFORM_NVIDIA_GEMM_ROWS_CONVERT_H_
