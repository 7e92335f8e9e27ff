// A wave's walk over its pieces, and the ring through which it loads them ahead.
#ifndef OCTET_KERNELS_DECODE_RING_H_
#define OCTET_KERNELS_DECODE_RING_H_

#include <cstdint>

#include "copy_ahead.h"
#include "device_ops.h"
#include "kernels/decode/strips.h"
#include "kernels/decode/tiling.h"

namespace octet::decode {

// Goes through the pieces of one wave, in the order in which it multiplies them.
template <typename StripsType, int waves>
class PieceWalk {
 public:
  using Weights = StripsType::Weights;
  static constexpr int kMost = StripsType::kMost;
  static constexpr int kPieceRows = StripsType::kPieceRows;
  static constexpr int kSecondRows = StripsType::kSecondRows;
  static constexpr int kPieceRowBytes = StripsType::kPieceRowBytes;

  // Before the first piece.
  __device__ __forceinline__ explicit PieceWalk(const StripsType& strips)
      : strips_(strips), unit_(strips.BeforeFirst(Phase::kFirst)) {}

  // Goes on to the next piece, if there is one.
  __device__ __forceinline__ bool Next() {
    piece_ = StripsType::template NextPiece<waves>(piece_);
    if (piece_ < pieces_) return true;
    do {
      if (done_ || !NextEntry()) return false;
      pieces_ = strips_.PiecesOf(phase_, entry_);
      piece_ = strips_.template FirstPiece<waves>(phase_, entry_, pieces_, device::Wave());
    } while (piece_ >= pieces_);
    strip_ = strips_.Of(phase_, unit_, entry_);
    return true;
  }
  __device__ __forceinline__ const Strip& strip() const { return strip_; }
  __device__ __forceinline__ int piece() const { return piece_; }
  // That of the piece.
  __device__ __forceinline__ Phase phase() const { return phase_; }

 private:
  __device__ __forceinline__ bool NextEntry() {
    ++entry_;
    return entry_ < unit_.end || NextUnit();
  }
  __device__ __forceinline__ bool NextUnit() {
    strips_.Next(phase_, unit_);
    while (!strips_.Has(phase_, unit_)) {
      done_ = phase_ == Phase::kSecond;
      if (done_) return false;
      phase_ = Phase::kSecond;
      unit_ = strips_.FirstOf(phase_);
    }
    entry_ = unit_.entry;
    return true;
  }

  const StripsType& strips_;
  Phase phase_ = Phase::kFirst;
  Unit unit_;
  bool done_ = false;
  int entry_ = 0;
  int piece_ = 0;
  int pieces_ = 0;
  Strip strip_ = {};
};

// A wave's ring of pieces, which are loaded while the wave multiplies the ones before: ahead in the
// walk, so across the barriers of the grid.
//
// A call meets all of its code cold, and instructions that have to be fetched cost as much time as
// weights. So Take is called in one place of the kernel, and no other code loads pieces.
template <typename Walk>
class PieceRing {
 public:
  static constexpr int kSlots = SlotsFor(Walk::kMost, Walk::Weights::kBits);
  static constexpr int kPieceRows = Walk::kPieceRows;
  static constexpr int kPieceBytes = kPieceRows * Walk::kPieceRowBytes;
  static constexpr int kSlotBytes = SlotBytesFor(Walk::kMost, Walk::Weights::kBits);
  static constexpr int kBytes = kSlots * kSlotBytes;

  // `memory`: the ring of this wave.
  __device__ __forceinline__ PieceRing(char* memory, const Walk& walk)
      : memory_(memory + LaneOffset()), walk_(walk) {}

  // Returns the next piece of the walk, which stays until the next call. All lanes call it.
  __device__ __forceinline__ const char* Take() {
    device::SyncWave();  // nobody reads the piece before
#pragma unroll 1
    do {
      LoadNext();
      ++ahead_;
    } while (ahead_ < (walk_.phase() == Phase::kFirst ? kFirstAhead : kSlots));
    if (ahead_ == kSlots) {
      copies_.template Wait<kSlots - 1>();
    } else {
      copies_.template Wait<kFirstAhead - 1>();
    }
    --ahead_;
    device::SyncWave();  // the other lanes' copies are there
    const char* const piece = memory_ - LaneOffset() + taken_ * kSlotBytes;
    taken_ = taken_ + 1 == kSlots ? 0 : taken_ + 1;
    return piece;
  }

 private:
  // So many pieces of gate and up are loaded at once, with the one that is taken next: what all
  // compute units ask for together comes in any order, so that with all slots the first unit would
  // wait for most of it. The slots of down fill while the block waits for the others.
  static constexpr int kFirstAhead = 2;
  static constexpr int kSecondRows = Walk::kSecondRows;
  static constexpr int kPieceRowBytes = Walk::kPieceRowBytes;
  static constexpr int kRowChunks = kPieceRowBytes / kChunkBytes;
  static constexpr int kMostCopies = kPieceRows * kRowChunks / device::kMinWaveSize;

  __device__ __forceinline__ void LoadNext() {
    if (walk_.Next()) Load(walk_.strip(), walk_.piece(), memory_ + loaded_ * kSlotBytes);
    copies_.Commit();
    loaded_ = loaded_ + 1 == kSlots ? 0 : loaded_ + 1;
  }
  // A lane copies the same 16 bytes of several rows.
  static __device__ __forceinline__ int LaneRow() { return device::Lane() / kRowChunks; }
  static __device__ __forceinline__ int LaneByte() {
    return device::Lane() % kRowChunks * kChunkBytes;
  }
  static __device__ __forceinline__ int LaneOffset() {
    return PieceOffset<kPieceRowBytes>(LaneRow(), device::Lane() % kRowChunks);
  }
  __device__ __forceinline__ void Load(const Strip& strip, int piece, char* to) {
    if (strip.rows == kPieceRows) {
      LoadRows<kPieceRows>(strip, piece, to);
    } else if (kSecondRows < kPieceRows && strip.rows == kSecondRows) {
      LoadRows<kSecondRows>(strip, piece, to);
    } else {
      LoadRows<0>(strip, piece, to);
    }
    if constexpr (Walk::Weights::kOfBlocks) LoadExponents(strip, piece, to);
  }
  // 16 exponents of a row by each lane: those of two pieces, since copies of fewer bytes go through
  // the cache that keeps tokens. They are all there for a row's last piece, too.
  __device__ __forceinline__ void LoadExponents(const Strip& strip, int piece, char* to) {
    static_assert(kRowChunks == kChunkBytes / 2 && kPieceRows <= device::kMinWaveSize);
    const int row = device::Lane();
    if (strip.exponents == nullptr || row >= strip.rows) return;
    const char* const from = strip.exponents + row * strip.exponent_pitch + piece / 2 * kChunkBytes;
    copies_.Start(reinterpret_cast<device::Vec16*>(to - LaneOffset() + kPieceBytes) + row,
                  reinterpret_cast<const device::Vec16*>(from), true);
  }
  // of_rows: the strip's rows; 0: as many as it says.
  template <int of_rows>
  __device__ __forceinline__ void LoadRows(const Strip& strip, int piece, char* to) {
    static_assert(device::kMinWaveSize / kRowChunks % 2 == 0, "rows of a lane are spread alike");
    constexpr bool kAllRows = of_rows > 0;
    constexpr int kRows = kAllRows ? of_rows : kPieceRows;
    const int rows = device::kWaveSize / kRowChunks;  // from a copy of a lane to its next
    const int offset = piece * kPieceRowBytes + LaneByte();
    const bool in_row = offset < strip.row_bytes;
    // A copy that is not present reads nothing, but its address must be valid.
    const char* from = in_row ? strip.base + LaneRow() * strip.pitch + offset : strip.base;
    const int step = in_row ? rows * strip.pitch : 0;
#pragma unroll
    for (int i = 0; i < kMostCopies; ++i) {
      const int row = i * rows + LaneRow();
      if (row >= kRows || (!kAllRows && i * rows >= kMmaRows && row >= strip.rows)) break;
      const bool present = in_row && (kAllRows || row < strip.rows);
      copies_.Start(reinterpret_cast<device::Vec16*>(to + i * rows * kPieceRowBytes),
                    reinterpret_cast<const device::Vec16*>(kAllRows || present ? from : strip.base),
                    present);
      from += step;
    }
  }

  char* const memory_;
  Walk walk_;
  int ahead_ = 0;  // pieces that are loaded or being loaded
  int loaded_ = 0;
  int taken_ = 0;
  device::CopyAhead<kSlots + 1, kMostCopies + 1> copies_;
};

}  // namespace octet::decode

#endif  // OCTET_KERNELS_DECODE_RING_H_
