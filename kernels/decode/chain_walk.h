// The pieces of the products for one token, in the order in which a wave multiplies them
// (one_token.h).
#ifndef OCTET_KERNELS_DECODE_CHAIN_WALK_H_
#define OCTET_KERNELS_DECODE_CHAIN_WALK_H_

#include <cstdint>

#include "box_copy.h"
#include "device_ops.h"
#include "kernels/decode/kernels.h"
#include "kernels/decode/layout.h"
#include "kernels/decode/strips.h"
#include "kernels/decode/tiling.h"

namespace octet::decode {

// One of the two products of the routed experts: what Matrices says.
struct Product {
  const void* scales;
  const float* bias;
  int rows;         // of an expert
  int columns;      // over which it adds
  int pitch;        // bytes of a row
  int scale_rows;   // of an expert
  int scale_pitch;  // scales of a row
};

// A piece as it is copied: so many rows, with MXFP4 16 exponents of each, of two pieces (ring.h).
struct PieceBoxes {
  device::RowBoxes weights;
  device::RowBoxes exponents;
  int rows;
};

struct OneTokenParams : DecodeParams {
  Product products[2];  // gate and up; down
  // Those of gate and up with all rows and with kMmaRows, and those of down.
  static constexpr int kFirst = 0;
  static constexpr int kFewerOfFirst = 1;
  static constexpr int kSecond = 2;
  PieceBoxes boxes[3];
};

// Strips of gate and up in a round.
inline constexpr int kRoundStrips = 8;

// A chain: its strip's rows, what they are multiplied by, and where the sums go.
struct alignas(16) ChainPlace {
  int32_t round;      // Gate and up have 0, 1, ...; down kSecond and so on.
  int32_t row;        // the strip's first, of all experts
  int32_t scale_row;  // FP8: of the scales of that row, likewise
  int32_t sums;
  int32_t tokens;   // the row: bytes from x or from h
  float scales[2];  // FP8: of the chain's first piece, of gate and up or of down
  uint32_t packed;  // In one word, which stays in one register.

  static constexpr int kNothing = -1;  // the round before the first one
  static constexpr int kSecond = 1 << 24;
  static constexpr int kEnd = 2 * kSecond;
  __device__ __forceinline__ int product() const { return round >= kSecond ? 1 : 0; }
  __device__ __forceinline__ int chain() const { return static_cast<int>(packed & 0xf); }
  __device__ __forceinline__ bool has_bias() const { return (packed & kBias) != 0; }
  __device__ __forceinline__ int rows() const { return Byte(1); }   // of the strip
  __device__ __forceinline__ int boxes() const { return Byte(2); }  // which of OneTokenParams
  __device__ __forceinline__ int entry() const { return Byte(3); }
  __device__ __forceinline__ void Pack(int chain, int rows, int boxes, int entry) {
    packed |= static_cast<uint32_t>(chain | rows << 8 | boxes << 16 | entry << 24);
  }
  __device__ __forceinline__ void SetBias() { packed |= kBias; }

 private:
  static constexpr uint32_t kBias = 0x10;
  static_assert(kWaves <= 16);
  __device__ __forceinline__ int Byte(int i) const {
    return static_cast<int>(packed >> 8 * i & 0xff);
  }
};
// So many chains of a wave are found at once, by a lane each.
inline constexpr int kListedChains = kWaves < 16 ? 8 : 16;

// A block's part of the strips, and the chains of each of its waves. Blocks share gate and up by
// tiles of 16 rows, so that none has more than one tile more than another: a block's first and last
// strip may have fewer rows.
template <typename W>
struct BlockStrips {
  using Shape = Strips<W, kFewTokens>;
  static constexpr int kTiles = Shape::kPieceRows / kMmaRows;  // of a piece

  const OneTokenParams* p;
  const Entry* entries;
  int num_entries;
  int strips_of_entry;  // of gate and up
  int second_rows;      // of down; 0 without entries
  int first_tile;       // of gate and up, of all entries
  int end_tile;

  __device__ __forceinline__ BlockStrips(const OneTokenParams& params, const Entry* of_entries,
                                         int entry_count)
      : p(&params), entries(of_entries), num_entries(entry_count) {}
  // Before all others.
  __device__ __forceinline__ void Share() {
    strips_of_entry = (p->products[0].rows / kMmaRows + kTiles - 1) / kTiles;
    second_rows = num_entries > 0 ? p->layout.hidden : 0;
    const int tiles = num_entries * strips_of_entry * kTiles;
    first_tile = tiles * Block() / Grid();
    end_tile = tiles * (Block() + 1) / Grid();
  }

  __device__ __forceinline__ int Pieces(int product) const {
    constexpr int kColumns = Shape::kPieceRowBytes * 8 / W::kBits;
    return (p->products[product].columns + kColumns - 1) / kColumns;
  }
  // How many strips of gate and up the block has, and how many groups of columns of the output.
  __device__ __forceinline__ int FirstStrips() const {
    return end_tile > first_tile ? (end_tile - 1) / kTiles - first_tile / kTiles + 1 : 0;
  }
  __device__ __forceinline__ int SecondStrips() const {
    const int strips = (second_rows + Shape::kSecondRows - 1) / Shape::kSecondRows;
    return strips > Block() ? (strips - Block() + Grid() - 1) / Grid() : 0;
  }
  // Strip `number` of gate and up of the block.
  struct FirstStrip {
    int entry;
    int row;
    int rows;
  };
  __device__ __forceinline__ FirstStrip FirstStripOf(int number) const {
    const int strip = first_tile / kTiles + number;
    const int entry = strip / strips_of_entry;
    const int before = entry * strips_of_entry * kTiles;  // tiles of other entries
    const int tile = strip * kTiles > first_tile ? strip * kTiles : first_tile;
    const int end = Smaller(strip * kTiles + kTiles, end_tile);
    const int row = (tile - before) * kMmaRows;
    return {entry, row, Smaller((end - before) * kMmaRows, p->products[0].rows) - row};
  }

  // Lists the wave's chains from number `first` on, without their experts.
  __device__ __forceinline__ void List(int first, ChainPlace* list) const {
    device::SyncWave();  // the list has been read
    if (device::Lane() < kListedChains) list[device::Lane()] = PlaceOf(first + device::Lane());
    device::SyncWave();
  }
  // The scales of a piece: of gate and up, or twice that of down.
  __device__ __forceinline__ void ScalesOf(const ChainPlace& place, int piece,
                                           float (&scales)[2]) const {
    const int which = place.product();
    const Product& product = p->products[which];
    const float* const first = static_cast<const float*>(product.scales) +
                               static_cast<int64_t>(place.scale_row) * product.scale_pitch + piece;
    const int64_t to_up = which == 0 ? product.scale_rows / 2 * int64_t{product.scale_pitch} : 0;
    scales[0] = first[0];
    scales[1] = first[to_up];
  }
  // Behind AddExperts.
  __device__ __forceinline__ void AddScales(ChainPlace* list) const {
    ChainPlace& place = list[device::Lane() % kListedChains];
    if (device::Lane() < kListedChains && place.round != ChainPlace::kEnd) {
      ScalesOf(place, place.chain(), place.scales);
    }
    device::SyncWave();
  }
  // When there are entries.
  __device__ __forceinline__ void AddExperts(ChainPlace* list) const {
    ChainPlace& place = list[device::Lane() % kListedChains];
    if (device::Lane() < kListedChains && place.round != ChainPlace::kEnd) {
      const Product& product = p->products[place.product()];
      const int expert = entries[place.entry()].expert;
      place.row += expert * product.rows;
      place.scale_row += expert * product.scale_rows;
    }
    device::SyncWave();
  }

 private:
  static __device__ __forceinline__ int Block() { return static_cast<int>(blockIdx.x); }
  static __device__ __forceinline__ int Grid() { return static_cast<int>(gridDim.x); }
  static __device__ __forceinline__ int SumsOf(int strip_or_entry, int chain) {
    return (strip_or_entry * kWaves + chain) * Shape::kPieceRows;
  }

  // Chain `number` of the wave: every kWaves-th of the block's of gate and up, then of down's.
  __device__ __forceinline__ ChainPlace PlaceOf(int number) const {
    constexpr int kScaleGroup = 128;  // rows that share FP8 scales
    const int chains = Smaller(Pieces(0), kWaves);
    const int first = FirstStrips() * chains - device::Wave();  // chains of gate and up
    const int firsts = first > 0 ? (first + kWaves - 1) / kWaves : 0;
    ChainPlace place = {};
    int row = 0;
    int rows = 0;
    int entry = 0;
    int of_strip = 0;
    if (number < firsts) {
      const int chain = device::Wave() + number * kWaves;
      const int strip = chain / chains;
      const FirstStrip of = FirstStripOf(strip);
      entry = of.entry;
      row = of.row;
      rows = of.rows;
      of_strip = chain - strip * chains;
      place.round = strip / kRoundStrips;
      place.sums = SumsOf(strip % kRoundStrips, of_strip);
    } else {
      const int second_chains = Smaller(Pieces(1), kWaves);
      const int chain = device::Wave() + (number - firsts) * kWaves;
      const int strip = chain / second_chains;  // of an entry
      const int unit = num_entries > 0 ? strip / num_entries : 0;
      entry = strip - unit * num_entries;
      row = (Block() + unit * Grid()) * Shape::kSecondRows;
      rows = Smaller(second_rows - row, Shape::kSecondRows);
      place.round = rows > 0 ? ChainPlace::kSecond + unit : ChainPlace::kEnd;
      if (rows <= 0) return place;
      of_strip = chain - strip * second_chains;
      place.sums = SumsOf(entry, of_strip);
      place.tokens = entry * p->products[1].columns * 2;
    }
    place.row = row;
    const int column = place.product() == 0 ? row / 2 : row;  // of gate, or of the output
    place.scale_row = column / kScaleGroup;
    const int of_first = rows > kMmaRows ? OneTokenParams::kFirst : OneTokenParams::kFewerOfFirst;
    place.Pack(of_strip, rows, place.product() == 0 ? of_first : OneTokenParams::kSecond, entry);
    if (W::kParameters && of_strip == 0 && p->products[place.product()].bias != nullptr) {
      place.SetBias();
    }
    return place;
  }
};

// A wave's walk through the pieces of its chains, those of gate and up first.
template <typename W>
class ChainWalk {
 public:
  using Strips = BlockStrips<W>;

  // Before the first piece. `list`: the wave's memory for kListedChains.
  __device__ __forceinline__ ChainWalk(const Strips& strips, ChainPlace* list)
      : strips_(strips), list_(list) {
    place_.round = ChainPlace::kNothing;
  }
  // Finds the first chains, without their experts.
  __device__ __forceinline__ void Prepare() {
    strips_.Share();
    strips_.List(0, list_);
  }
  __device__ __forceinline__ const Strips& strips() const { return strips_; }
  // Before the first call of Next, when there are entries.
  __device__ __forceinline__ void AddExperts() { strips_.AddExperts(list_); }

  // FP8: behind the first call of Next.
  __device__ __forceinline__ void AddScales() { strips_.AddScales(list_); }
  // Those of the piece; before the next call of Next.
  __device__ __forceinline__ void CopyScales(float (&scales)[2]) const {
    if (piece_ >= kWaves) {
      strips_.ScalesOf(place_, piece_, scales);
      return;
    }
    const ChainPlace& place = list_[next_ - 1 - listed_];
    scales[0] = place.scales[0];
    scales[1] = place.scales[1];
  }

  // The piece: piece() of a strip of place(), whose round is kEnd behind the last one.
  __device__ __forceinline__ const ChainPlace& place() const { return place_; }
  __device__ __forceinline__ int piece() const { return piece_; }
  __device__ __forceinline__ void Next() {
    piece_ += kWaves;
    if (piece_ < strips_.Pieces(place_.product())) return;
    if (next_ - listed_ == kListedChains) {
      listed_ = next_;
      ListMore(strips_, listed_, list_);
    }
    place_ = list_[next_ - listed_];
    if (place_.round != ChainPlace::kEnd) ++next_;
    piece_ = place_.chain();
  }
  // Goes behind the last piece.
  __device__ __forceinline__ void End() { place_.round = ChainPlace::kEnd; }

 private:
  // Rarely called.
  static __device__ OCTET_OUT_OF_LINE void ListMore(Strips strips, int first, ChainPlace* list) {
    strips.List(first, list);
    strips.AddExperts(list);
    if constexpr (W::kScaled) strips.AddScales(list);
  }

  Strips strips_;
  ChainPlace* const list_;
  int listed_ = 0;       // the list's first chain
  int next_ = 0;         // the chain behind the place's
  int piece_ = 1 << 16;  // behind all pieces
  ChainPlace place_ = {};
};

}  // namespace octet::decode

#endif  // OCTET_KERNELS_DECODE_CHAIN_WALK_H_
