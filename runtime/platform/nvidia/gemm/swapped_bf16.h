// Tiles of few rows whose MXFP4 weights become bfloat16 in the registers from which wgmma
// multiplies.
#ifndef OCTET_RUNTIME_PLATFORM_NVIDIA_GEMM_SWAPPED_BF16_H_
#define OCTET_RUNTIME_PLATFORM_NVIDIA_GEMM_SWAPPED_BF16_H_

#include <cuda_runtime.h>

#include <cstdint>

#include "gemm/mxfp4.h"
#include "gemm/pipeline.h"
#include "gemm/swapped_shared.h"
#include "runtime/platform/gemm_call.h"

namespace octet::device::internal {

template <typename Shared>
class SwappedToBf16 {
  static constexpr int kRows = Shared::kRows;
  static constexpr int kStageColumns = Shared::kStageColumns;
  static constexpr bool kReorders = Shared::kReorders;
  static constexpr uint32_t kBoxBytes = Shared::kBoxBytes;
  using Ring = Shared::Ring;
  using Sums = Shared::Sums;

 public:
  // While the tensor cores multiply one half of a stage, the warps convert the other.
  static __device__ __forceinline__ void Multiply(const GemmOperands& p, const Shared& at,
                                                  Ring& ring, Sums& sums) {
    const int stages = (p.k + kStageColumns - 1) / kStageColumns;
    ConvertedWeights halves[2];
    if constexpr (Shared::kInRounds) {
      MultiplyRounds(p, at, ring, halves, sums);
      return;
    }
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
          WgmmaOfRegisters<kRows, GemmElement::kBf16>::Multiply(
              sums, halves[half].of[k], rows + half * (kBoxBytes >> 4) + k * 2, i | half | k);
        }
        CommitWgmma();
      }
      previous = ring.stage;
      ring.Next();
    }
    WaitWgmma<0>();
    if (Lane() == 0) Arrive(at.Empty(previous));
  }

 private:
  // The weights of half a stage, which has a box of rows: the operands of four wgmma.
  struct ConvertedWeights {
    uint32_t of[kMmasPerStage][4];
  };

  // The same where each tile begins with stage 0, so that the places of stages are constants.
  static __device__ __forceinline__ void MultiplyRounds(const GemmOperands& p, const Shared& at,
                                                        Ring& ring, ConvertedWeights (&halves)[2],
                                                        Sums& sums) {
    constexpr int kStages = Shared::kStages;
    const int stages = Shared::StagesOfTile(p.k);
    const uint32_t first_rows = UniformOf(TileDescriptor(at.Rows(0)));
    uint32_t parity = UniformOf(ring.parity);
#pragma unroll 1
    for (int i = 0; i < stages; i += kStages) {
#pragma unroll
      for (int stage = 0; stage < kStages; ++stage) {
        WaitBarrier(at.Full(stage), parity);
        const uint32_t rows =
            first_rows + static_cast<uint32_t>(stage) * (Shared::kStagePitch >> 4);
        const uint4 own[2] = {};  // rows are not reordered
        const WeightScales scales = LoadScales(p, at, stage, i + stage);
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          WaitWgmma<1>();  // this half of the stage before, whose registers are used again
          if (half == 1 && (i | stage) > 0 && Lane() == 0) {
            Arrive(at.Empty((stage + kStages - 1) % kStages));
          }
          Convert(at, stage, half, own, scales, halves[half]);
          BeginWgmma();
#pragma unroll
          for (int k = 0; k < kMmasPerStage; ++k) {
            WgmmaOfRegisters<kRows, GemmElement::kBf16>::Multiply(
                sums, halves[half].of[k], rows + half * (kBoxBytes >> 4) + k * 2,
                i | stage | half | k);
          }
          CommitWgmma();
        }
      }
      parity ^= 1;
    }
    WaitWgmma<0>();
    if (Lane() == 0) Arrive(at.Empty(kStages - 1));
    ring.parity = parity;
  }

  // Four threads have the same two rows of a stage, and each the scales of one of their four
  // blocks: two factors, of which the second is 1, if `usual`, which the warp has in common.
  struct WeightScales {
    uint32_t first[2];
    uint32_t second[2];
    bool usual;
  };

  // Loads the scales of stage `ring_stage`, which is stage `stage` of K.
  static __device__ __forceinline__ WeightScales LoadScales(const GemmOperands& p, const Shared& at,
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
  static __device__ __forceinline__ void Convert(const Shared& at, int ring_stage, int half,
                                                 const uint4 (&own)[2], const WeightScales& scales,
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
};

}  // namespace octet::device::internal

#endif  // OCTET_RUNTIME_PLATFORM_NVIDIA_GEMM_SWAPPED_BF16_H_
