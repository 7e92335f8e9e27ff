// The order in which a block's waves read weights; ring.h loads them.
//
// A strip is 16 rows of a matrix that are multiplied together, or twice as many: eight of gate and
// the eight of up that belong to them, or 16 of down. A block takes every gridDim.x-th strip of
// gate and up, then every gridDim.x-th group of as many columns of the output, of which it takes
// the strips of all of this rank's chosen experts. The waves of a block share a strip by pieces,
// some columns of all its rows:
//
//   gate, up   piece i goes to wave i mod waves
//   down       piece i goes to wave (i + pieces · expert) mod waves: a strip may have fewer pieces
//              than a block has waves. This depends on the expert and not on what else was chosen,
//              and so does the order in which a token's products are added. For one token other
//              waves may multiply it (one_token.h).
// With more tokens pieces have fewer columns; those of one piece of fewer tokens go to one wave.
#ifndef OCTET_KERNELS_DECODE_STRIPS_H_
#define OCTET_KERNELS_DECODE_STRIPS_H_

#include <cstddef>
#include <cstdint>

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
  // The first piece of a wave of such a strip, and the one behind `piece`.
  template <int waves>
  __device__ __forceinline__ int FirstPiece(Phase phase, int entry, int pieces, int wave) const {
    if (phase == Phase::kFirst) return wave * kTurn;
    const int turns = (pieces + kTurn - 1) / kTurn;
    const auto turn = static_cast<uint32_t>(IsShared(entry) ? 0 : entries_[entry].expert * turns);
    return static_cast<int>((static_cast<uint32_t>(wave) + waves - turn % waves) % waves) * kTurn;
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
        has = strips_.template FirstPiece<waves>(Phase::kSecond, entry, pieces, device::Wave()) <
              pieces;
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

}  // namespace octet::decode

#endif  // OCTET_KERNELS_DECODE_STRIPS_H_
