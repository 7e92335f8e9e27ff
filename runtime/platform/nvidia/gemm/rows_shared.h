// The shared memory of a block that multiplies tiles of many rows:
//
//   stages     4 x (128 rows, then the rows of weights that are not MXFP4), 128 bytes of K of each
//   codes      6 x half of the rows of MXFP4 weights, 64 bytes of each
//   converted  4 x the same as FP8
//   boxes      of output, for each of the two multiplying warpgroups
//   scales     of two rounds of stages; FP8 rows alone
//   factors    4 x 16 bytes for each 64 columns, of which the first are a float: what the converted
//              weights are to be multiplied by; MXFP4 alone
//   exponents  of two rounds of stages, and the table (Fp8OfMxfp4); MXFP4 alone
//   barriers   full and empty of each stage; of each place for a unit; of each warpgroup's output
//   units      two places for the next ones (rows_units.h)
#ifndef OCTET_RUNTIME_PLATFORM_NVIDIA_GEMM_ROWS_SHARED_H_
#define OCTET_RUNTIME_PLATFORM_NVIDIA_GEMM_ROWS_SHARED_H_

#include <cstddef>
#include <cstdint>

#include "gemm/mxfp4_fp8.h"
#include "gemm/pipeline.h"
#include "gemm/rows_scales.h"
#include "gemm/rows_units.h"
#include "gemm/tensor_map.h"
#include "runtime/platform/gemm_call.h"

namespace octet::device::internal {

template <int columns, GemmElement element>
struct RowsShared {
  static constexpr int kRows = 2 * kRowsPerWarpgroup;
  static constexpr int kStages = 4;
  static constexpr bool kScales = RowElementOf(element) == GemmElement::kFp8;
  // Weights that become FP8 in a place of their own, by a warpgroup.
  static constexpr bool kConverts = HasMxfp4Weights(element);
  static_assert(!kScales || kStages == kScaleStages);
  static constexpr uint32_t kRowsBytes = kRows * kStageRowBytes;
  static constexpr int kWeightRowBytes = kConverts ? kMxfp4RowBytes : kStageRowBytes;
  static constexpr uint32_t kWeightsBytes = columns * kWeightRowBytes;
  static constexpr uint32_t kStageBytes = kRowsBytes + (kConverts ? 0 : kWeightsBytes);
  static constexpr int kCodesOfTurn = kConverts ? 3 : 0;  // places
  static constexpr uint32_t kCodesBytes = kWeightsBytes / 2;
  static constexpr int kExponentRounds = 2;
  static constexpr uint32_t kConvertedBytes = kConverts ? columns * kStageRowBytes : 0;
  static constexpr int kConvertingWarps = kConverts ? 4 : 0;
  static constexpr int kWarpsOfStage = 2;  // of these, which take turns
  static constexpr int kTurns = 2;
  static constexpr int kCodePlaces = kTurns * kCodesOfTurn;
  static constexpr uint32_t kFactorsBytes = kConverts ? columns / kMxfp4Fp8Columns * 16 : 0;
  static constexpr GemmElement kOutElement = OutElementOf(element);
  static constexpr int kBoxColumns = kBoxRowBytes / BytesOf(kOutElement);
  // A warpgroup has boxes for all of a tile's output, or a part of it if there is no more room,
  // which then a free warp stores, or two in turn, which the warpgroup stores.
  static constexpr bool kHandsOver = kScales;
  static constexpr uint32_t kBoxBytes = kRowsPerWarpgroup * kStageRowBytes;
  static constexpr int kBoxesInTurn = 2;
  static constexpr uint32_t kBoxesBytes =
      (kConverts ? 1 : (kHandsOver ? columns / kBoxColumns : kBoxesInTurn)) * kBoxBytes;
  // Boxes of 64 or, as gated tiles of 192 columns have 96, 32 columns.
  static constexpr int OutRowBytes(bool gated) {
    return kHandsOver && (gated || kConverts) ? kBoxRowBytes / 2 : kBoxRowBytes;
  }
  // Room for the scales of a gated product, which has more; of rows alone where weights convert.
  static constexpr uint32_t kScalesBytes =
      !kScales ? 0
               : (kConverts ? StageScalesOf<columns, false>::kColumnsAt
                            : StageScalesOf<columns, true>::kBytes);
  static constexpr int kMultiplyingWarps = 8;
  static constexpr int kScalingWarps = kScales ? 1 : 0;
  static constexpr int kStoringWarps = kHandsOver ? 1 : 0;

 private:
  static constexpr uint32_t kCodesAt = kStages * kStageBytes;
  static constexpr uint32_t kConvertedAt = kCodesAt + kCodePlaces * kCodesBytes;
  static constexpr uint32_t kBoxesAt = kConvertedAt + kStages * kConvertedBytes;
  static constexpr uint32_t kScalesAt = kBoxesAt + 2 * kBoxesBytes;
  static constexpr uint32_t kFactorsAt = kScalesAt + 2 * kScalesBytes;
  static constexpr uint32_t kExponentsAt = kFactorsAt + kStages * kFactorsBytes;
  static constexpr uint32_t kTableAt =
      kExponentsAt + (kConverts ? kExponentRounds * ExponentRounds<columns>::kBytes : 0);
  static constexpr uint32_t kBarriersAt =
      kTableAt + (kConverts ? (Fp8OfMxfp4::kBytes + 15) / 16 * 16 : 0);
  static constexpr int kUnitBarriers = 2 * kStages;
  static constexpr int kOutBarriers = kUnitBarriers + 2 * kUnitSlots;
  static constexpr int kShrunkBarrier = kOutBarriers + 4;
  static constexpr int kScalesBarriers = kShrunkBarrier + 1;
  static constexpr int kConvertedBarriers = kScalesBarriers + kStages;
  static constexpr int kCodesBarriers = kConvertedBarriers + 2 * kStages;
  static constexpr int kExponentsBarriers = kCodesBarriers + 2 * kCodePlaces;
  static constexpr int kBarriers =
      kConverts ? kExponentsBarriers + 2 * kExponentRounds : kScalesBarriers;
  static constexpr uint32_t kUnitsAt = (kBarriersAt + kBarriers * kBarrierBytes + 15) / 16 * 16;

 public:
  static constexpr size_t kBytes = kUnitsAt + kUnitSlots * kToldRoom;

  uint32_t base;
  uint32_t rank;  // of the block in its cluster

  __device__ uint32_t Rows(int stage) const {
    return base + static_cast<uint32_t>(stage) * kStageBytes;
  }
  __device__ uint32_t Weights(int stage) const { return Rows(stage) + kRowsBytes; }
  // Those of half of a tile's columns: place % kCodesOfTurn of a turn.
  __device__ uint32_t Codes(int place) const {
    return base + kCodesAt + static_cast<uint32_t>(place) * kCodesBytes;
  }
  __device__ uint32_t Converted(int stage) const {
    return base + kConvertedAt + static_cast<uint32_t>(stage) * kConvertedBytes;
  }
  __device__ uint32_t Factors(int stage) const {
    return base + kFactorsAt + static_cast<uint32_t>(stage) * kFactorsBytes;
  }
  __device__ uint32_t Exponents(int round) const {
    return base + kExponentsAt + static_cast<uint32_t>(round) * ExponentRounds<columns>::kBytes;
  }
  __device__ uint32_t Table() const { return base + kTableAt; }
  __device__ uint32_t ConvertedFull(int stage) const { return Barrier(kConvertedBarriers + stage); }
  __device__ uint32_t ConvertedEmpty(int stage) const {
    return Barrier(kConvertedBarriers + kStages + stage);
  }
  __device__ uint32_t CodesFull(int place) const { return Barrier(kCodesBarriers + place); }
  __device__ uint32_t CodesEmpty(int place) const {
    return Barrier(kCodesBarriers + kCodePlaces + place);
  }
  __device__ uint32_t ExponentsFull(int round) const { return Barrier(kExponentsBarriers + round); }
  __device__ uint32_t ExponentsEmpty(int round) const {
    return Barrier(kExponentsBarriers + kExponentRounds + round);
  }
  __device__ uint32_t Box(int warpgroup, int box) const {
    return base + kBoxesAt + static_cast<uint32_t>(warpgroup) * kBoxesBytes +
           static_cast<uint32_t>(box) * kBoxBytes;
  }
  // Returns the place of a round's scales: if scales come in rounds, of one with this parity.
  __device__ uint32_t Scales(uint32_t parity) const {
    return base + kScalesAt + parity * kScalesBytes;
  }
  __device__ uint32_t Full(int stage) const { return Barrier(stage); }
  __device__ uint32_t Empty(int stage) const { return Barrier(kStages + stage); }
  // The scales of a stage, or of a round in its first stage, are there. Where weights are
  // converted, nobody waits for both rows and scales.
  __device__ uint32_t ScalesFull(int stage) const {
    return kConverts ? Barrier(kScalesBarriers + stage) : Full(stage);
  }
  __device__ uint32_t UnitFull(int slot) const { return Barrier(kUnitBarriers + slot); }
  __device__ uint32_t UnitEmpty(int slot) const {
    return Barrier(kUnitBarriers + kUnitSlots + slot);
  }
  // A warpgroup's output is in its boxes, and they are free again.
  __device__ uint32_t OutFull(int warpgroup) const { return Barrier(kOutBarriers + warpgroup); }
  __device__ uint32_t OutEmpty(int warpgroup) const {
    return Barrier(kOutBarriers + 2 + warpgroup);
  }
  // The multiplying warps have handed their registers back.
  __device__ uint32_t Shrunk() const { return Barrier(kShrunkBarrier); }
  __device__ uint32_t Unit(int slot) const {
    return base + kUnitsAt + static_cast<uint32_t>(slot) * kToldRoom;
  }

  // By one thread, before all else.
  __device__ void InitBarriers(bool scales_in_rounds) const {
    constexpr int kScalingLanes = kScalingWarps * 32;
    for (int i = 0; i < kStages; ++i) {
      const bool with_scales = !kConverts && (i == 0 || !scales_in_rounds);
      InitBarrier(Full(i), 1 + (with_scales ? kScalingLanes : 0));
      InitBarrier(Empty(i), 2 * kMultiplyingWarps);  // of both blocks
    }
    if constexpr (kConverts) InitConverting();
    for (int i = 0; i < kUnitSlots; ++i) {
      InitBarrier(UnitFull(i), 1);
      // And block 1's loading thread.
      InitBarrier(UnitEmpty(i), 2 * (kMultiplyingWarps + kScalingWarps + kStoringWarps +
                                     kConvertingWarps + (kConverts ? 1 : 0)) +
                                    1);
    }
    for (int i = 0; i < 2; ++i) {
      InitBarrier(OutFull(i), kMultiplyingWarps / 2);
      InitBarrier(OutEmpty(i), 1);
    }
    InitBarrier(Shrunk(), kMultiplyingWarps);
    PublishBarriers();
  }

 private:
  __device__ void InitConverting() const {
    for (int i = 0; i < kStages; ++i) {
      InitBarrier(ScalesFull(i), kScalingWarps * 32);
      InitBarrier(ConvertedFull(i), kWarpsOfStage);
      InitBarrier(ConvertedEmpty(i), 2 * kMultiplyingWarps);  // of both blocks
    }
    for (int i = 0; i < kCodePlaces; ++i) {
      InitBarrier(CodesFull(i), 1);
      InitBarrier(CodesEmpty(i), kWarpsOfStage);
    }
    for (int i = 0; i < kExponentRounds; ++i) {
      InitBarrier(ExponentsFull(i), 32);
      InitBarrier(ExponentsEmpty(i), kConvertingWarps);
    }
  }
  __device__ uint32_t Barrier(int i) const {
    return base + kBarriersAt + static_cast<uint32_t>(i * kBarrierBytes);
  }
};

}  // namespace octet::device::internal

#endif  // OCTET_RUNTIME_PLATFORM_NVIDIA_GEMM_ROWS_SHARED_H_
