// Converting warps of tiles of many rows: MXFP4 weights of each stage become FP8 in a place from
// which the tensor cores read them. A free warp finds out before by which entries of the table
// (Fp8OfMxfp4).
#ifndef OCTET_RUNTIME_PLATFORM_NVIDIA_GEMM_ROWS_CONVERT_H_
#define OCTET_RUNTIME_PLATFORM_NVIDIA_GEMM_ROWS_CONVERT_H_

#include <cuda_runtime.h>

#include <cstdint>

#include "gemm/mxfp4_fp8.h"
#include "gemm/pipeline.h"
#include "gemm/rows_units.h"

namespace octet::device::internal {

// By one warp: brings the exponents of each stage in compact form, and finds the largest.
template <typename Walk, int columns, typename Shared>
__device__ __forceinline__ void WriteExponents(const GemmOperands& p, const Shared& at) {
  using Rounds = ExponentRounds<columns>;
  constexpr int kGroups = columns / kMxfp4Fp8Columns;
  constexpr int kWords = kMxfp4Fp8Columns / 32;
  constexpr int kStageColumns = kMxfp4Blocks * kMxBlock;
  const int stages = (p.k + kStageColumns - 1) / kStageColumns;
  const uint32_t to = at.Entries(0) + static_cast<uint32_t>(Lane() * kMxfp4Blocks);
  uint32_t stage = 0;
  uint32_t parity = 1;
  for (uint32_t unit = 0;; ++unit) {
    const ToldUnit told = TakeUnit<Walk>(at, unit);
    if (!told.found()) break;
    // The tile may lie behind the last column.
    const Rounds rounds(p, told.tile.expert, min(told.tile.column, p.n - 1));
    rounds.Read(0, at.Exponents(0));
#pragma unroll 1
    for (int i = 0; i < stages; ++i) {
      const int round = i / Rounds::kStages;
      if (i % Rounds::kStages == 0) {
        __syncwarp();
        rounds.Read(round + 1, at.Exponents(round + 1));
        rounds.Await(round, at.Exponents(round));
        __syncwarp();
      }
      const uint32_t from =
          at.Exponents(round) +
          static_cast<uint32_t>(Lane() * kMxfp4ScaleBytes + i % Rounds::kStages * kMxfp4Blocks);
      const uint32_t step = stage * Shared::kEntriesBytes;
      WaitBarrier(at.Empty(0) + stage * kBarrierBytes, parity);
#pragma unroll
      for (int group = 0; group < kGroups; ++group) {
        uint32_t words[kWords];
#pragma unroll
        for (int j = 0; j < kWords; ++j) {
          const int column = (group * kWords + j) * 32;
          words[j] = LoadWord(from + column * kMxfp4ScaleBytes);
          StoreWord(to + step + column * kMxfp4Blocks, words[j]);
        }
        const int largest = LargestExponent(words);
        if (Lane() == 0) {
          StoreWord(at.Largest(0) + step + group * 4, static_cast<uint32_t>(largest));
        }
      }
      __syncwarp();
      if (Lane() == 0) Arrive(at.Full(0) + stage * kBarrierBytes);
      stage = (stage + 1) % Shared::kStages;
      if (stage == 0) parity ^= 1;
    }
    WaitCopies<0>();
    __syncwarp();
  }
}

// By each of the converting warpgroups, which take turns. A lane has every 32nd column, and a warp one
// of the four blocks of a stage.
template <typename Walk, int columns, typename Shared>
__device__ __forceinline__ void ConvertStages(const GemmOperands& p, const Shared& at,
                                              uint32_t warpgroup) {
  constexpr int kParts = columns / 32;
  constexpr int kStageColumns = kMxfp4Blocks * kMxBlock;
  const int stages = (p.k + kStageColumns - 1) / kStageColumns;
  const auto block = UniformOf(threadIdx.x / 32 % kMxfp4Blocks);
  const auto lane = static_cast<uint32_t>(Lane());
  const uint32_t own_codes =
      at.Weights(0) + lane * kMxfp4RowBytes + (block ^ (lane / 2 % kMxfp4Blocks)) * 16;
  const uint32_t own_entries = at.Entries(0) + lane * kMxfp4Blocks + block;
  const uint32_t own_row = at.Converted(0) + lane * kStageRowBytes;
  const uint32_t chunks[] = {own_row + ((2 * block) ^ (lane & 7)) * 16,
                             own_row + ((2 * block + 1) ^ (lane & 7)) * 16};
  uint32_t stage = 0;
  uint32_t parity = 0;
  for (uint32_t unit = 0;; ++unit) {
    const ToldUnit told = TakeUnit<Walk>(at, unit);
    if (!told.found()) break;
#pragma unroll 1
    for (int i = 0; i < stages; ++i) {
      if (stage % Shared::kConvertingWarpgroups != warpgroup) {
        stage = (stage + 1) % Shared::kStages;
        if (stage == 0) parity ^= 1;
        continue;
      }
      const uint32_t from = own_codes + stage * Shared::kStageBytes;
      const uint32_t entries = own_entries + stage * Shared::kEntriesBytes;
      const uint32_t to = stage * Shared::kConvertedBytes;
      WaitBarrier(at.Full(0) + stage * kBarrierBytes, parity);
      const uint4 most = LoadShared16(at.Largest(0) + stage * Shared::kEntriesBytes);
      const uint32_t largest[] = {most.x, most.y, most.z, most.w};
      uint4 codes[kParts];
      uint2 magnitudes[kParts];
#pragma unroll
      for (int part = 0; part < kParts; ++part) {
        codes[part] = LoadShared16(from + part * 32 * kMxfp4RowBytes);
        const uint32_t exponent = LoadSharedByte(entries + part * 32 * kMxfp4Blocks);
        magnitudes[part] = Fp8OfMxfp4::Magnitudes(
            at.Table(), Fp8OfMxfp4::EntryOf(static_cast<int>(largest[part / 2]), exponent));
      }
      WaitBarrier(at.ConvertedEmpty(0) + stage * kBarrierBytes, parity ^ 1);
#pragma unroll
      for (int part = 0; part < kParts; ++part) {
        const uint4& own = codes[part];
        const uint2 m = magnitudes[part];
        const uint32_t of_part = to + part * 32 * kStageRowBytes;
        const uint2 a = Fp8OfWord(own.x, m);
        const uint2 b = Fp8OfWord(own.y, m);
        StoreShared16(chunks[0] + of_part, {a.x, a.y, b.x, b.y});
        const uint2 c = Fp8OfWord(own.z, m);
        const uint2 d = Fp8OfWord(own.w, m);
        StoreShared16(chunks[1] + of_part, {c.x, c.y, d.x, d.y});
      }
      FenceSharedForCopies();  // the tensor cores read as the copy unit does
      __syncwarp();
      if (lane == 0) Arrive(at.ConvertedFull(0) + stage * kBarrierBytes);
      if (lane < 2) ArriveAt(at.Empty(0) + stage * kBarrierBytes, lane);
      stage = (stage + 1) % Shared::kStages;
      if (stage == 0) parity ^= 1;
    }
  }
}

}  // namespace octet::device::internal

#endif  // OCTET_RUNTIME_PLATFORM_NVIDIA_GEMM_ROWS_CONVERT_H_
