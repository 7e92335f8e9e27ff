// The order in which a block's waves read weights, and the ring through which each of them loads
// ahead.
//
// A strip is 16 rows of a matrix that are multiplied together, or twice as many: eight of gate and
// the eight of up that belong to them, or 16 of down. A block takes every gridDim.x-th strip of gate
// and up, then every gridDim.x-th group of as many columns of the output, of which it takes the
// strips of all of this rank's chosen experts. The waves of a block share a strip by pieces, some
// columns of all its rows:
//
//   gate, up   piece i goes to wave i mod waves
//   down       piece i goes to wave (i + pieces · expert) mod waves: a strip may have fewer pieces
//              than a block has waves. This depends on the expert and not on what else was chosen,
//              and so does the order in which a token's products are added.
// With more tokens pieces have fewer columns; those of one piece of fewer tokens go to one wave.
#ifndef OCTET_KERNELS_DECODE_STRIPS_H_
#define OCTET_KERNELS_DECODE_STRIPS_H_

#include <cstddef>
#include <cstdint>

#include "copy_ahead.h"
#include "device_ops.h"
#include "kernels/decode/kernels.h"
#include "kernels/decode/layout.h"
#include "kernels/decode/tiling.h"
#include "kernels/decode/weights.h"
#include "octet/fp4_format.h"

namespace octet::decode {

struct Strip {
  const char* base;
  int pitch;      // bytes from a row to the next
  int rows;       // up to those of a piece
  int row_bytes;  // of each
  // MXFP4 has an exponent for each 16 bytes of a row; the pitch leads to the next row's.
  const char* exponents;
  int exponent_pitch;
};

// Returns the offset of 16 bytes of a row in a piece. Rows that follow each other use other banks,
// so that lanes with the same 16 bytes of both do not meet.
inline constexpr int kChunkBytes = 16;
template <int piece_row_bytes>
__device__ __forceinline__ int PieceOffset(int row, int chunk) {
  return row * piece_row_bytes + (chunk ^ (row % 2 * 4)) * kChunkBytes;
}

enum class Phase { kFirst, kSecond };  // gate and up; down

// A block adds up a unit together: in kFirst a strip of an entry, in kSecond those of all entries,
// for as many columns of the output.
struct Unit {
  int entry;
  int end;    // behind the last entry
  int strip;  // of each entry
};

// The strips of this rank's chosen experts.
// W: the routed experts' weights. most: the most tokens of all ranks together.
template <typename W, int most>
class Strips {
 public:
  using Weights = W;
  static constexpr int kMost = most;
  static constexpr int kPieceRows = PieceRows(most, W::kBits);
  static constexpr int kPieceRowBytes = PieceRowBytes(most, W::kBits);
  static constexpr int kSecondRows =
      W::kFewerRows ? FewerRows(most, W::kBits) : SecondRows(most, W::kBits);  // of down
  static constexpr int kColumns = kPieceRows / 2;  // of a strip, between the products
  static constexpr int kTurn = PiecesOfTurn(most, W::kBits);

  __device__ __forceinline__ Strips(const DecodeParams& p, const Entry* entries, int num_entries)
      : p_(p),
        entries_(entries),
        num_routed_(num_entries),
        routed_strips_(StripsOf(p.routed.columns)) {
    const int strips = StripsOf(p.shared_experts.columns);
    shared_first_ = strips * p.peers.rank / p.layout.num_ranks;
    shared_end_ = strips * (p.peers.rank + 1) / p.layout.num_ranks;
  }

  // With the shared experts, of which each rank has a part of the columns between the products.
  __device__ __forceinline__ int num_entries() const {
    return num_routed_ + (has_shared() ? 1 : 0);
  }
  __device__ __forceinline__ int num_routed() const { return num_routed_; }
  __device__ __forceinline__ bool has_shared() const {
    return W::kSharedExperts && shared_end_ > shared_first_;
  }
  __device__ __forceinline__ bool IsShared(int entry) const {
    return W::kSharedExperts && entry == num_routed_;
  }

  // The first unit of the block in a phase, the next one, and whether there is such a unit.
  __device__ __forceinline__ Unit FirstOf(Phase phase) const {
    Unit unit = BeforeFirst(phase);
    Next(phase, unit);
    return unit;
  }
  __device__ __forceinline__ Unit BeforeFirst(Phase phase) const {
    return {0, phase == Phase::kFirst ? 0 : num_entries(),
            static_cast<int>(blockIdx.x) - static_cast<int>(gridDim.x)};
  }
  __device__ __forceinline__ void Next(Phase phase, Unit& unit) const {
    unit.strip += static_cast<int>(gridDim.x);
    if (phase == Phase::kSecond) return;
    while (unit.entry < num_routed_ && unit.strip >= routed_strips_) {
      unit.strip -= routed_strips_;
      ++unit.entry;
    }
    if (IsShared(unit.entry) && unit.strip >= shared_end_ - shared_first_) ++unit.entry;
    unit.end = unit.entry + 1;
  }
  __device__ __forceinline__ bool Has(Phase phase, const Unit& unit) const {
    const bool first = phase == Phase::kFirst;
    return unit.entry < num_entries() && (first || unit.strip < second_units());
  }

  // The first of a unit's columns between the products, in its expert. In kFirst.
  __device__ __forceinline__ int ColumnOf(const Unit& unit) const {
    return (unit.strip + (IsShared(unit.entry) ? shared_first_ : 0)) * kColumns;
  }
  __device__ __forceinline__ int second_units() const {
    return (p_.layout.hidden + kSecondRows - 1) / kSecondRows;
  }
  // The columns that an entry's product in a phase adds over. In kSecond, SharedColumn() is the
  // first of those of the shared experts.
  __device__ __forceinline__ int Columns(Phase phase, int entry) const {
    if (phase == Phase::kFirst) return p_.layout.hidden;
    if (!IsShared(entry)) return p_.routed.columns;
    if (kWhole) return (shared_end_ - shared_first_) * kColumns;
    return Smaller(shared_end_ * kColumns, p_.shared_experts.columns) - SharedColumn();
  }
  __device__ __forceinline__ int PiecesOf(Phase phase, int entry) const {
    const int row_bytes = RowBytes(IsShared(entry), Columns(phase, entry));
    return (row_bytes + kPieceRowBytes - 1) / kPieceRowBytes;
  }
  __device__ __forceinline__ int SharedColumn() const { return shared_first_ * kColumns; }
  __device__ __forceinline__ Strip Of(Phase phase, const Unit& unit, int entry) const {
    const bool first = phase == Phase::kFirst;
    const bool shared = IsShared(entry);
    const int row_bytes = RowBytes(shared, Columns(phase, entry));
    const Matrices& matrices = shared ? p_.shared_experts : p_.routed;
    const int expert = shared ? 0 : entries_[entry].expert;
    if (first) {
      const int row = 2 * ColumnOf(unit);
      Strip strip = {
          matrices.first + expert * matrices.first_bytes + int64_t{row} * row_bytes,
          row_bytes,
          kWhole ? kPieceRows : Smaller(2 * (matrices.columns - ColumnOf(unit)), kPieceRows),
          row_bytes,
          nullptr,
          0};
      SetExponents({matrices.first_scales, 2 * matrices.columns, p_.layout.hidden}, shared, expert,
                   row, strip);
      return strip;
    }
    const int row = unit.strip * kSecondRows;
    const int pitch = RowBytes(shared, matrices.columns);
    const int skipped = shared ? RowBytes(shared, SharedColumn()) : 0;
    Strip strip = {
        matrices.second + expert * matrices.second_bytes + int64_t{row} * pitch + skipped,
        pitch,
        Smaller(p_.layout.hidden - row, kSecondRows),
        row_bytes,
        nullptr,
        0};
    SetExponents({matrices.second_scales, p_.layout.hidden, matrices.columns}, shared, expert, row,
                 strip);
    return strip;
  }
  // The first piece of the caller's wave of such a strip, and the one behind `piece`.
  template <int waves>
  __device__ __forceinline__ int FirstPiece(Phase phase, int entry, int pieces) const {
    if (phase == Phase::kFirst) return device::Wave() * kTurn;
    const int turns = (pieces + kTurn - 1) / kTurn;
    const auto turn = static_cast<uint32_t>(IsShared(entry) ? 0 : entries_[entry].expert * turns);
    const auto wave = static_cast<uint32_t>(device::Wave());
    return static_cast<int>((wave + waves - turn % waves) % waves) * kTurn;
  }
  template <int waves>
  static __device__ __forceinline__ int NextPiece(int piece) {
    return (piece + 1) % kTurn != 0 ? piece + 1 : piece + 1 + (waves - 1) * kTurn;
  }

 private:
  // Whether an expert's last strip of gate and up has all rows: columns are multiples of eight.
  static constexpr bool kWhole = kColumns == kGatedRows;
  static __device__ __forceinline__ int StripsOf(int columns) {
    return kWhole ? columns / kColumns : (columns + kColumns - 1) / kColumns;
  }
  static __device__ __forceinline__ int RowBytes(bool shared, int columns) {
    constexpr int kPlainBits = 16;
    return columns * (shared ? kPlainBits : Weights::kBits) / 8;
  }
  // The scales of a matrix of each expert, and its shape.
  struct ScaleMatrix {
    const void* scales;
    int rows;
    int columns;
  };
  static __device__ __forceinline__ void SetExponents(const ScaleMatrix& of, bool shared,
                                                      int expert, int row, Strip& strip) {
    if constexpr (Weights::kOfBlocks) {
      if (shared) return;
      constexpr int kUnit = 16;  // bytes of which a row of exponents is a multiple
      strip.exponent_pitch = (of.columns / kMxBlock + kUnit - 1) / kUnit * kUnit;
      const int64_t rows = static_cast<int64_t>(expert) * of.rows + row;
      strip.exponents = static_cast<const char*>(of.scales) + rows * strip.exponent_pitch;
    }
  }

  const DecodeParams& p_;
  const Entry* const entries_;
  const int num_routed_;
  const int routed_strips_;  // of gate and up of an expert
  int shared_first_;         // of the strips of gate and up
  int shared_end_;
};

// Goes through the entries of a unit of kSecond of which a wave has pieces. All lanes look at an
// entry each, so that the wave need not go through the others.
template <typename StripsType, int waves>
class EntriesOfWave {
 public:
  __device__ __forceinline__ explicit EntriesOfWave(const StripsType& strips) : strips_(strips) {}

  // Returns the next one, or the number of entries. All lanes call it.
  __device__ __forceinline__ int Next() {
    while (with_pieces_ == 0) {
      const int entry = looked_at_ + device::Lane();
      if (looked_at_ >= strips_.num_entries()) return strips_.num_entries();
      bool has = entry < strips_.num_entries();
      if (has) {
        const int pieces = strips_.PiecesOf(Phase::kSecond, entry);
        has = strips_.template FirstPiece<waves>(Phase::kSecond, entry, pieces) < pieces;
      }
      with_pieces_ = device::Ballot(has);
      looked_at_ += device::kWaveSize;
    }
    const int lane = __ffsll(static_cast<long long>(with_pieces_)) - 1;
    with_pieces_ &= with_pieces_ - 1;
    return looked_at_ - device::kWaveSize + lane;
  }

 private:
  const StripsType& strips_;
  int looked_at_ = 0;
  uint64_t with_pieces_ = 0;
};

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
      if (done_) return false;
      if (++entry_ >= unit_.end && !NextUnit()) return false;
      pieces_ = strips_.PiecesOf(phase_, entry_);
      piece_ = strips_.template FirstPiece<waves>(phase_, entry_, pieces_);
    } while (piece_ >= pieces_);
    strip_ = strips_.Of(phase_, unit_, entry_);
    return true;
  }
  __device__ __forceinline__ const Strip& strip() const { return strip_; }
  __device__ __forceinline__ int piece() const { return piece_; }
  // That of the piece.
  __device__ __forceinline__ Phase phase() const { return phase_; }

 private:
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

#endif  // OCTET_KERNELS_DECODE_STRIPS_H_
