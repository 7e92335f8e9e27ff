// The order in which a block's waves read weights, and the ring through which each of them loads
// ahead.
//
// A strip is 16 rows of a matrix that are multiplied together: eight of gate and the eight of up
// that belong to them, or 16 of down. A block takes every gridDim.x-th strip of gate and up, then
// every gridDim.x-th group of 16 columns of the output, of which it takes the strips of all of this
// rank's chosen experts. The waves of a block share a strip by pieces of 128 bytes of each row:
//
//   gate, up   piece i goes to wave i mod waves
//   down       piece i goes to wave (i + pieces · expert) mod waves: a strip may have fewer pieces
//              than a block has waves. This depends on the expert and not on what else was chosen,
//              and so does the order in which a token's products are added.
#ifndef OCTET_KERNELS_DECODE_STRIPS_H_
#define OCTET_KERNELS_DECODE_STRIPS_H_

#include <cstddef>
#include <cstdint>

#include "copy_ahead.h"
#include "device_ops.h"
#include "kernels/decode/kernels.h"
#include "kernels/decode/layout.h"

namespace octet::decode {

struct Strip {
  const char* base;
  int pitch;      // bytes from a row to the next
  int rows;       // up to kPieceRows
  int row_bytes;  // of each

  __device__ __forceinline__ int pieces() const {
    return (row_bytes + kPieceRowBytes - 1) / kPieceRowBytes;
  }
};

// Returns the offset of 16 bytes of a row in a piece. Rows that follow each other use other banks,
// so that lanes with the same 16 bytes of both do not meet.
inline constexpr int kChunkBytes = 16;
__device__ __forceinline__ int PieceOffset(int row, int chunk) {
  return row * kPieceRowBytes + (chunk ^ (row % 2 * 4)) * kChunkBytes;
}

// The strips of this rank's chosen experts.
template <int routed_bytes>  // of an element of the routed experts' weights
class Strips {
 public:
  static constexpr int kPlainBytes = 2;

  __device__ __forceinline__ Strips(const DecodeParams& p, const Entry* entries, int num_entries)
      : p_(p),
        entries_(entries),
        num_routed_(num_entries),
        routed_strips_(p.routed.columns / kGatedRows) {
    const int strips = p.shared_experts.columns / kGatedRows;
    shared_first_ = strips * p.peers.rank / p.layout.num_ranks;
    shared_end_ = strips * (p.peers.rank + 1) / p.layout.num_ranks;
  }

  // With the shared experts, of which each rank has a part of the columns between the products.
  __device__ __forceinline__ int num_entries() const {
    return num_routed_ + (has_shared() ? 1 : 0);
  }
  __device__ __forceinline__ int num_routed() const { return num_routed_; }
  __device__ __forceinline__ bool has_shared() const { return shared_end_ > shared_first_; }
  __device__ __forceinline__ bool IsShared(int entry) const { return entry == num_routed_; }

  // Gate and up: the strips of all entries in a row, of which a block takes some.
  struct FirstUnit {
    int entry;
    int strip;  // of the entry
  };
  __device__ __forceinline__ FirstUnit FirstOfBlock() const {
    FirstUnit unit = {0, static_cast<int>(blockIdx.x)};
    Normalize(unit);
    return unit;
  }
  __device__ __forceinline__ void Next(FirstUnit& unit) const {
    unit.strip += static_cast<int>(gridDim.x);
    Normalize(unit);
  }
  __device__ __forceinline__ bool Has(const FirstUnit& unit) const {
    return unit.entry < num_entries();
  }
  // The first of the unit's columns between the products, in its expert.
  __device__ __forceinline__ int ColumnOf(const FirstUnit& unit) const {
    return (unit.strip + (IsShared(unit.entry) ? shared_first_ : 0)) * kGatedRows;
  }
  __device__ __forceinline__ Strip First(const FirstUnit& unit) const {
    const bool shared = IsShared(unit.entry);
    const int row_bytes = p_.layout.hidden * (shared ? kPlainBytes : routed_bytes);
    const int64_t rows = shared ? 0 : int64_t{2} * entries_[unit.entry].expert * p_.routed.columns;
    const char* const first = shared ? p_.shared_experts.first : p_.routed.first;
    return {first + (rows + 2 * ColumnOf(unit)) * row_bytes, row_bytes, kPieceRows, row_bytes};
  }

  // Down.
  __device__ __forceinline__ int second_units() const {
    return (p_.layout.hidden + kPieceRows - 1) / kPieceRows;
  }
  // The columns between the products of an entry, of which SharedColumn() is the first of the
  // shared experts.
  __device__ __forceinline__ int Columns(int entry) const {
    return IsShared(entry) ? (shared_end_ - shared_first_) * kGatedRows : p_.routed.columns;
  }
  __device__ __forceinline__ int SharedColumn() const { return shared_first_ * kGatedRows; }
  __device__ __forceinline__ Strip Second(int unit, int entry) const {
    const int rows = Smaller(p_.layout.hidden - unit * kPieceRows, kPieceRows);
    if (IsShared(entry)) {
      const int pitch = p_.shared_experts.columns * kPlainBytes;
      return {p_.shared_experts.second + static_cast<int64_t>(unit) * kPieceRows * pitch +
                  SharedColumn() * kPlainBytes,
              pitch, rows, Columns(entry) * kPlainBytes};
    }
    const int pitch = p_.routed.columns * routed_bytes;
    const int64_t row =
        int64_t{entries_[entry].expert} * p_.layout.hidden + int64_t{unit} * kPieceRows;
    return {p_.routed.second + row * pitch, pitch, rows, pitch};
  }
  // The first piece of the caller's wave of such a strip.
  template <int waves>
  __device__ __forceinline__ int FirstPiece(int entry, int pieces) const {
    const int turn = IsShared(entry) ? 0 : entries_[entry].expert * pieces % waves;
    return (device::Wave() + waves - turn) % waves;
  }

 private:
  __device__ __forceinline__ void Normalize(FirstUnit& unit) const {
    while (unit.entry < num_routed_ && unit.strip >= routed_strips_) {
      unit.strip -= routed_strips_;
      ++unit.entry;
    }
    if (unit.entry == num_routed_ && unit.strip >= shared_end_ - shared_first_) ++unit.entry;
  }

  const DecodeParams& p_;
  const Entry* const entries_;
  const int num_routed_;
  const int routed_strips_;  // of gate and up of an expert
  int shared_first_;         // of the strips of gate and up
  int shared_end_;
};

// Goes through a wave's pieces of the routed entries of a strip of down.
template <typename StripsType, int waves>
class EntryWalk {
 public:
  // `pieces`: of an entry.
  __device__ __forceinline__ EntryWalk(const StripsType& strips, int pieces)
      : strips_(strips), pieces_(pieces) {
    Begin();
    Skip();
  }
  __device__ __forceinline__ bool done() const { return entry_ == strips_.num_routed(); }
  __device__ __forceinline__ int entry() const { return entry_; }
  __device__ __forceinline__ int piece() const { return piece_; }
  __device__ __forceinline__ void Next() {
    piece_ += waves;
    Skip();
  }

 private:
  __device__ __forceinline__ void Begin() {
    if (!done()) piece_ = strips_.template FirstPiece<waves>(entry_, pieces_);
  }
  __device__ __forceinline__ void Skip() {
    while (!done() && piece_ >= pieces_) {
      ++entry_;
      Begin();
    }
  }

  const StripsType& strips_;
  const int pieces_;
  int entry_ = 0;
  int piece_ = 0;
};

// Goes through the pieces of one wave, in the order in which it multiplies them.
template <typename StripsType, int waves>
class PieceWalk {
 public:
  __device__ __forceinline__ explicit PieceWalk(const StripsType& strips)
      : strips_(strips), first_(strips.FirstOfBlock()) {
    BeginFirst();
    SkipStrips();
  }

  __device__ __forceinline__ bool done() const { return phase_ == kDone; }
  __device__ __forceinline__ const Strip& strip() const { return strip_; }
  __device__ __forceinline__ int piece() const { return piece_; }
  __device__ __forceinline__ void Next() {
    piece_ += waves;
    SkipStrips();
  }

 private:
  enum Phase { kFirst, kSecond, kDone };

  // Goes on to a strip with a piece for this wave.
  __device__ __forceinline__ void SkipStrips() {
    while (piece_ >= strip_.pieces() && phase_ != kDone) {
      if (phase_ == kFirst) {
        strips_.Next(first_);
        BeginFirst();
      } else if (++entry_ < strips_.num_entries()) {
        BeginSecond();
      } else {
        second_ += static_cast<int>(gridDim.x);
        BeginSecondUnit();
      }
    }
  }
  __device__ __forceinline__ void BeginFirst() {
    if (strips_.Has(first_)) {
      strip_ = strips_.First(first_);
      piece_ = device::Wave();
      return;
    }
    phase_ = strips_.num_entries() > 0 ? kSecond : kDone;
    second_ = static_cast<int>(blockIdx.x);
    BeginSecondUnit();
  }
  __device__ __forceinline__ void BeginSecondUnit() {
    entry_ = 0;
    if (phase_ == kSecond && second_ < strips_.second_units()) return BeginSecond();
    phase_ = kDone;
  }
  __device__ __forceinline__ void BeginSecond() {
    strip_ = strips_.Second(second_, entry_);
    piece_ = strips_.template FirstPiece<waves>(entry_, strip_.pieces());
  }

  const StripsType& strips_;
  Phase phase_ = kFirst;
  StripsType::FirstUnit first_;
  int second_ = 0;  // the group of columns of the output
  int entry_ = 0;
  int piece_ = 0;
  Strip strip_ = {};
};

// A wave's ring of pieces: all but one of its slots are being loaded while the wave multiplies what
// is in that one. Ahead of the multiplication in the walk, so across the barriers of the grid.
template <typename Walk, int slots>
class PieceRing {
 public:
  static_assert(slots >= 2);

  // `memory`: the ring of this wave, [slots] pieces.
  __device__ __forceinline__ PieceRing(char* memory, const Walk& walk)
      : memory_(memory + LaneOffset()), walk_(walk) {
#pragma unroll 1
    for (int i = 0; i < slots - 1; ++i) LoadNext();
  }

  // Returns the next piece of the walk, which stays until the next call. All lanes call it.
  __device__ __forceinline__ const char* Take() {
    copies_.template Wait<slots - 2>();
    device::SyncWave();  // the other lanes' copies are there, and nobody reads the piece before
    const char* const piece = memory_ - LaneOffset() + taken_ * kPieceBytes;
    taken_ = taken_ + 1 == slots ? 0 : taken_ + 1;
    LoadNext();
    return piece;
  }

 private:
  static constexpr int kRowChunks = kPieceRowBytes / kChunkBytes;
  static constexpr int kMostCopies = kPieceRows * kRowChunks / device::kMinWaveSize;

  __device__ __forceinline__ void LoadNext() {
    if (!walk_.done()) {
      Load(walk_.strip(), walk_.piece(), memory_ + loaded_ * kPieceBytes);
      walk_.Next();
    }
    copies_.Commit();
    loaded_ = loaded_ + 1 == slots ? 0 : loaded_ + 1;
  }
  // A lane copies the same 16 bytes of several rows.
  static __device__ __forceinline__ int LaneRow() { return device::Lane() / kRowChunks; }
  static __device__ __forceinline__ int LaneByte() {
    return device::Lane() % kRowChunks * kChunkBytes;
  }
  static __device__ __forceinline__ int LaneOffset() {
    return PieceOffset(LaneRow(), device::Lane() % kRowChunks);
  }
  __device__ __forceinline__ void Load(const Strip& strip, int piece, char* to) {
    static_assert(device::kMinWaveSize / kRowChunks % 2 == 0, "rows of a lane are spread alike");
    const int rows = device::kWaveSize / kRowChunks;  // from a copy of a lane to its next
    const int offset = piece * kPieceRowBytes + LaneByte();
    const bool in_row = offset < strip.row_bytes;
    const char* from = strip.base + LaneRow() * strip.pitch + offset;
#pragma unroll
    for (int i = 0; i < kMostCopies; ++i) {
      const int row = i * rows + LaneRow();
      if (row >= kPieceRows) break;
      const bool present = in_row && row < strip.rows;
      copies_.Start(reinterpret_cast<device::Vec16*>(to + i * rows * kPieceRowBytes),
                    reinterpret_cast<const device::Vec16*>(present ? from : strip.base), present);
      from += rows * strip.pitch;
    }
  }

  char* const memory_;
  Walk walk_;
  int loaded_ = 0;
  int taken_ = 0;
  device::CopyAhead<slots, kMostCopies> copies_;
};

}  // namespace octet::decode

#endif  // OCTET_KERNELS_DECODE_STRIPS_H_
