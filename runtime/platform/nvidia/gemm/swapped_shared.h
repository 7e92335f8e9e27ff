// The shared memory of a block that multiplies tiles of few rows:
//
//   stages     weights, rows, and with MXFP4 weights their exponents, or what follows from them
//   boxes      of output, one for each of the two multiplying warpgroups
//   barriers   full and empty of each stage, and of rows that are in another order
//   exponents  two rounds of each scaling warp; of FP8 rows with MXFP4 weights alone, like
//   table      FP8 numbers of codes (Fp8OfMxfp4)
#ifndef OCTET_RUNTIME_PLATFORM_NVIDIA_GEMM_SWAPPED_SHARED_H_
#define OCTET_RUNTIME_PLATFORM_NVIDIA_GEMM_SWAPPED_SHARED_H_

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>

#include "gemm/mxfp4.h"
#include "gemm/mxfp4_fp8.h"
#include "gemm/pipeline.h"
#include "runtime/platform/gemm_call.h"

namespace octet::device::internal {

template <int tile_rows, GemmElement element>
struct SwappedShared {
  static constexpr int kRows = tile_rows;
  static constexpr int kColumns = 2 * kRowsPerWarpgroup;
  // Warps beside the loading one, which reorder rows so that fewer instructions convert weights.
  // Many rows would keep shared memory too busy.
  static constexpr int kReorderingWarps =
      !HasMxfp4Weights(element) || tile_rows > 64
          ? 0
          : (tile_rows > 16 && (tile_rows > 32 || element == GemmElement::kFp8Mxfp4) ? 2 : 1);
  // And warps that find out by which table weights become FP8, and the factors of sums. At most 12
  // warps have 80 registers each in two blocks, as they are handed out for four warps at once.
  static constexpr int kScalingWarps =
      element != GemmElement::kFp8Mxfp4 ? 0 : (tile_rows < 32 ? 2 : 1);
  // Weights that become bfloat16, or FP8, in registers.
  static constexpr bool kConverts = HasMxfp4Weights(element);
  static constexpr bool kToFp8 = element == GemmElement::kFp8Mxfp4;
  static constexpr bool kReorders = kReorderingWarps > 0;
  static constexpr int StagesOf(int rows) {
    if (rows > 64) return 4;
    if (rows > 32) return kToFp8 ? 11 : (kConverts ? 7 : 8);
    if (rows > 16) return kToFp8 ? 7 : (kConverts ? 5 : 10);
    return kToFp8 ? 9 : (kConverts ? 7 : 12);
  }
  static constexpr int kStages = StagesOf(kRows);
  // Whether each tile begins with stage 0: the last ones of a tile may lie behind the last column
  // of K, and are zeros.
  static constexpr bool kInRounds = kConverts && !kToFp8 && !kReorders;
  static constexpr int kStageColumns = kStageColumnsOf<element>;
  static constexpr GemmElement kOutElement = OutElementOf(element);
  static constexpr int kMultiplyingWarps = 8;
  static constexpr int kWeightRowBytes = kConverts ? kMxfp4RowBytes : kStageRowBytes;
  // Of the rows of A, one behind the other.
  static constexpr int kRowBoxes = kConverts && !kToFp8 ? 2 : 1;
  static constexpr uint32_t kWeightsBytes = kColumns * kWeightRowBytes;
  static constexpr uint32_t kBoxBytes = kRows * kStageRowBytes;  // of rows, or a warpgroup's output
  // With bfloat16 the copy unit brings exponents, too.
  static constexpr uint32_t kScalesBytes = kConverts && !kToFp8 ? kColumns * kMxfp4ScaleBytes : 0;
  static constexpr uint32_t kStageBytes = kWeightsBytes + kRowBoxes * kBoxBytes + kScalesBytes;
  // Behind what the copy unit brings, a stage has the entries of its weights, then the factors of
  // the sums of each warpgroup's weights and each row.
  static constexpr int kScaledColumns = kToFp8 ? kColumns / kScalingWarps : kColumns;
  using Rounds = ExponentRounds<kScaledColumns>;
  static constexpr uint32_t kFactorsBytes = kRows * 4;
  static constexpr uint32_t kEntriesBytes = kColumns * kMxfp4Blocks;
  static constexpr uint32_t kScalingBytes = kToFp8 ? kEntriesBytes + 2 * kFactorsBytes : 0;
  static constexpr uint32_t kStagePitch = (kStageBytes + kScalingBytes + 1023) / 1024 * 1024;
  static constexpr uint32_t kBarriers = kStages * kStagePitch + 2 * kBoxBytes;
  static constexpr uint32_t kExponents =
      (kBarriers + (kReorders ? 3 : 2) * kStages * kBarrierBytes + 15) / 16 * 16;
  static constexpr uint32_t kTable = kExponents + kScalingWarps * 2 * Rounds::kBytes;

  static constexpr size_t kBytes = kTable + (kToFp8 ? (Fp8OfMxfp4::kBytes + 15) / 16 * 16 : 0);

  static constexpr int StagesOfTile(int k) {
    const int stages = (k + kStageColumns - 1) / kStageColumns;
    return kInRounds ? (stages + kStages - 1) / kStages * kStages : stages;
  }

  using Ring = RingPlace<kStages>;
  using Sums = float[kRows / 2];

  uint32_t base;

  __device__ uint32_t Weights(int stage) const {
    return base + static_cast<uint32_t>(stage) * kStagePitch;
  }
  __device__ uint32_t Rows(int stage) const { return Weights(stage) + kWeightsBytes; }
  __device__ uint32_t Scales(int stage) const { return Rows(stage) + kRowBoxes * kBoxBytes; }
  __device__ uint32_t Box(int warpgroup) const {
    return base + kStages * kStagePitch + static_cast<uint32_t>(warpgroup) * kBoxBytes;
  }
  __device__ uint32_t Full(int stage) const {
    return base + kBarriers + static_cast<uint32_t>(stage * kBarrierBytes);
  }
  __device__ uint32_t Empty(int stage) const { return Full(kStages + stage); }
  // The rows are in the order of converted weights.
  __device__ uint32_t Reordered(int stage) const { return Full(2 * kStages + stage); }
  // The entries of a stage of weights, a byte for each block of each row, and the factors of a
  // warpgroup's sums.
  __device__ uint32_t Entries(int stage) const { return Weights(stage) + kStageBytes; }
  __device__ uint32_t Factors(int stage, int warpgroup) const {
    return Entries(stage) + kEntriesBytes + static_cast<uint32_t>(warpgroup) * kFactorsBytes;
  }
  // A scaling warp brings exponents here.
  __device__ uint32_t ExponentsOf(int warp) const {
    return base + kExponents + static_cast<uint32_t>(warp) * 2 * Rounds::kBytes;
  }
  __device__ uint32_t Table() const { return base + kTable; }

  // By one thread, before all else.
  __device__ void InitBarriers() const {
    for (int i = 0; i < kStages; ++i) {
      InitBarrier(Full(i), 1);
      InitBarrier(Empty(i), kMultiplyingWarps);
      if constexpr (kReorders) InitBarrier(Reordered(i), kReorderingWarps + kScalingWarps);
    }
    PublishBarriers();
  }
};

// The row of the tile that element j of a thread's sums belongs to.
__device__ __forceinline__ int OwnSwappedRow(int j) { return j / 4 * 8 + Lane() % 4 * 2 + j % 2; }
// The first of the two rows of a stage of weights that the thread's sums belong to, and of which it
// converts a part; the other is 8 more.
__device__ __forceinline__ int OwnWeightRow() {
  return static_cast<int>(threadIdx.x) / 32 * 16 + Lane() / 4;
}

}  // namespace octet::device::internal

#endif  // OCTET_RUNTIME_PLATFORM_NVIDIA_GEMM_SWAPPED_SHARED_H_
