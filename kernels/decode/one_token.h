// The two products of a decode layer for one token, which is bound by instructions more than by
// reading weights: what a piece costs beside its products is as little as may be.
//
//   piece   some columns of a strip (strips.h): loaded, and multiplied by one wave
//   chain   those pieces of a strip that strips.h gives to one wave, in order: they are added to
//           each other, so that sums have the bits that they have with more tokens
//   round   strips whose sums have room together: of gate and up 8, of down those of all entries
//           for some columns of the output
//
// Which wave multiplies a chain does not matter, since its sums go to a place of its own in shared
// memory. So the waves take the chains of a block in turn, whatever strips they are of, and meet at
// the end of a round. All of it is one loop for both products, whose code is there when down comes.
//
//   sums   gate, up: [strips of a round][chains][rows of a piece];  down: [entries][chains][rows]
//   waves  down: [waves][rows of a piece], of all entries
#ifndef OCTET_KERNELS_DECODE_ONE_TOKEN_H_
#define OCTET_KERNELS_DECODE_ONE_TOKEN_H_

#include <cstddef>
#include <cstdint>

#include "copy_ahead.h"
#include "device_ops.h"
#include "kernels/decode/chosen.h"
#include "kernels/decode/gated.h"
#include "kernels/decode/kernels.h"
#include "kernels/decode/layout.h"
#include "kernels/decode/pieces.h"
#include "kernels/decode/strips.h"
#include "kernels/decode/tiling.h"
#include "kernels/decode/weights.h"

namespace octet::decode {

// Strips of gate and up in a round.
inline constexpr int kRoundStrips = 8;

// A piece of a chain, and where its sums go.
struct ChainPlace {
  int32_t round;      // Gate and up have 0, 1, ...; down kSecond and so on.
  int32_t row;        // the strip's first, of all experts
  int32_t scale_row;  // FP8: of the scales of that row, likewise
  uint8_t slot;       // the strip's sums in the round
  uint8_t entry;
  uint8_t rows;  // of the strip
  uint8_t chain;

  static constexpr int kNothing = -1;  // the round before the first one
  static constexpr int kSecond = 1 << 24;
  static constexpr int kEnd = 2 * kSecond;
  __device__ __forceinline__ int product() const { return round >= kSecond ? 1 : 0; }
};
// So many chains of a wave are found at once, by a lane each.
inline constexpr int kListedChains = device::kMinWaveSize;

// A wave's walk through the pieces of its chains, those of gate and up first. Blocks share gate and
// up by tiles of 16 rows, so that none has more than one tile more than another: a block's first and
// last strip may have fewer rows.
template <typename W>
class ChainWalk {
 public:
  using Shape = Strips<W, kFewTokens>;

  // Before the first piece. `list`: the wave's memory for kListedChains.
  __device__ __forceinline__ ChainWalk(const DecodeParams& p, const Entry* entries, int num_entries,
                                       ChainPlace* list)
      : p_(p),
        entries_(entries),
        num_entries_(num_entries),
        strips_((p.products[0].rows / kMmaRows + kTiles - 1) / kTiles),
        second_rows_(num_entries > 0 ? p.layout.hidden : 0),
        list_(list) {
    const int tiles = num_entries * strips_ * kTiles;
    first_tile_ = tiles * Block() / Grid();
    end_tile_ = tiles * (Block() + 1) / Grid();
    place_.round = ChainPlace::kNothing;
    piece_ = 1 << 16;  // behind all pieces
  }

  // The piece: piece() of a strip of place(), whose round is kEnd behind the last one.
  __device__ __forceinline__ const ChainPlace& place() const { return place_; }
  __device__ __forceinline__ int piece() const { return piece_; }
  __device__ __forceinline__ void Next() {
    piece_ += kWaves;
    if (piece_ < Pieces(place_.product())) return;
    if (next_ % kListedChains == 0) ListChains();
    place_ = list_[next_ % kListedChains];
    if (place_.round != ChainPlace::kEnd) ++next_;
    piece_ = place_.chain;
  }

  __device__ __forceinline__ int Pieces(int product) const {
    constexpr int kColumns = Shape::kPieceRowBytes * 8 / W::kBits;
    return (p_.products[product].columns + kColumns - 1) / kColumns;
  }
  // How many strips of gate and up the block has, and how many groups of columns of the output.
  __device__ __forceinline__ int FirstStrips() const {
    return end_tile_ > first_tile_ ? (end_tile_ - 1) / kTiles - first_tile_ / kTiles + 1 : 0;
  }
  __device__ __forceinline__ int SecondStrips() const {
    const int strips = (second_rows_ + Shape::kSecondRows - 1) / Shape::kSecondRows;
    return strips > Block() ? (strips - Block() + Grid() - 1) / Grid() : 0;
  }
  // Strip `number` of gate and up of the block.
  struct FirstStrip {
    int entry;
    int row;
    int rows;
  };
  __device__ __forceinline__ FirstStrip FirstStripOf(int number) const {
    const int strip = first_tile_ / kTiles + number;
    const int entry = strip / strips_;
    const int before = entry * strips_ * kTiles;  // tiles of other entries
    const int tile = strip * kTiles > first_tile_ ? strip * kTiles : first_tile_;
    const int end = Smaller(strip * kTiles + kTiles, end_tile_);
    const int row = (tile - before) * kMmaRows;
    return {entry, row, Smaller((end - before) * kMmaRows, p_.products[0].rows) - row};
  }

 private:
  static constexpr int kTiles = Shape::kPieceRows / kMmaRows;  // of a piece

  static __device__ __forceinline__ int Block() { return static_cast<int>(blockIdx.x); }
  static __device__ __forceinline__ int Grid() { return static_cast<int>(gridDim.x); }

  // Lists the wave's chains from number next_ on.
  __device__ __forceinline__ void ListChains() {
    device::SyncWave();  // the list has been read
    if (device::Lane() < kListedChains) list_[device::Lane()] = PlaceOf(next_ + device::Lane());
    device::SyncWave();
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
    if (number < firsts) {
      const int chain = device::Wave() + number * kWaves;
      const int strip = chain / chains;
      const FirstStrip of = FirstStripOf(strip);
      entry = of.entry;
      row = of.row;
      rows = of.rows;
      place.round = strip / kRoundStrips;
      place.slot = static_cast<uint8_t>(strip % kRoundStrips);
      place.chain = static_cast<uint8_t>(chain % chains);
    } else {
      const int second_chains = Smaller(Pieces(1), kWaves);
      const int chain = device::Wave() + (number - firsts) * kWaves;
      const int strip = chain / second_chains;  // of an entry
      const int unit = num_entries_ > 0 ? strip / num_entries_ : 0;
      entry = strip - unit * num_entries_;
      row = (Block() + unit * Grid()) * Shape::kSecondRows;
      rows = Smaller(second_rows_ - row, Shape::kSecondRows);
      place.round = rows > 0 ? ChainPlace::kSecond + unit : ChainPlace::kEnd;
      place.slot = static_cast<uint8_t>(entry);
      place.chain = static_cast<uint8_t>(chain % second_chains);
      if (rows <= 0) return place;
    }
    const Product& product = p_.products[place.product()];
    const int expert = entries_[entry].expert;
    place.row = expert * product.rows + row;
    const int column = place.product() == 0 ? row / 2 : row;  // of gate, or of the output
    place.scale_row = expert * product.scale_rows + column / kScaleGroup;
    place.entry = static_cast<uint8_t>(entry);
    place.rows = static_cast<uint8_t>(rows);
    return place;
  }

  const DecodeParams& p_;
  const Entry* const entries_;
  const int num_entries_;
  const int strips_;       // of gate and up of an entry
  const int second_rows_;  // of down; 0 without entries
  ChainPlace* const list_;
  int first_tile_;  // of all entries
  int end_tile_;
  int next_ = 0;  // the chain behind the place's
  int piece_;
  ChainPlace place_ = {};
};

template <typename W>
class OneToken {
 public:
  // `shared`: the block's memory.
  __device__ __forceinline__ OneToken(const DecodeParams& p, const Chosen& chosen, int entries,
                                      char* shared)
      : p_(p),
        chosen_(chosen),
        entries_(entries),
        ring_(shared + p.shared.ring + wave_ * kRingBytes),
        tokens_(reinterpret_cast<device::Vec16*>(shared + p.shared.tokens + wave_ * kTokenBytes)),
        sums_(reinterpret_cast<float*>(shared + p.shared.sums)),
        waves_(reinterpret_cast<float*>(shared + p.shared.waves)),
        walk_(p, chosen.entries, entries,
              reinterpret_cast<ChainPlace*>(shared + p.shared.chains) + wave_ * kListedChains) {}

  // All of both products of the block. between(): called by all threads when the block has stored its
  // part between the products; whether all of it is there then.
  template <typename Between>
  __device__ __forceinline__ void Run(Between between) {
    // Two pieces are on their way before the first one is multiplied, and behind the last piece of
    // gate and up the first two of down.
    current_.round = Place::kNothing;
#pragma unroll 1
    while (true) {
#pragma unroll 1
      while (current_.round <= round_) {
        if (current_.round != Place::kNothing) Multiply();
        Step();
      }
      __syncthreads();
      if (round_ < Place::kSecond) {
        StoreGatedStrips();
        if ((round_ + 1) * kRoundStrips < walk_.FirstStrips()) {
          ++round_;
          __syncthreads();  // the sums have been read
        } else {
          if (!between()) return;
          round_ = Place::kSecond;
          if (walk_.SecondStrips() == 0) return;
        }
      } else {
        StoreOutput();
        ++round_;
        if (round_ - Place::kSecond == walk_.SecondStrips()) return;
      }
      LoadInputs();
    }
  }

 private:
  using Walk = ChainWalk<W>;
  using Place = ChainPlace;
  using Shape = Walk::Shape;
  using RowMma = device::RowMma<W::kElement>;
  using Codec = CodecOf<W::kElement>::Type;
  using Weights = LaneWeights<W, RowMma, Shape::kPieceRows, Shape::kPieceRowBytes>;
  static constexpr int kRows = Shape::kPieceRows;
  static constexpr int kSecondRows = Shape::kSecondRows;
  static constexpr int kRowBytes = Shape::kPieceRowBytes;
  static constexpr int kSlotBytes = SlotBytesFor(kFewTokens, W::kBits);
  static constexpr int kPieceColumns = kRowBytes * 8 / W::kBits;
  static constexpr int kVecs = kPieceColumns / device::kElementsPerVec;  // of tokens
  static constexpr int kRowChunks = kRowBytes / kChunkBytes;
  static constexpr int kSteps = kRowChunks / Weights::kGroups;
  static constexpr int kRingBytes = 2 * kSlotBytes;
  static constexpr int kTokenBytes = kPieceColumns * 2;
  static_assert(kVecs <= device::kMinWaveSize && kRows <= device::kMinWaveSize);

  // ---- loading ahead

  // Goes on by a piece, and loads the one behind it.
  __device__ __forceinline__ void Step() {
    device::SyncWave();  // nobody reads the piece before
    current_ = walk_.place();
    piece_ = walk_.piece();
    LoadInputs();
    walk_.Next();
    if (walk_.place().round != Place::kEnd) {
      Load(walk_.place(), walk_.piece(), ring_ + filled_ * kSlotBytes);
    }
    copies_.Commit();
    filled_ = 1 - filled_;
  }
  __device__ __forceinline__ void Load(const Place& place, int piece, char* to) {
    constexpr int kCopies = kRows * kRowChunks / device::kMinWaveSize;
    const Product& product = p_.products[place.product()];
    const int lane_row = lane_ / kRowChunks;
    const int lane_chunk = lane_ % kRowChunks;
    const int byte = piece * kRowBytes + lane_chunk * kChunkBytes;
    // Behind the end of a row there are zeros. A copy that is not present reads nothing, but its
    // address must be valid.
    const bool in_row = byte < product.pitch;
    const int copy_rows = device::kWaveSize / kRowChunks;  // from a copy of a lane to its next
    const int step = in_row ? copy_rows * product.pitch : 0;
    const char* from = product.weights;
    if (in_row) from += static_cast<int64_t>(place.row + lane_row) * product.pitch + byte;
    char* const lane_to = to + PieceOffset<kRowBytes>(lane_row, lane_chunk);
#pragma unroll
    for (int i = 0; i < kCopies; ++i) {
      // Strips have eights of rows.
      if (i * copy_rows % kGatedRows == 0 && i * copy_rows >= place.rows) break;
      copies_.Start(reinterpret_cast<device::Vec16*>(lane_to + i * copy_rows * kRowBytes),
                    reinterpret_cast<const device::Vec16*>(from), in_row);
      from += step;
    }
    if constexpr (W::kOfBlocks) {
      // 16 exponents of a row by each lane: those of two pieces (ring.h).
      if (lane_ >= place.rows) return;
      const char* const exponents = static_cast<const char*>(product.scales) +
                                    static_cast<int64_t>(place.row + lane_) * product.scale_pitch +
                                    piece / 2 * kChunkBytes;
      copies_.Start(reinterpret_cast<device::Vec16*>(to + kRows * kRowBytes) + lane_,
                    reinterpret_cast<const device::Vec16*>(exponents), true);
    }
  }

  // Asks for what the current piece is multiplied by, and for what its sums begin with. Nothing in a
  // round before its piece's.
  __device__ __forceinline__ void LoadInputs() {
    const Place& place = current_;
    if (place.round > round_ || place.round == Place::kNothing) return;
    const int which = place.product();
    const Product& product = p_.products[which];
    const int column = piece_ * kPieceColumns + lane_ * device::kElementsPerVec;
    const char* const row = which == 0 ? p_.x : p_.h + place.entry * product.columns * 2;
    token_ = {};
    if (lane_ < kVecs && column < product.columns) {
      token_ = *reinterpret_cast<const device::Vec16*>(row + column * 2);
    }
    if constexpr (W::kScaled) {  // of gate and up in turn
      const float* const scales = static_cast<const float*>(product.scales) +
                                  static_cast<int64_t>(place.scale_row) * product.scale_pitch +
                                  piece_;
      scales_[0] = scales[0];
      scales_[1] = scales[which == 0 ? product.scale_rows / 2 * int64_t{product.scale_pitch} : 0];
    }
    if constexpr (W::kParameters) {
      has_bias_ = product.bias != nullptr && piece_ == 0;
      if (has_bias_ && lane_ < place.rows) {
        bias_ = product.bias[place.row + lane_];
      }
    }
  }

  // ---- products

  __device__ __forceinline__ float* SumsOf(int strip_or_entry, int chain) const {
    return sums_ + (strip_or_entry * kWaves + chain) * kRows;
  }

  // Multiplies the current piece.
  __device__ __forceinline__ void Multiply() {
    copies_.template Wait<1>();
    const Place& place = current_;
    float* const sums = SumsOf(place.slot, place.chain);
    if (lane_ < kVecs) {
      // Lanes of different groups read vectors that follow each other.
      const int vec = lane_ % W::kOperands * kRowChunks + lane_ / W::kOperands;
      tokens_[vec] = W::InOrder(token_);
    }
    bool begun = piece_ >= kWaves;
    if (W::kParameters && has_bias_) {
      begun = true;
      if (lane_ < place.rows) sums[lane_] = bias_;
    }
    float weight = 1.0F;
    if (place.product() == 1 && piece_ + kWaves >= walk_.Pieces(1)) {
      weight = chosen_.pair_weights[place.entry];
    }
    device::SyncWave();  // the other lanes' copies are there
    const int columns = p_.products[place.product()].columns - piece_ * kPieceColumns;
    const Tile tile = {
        ring_ + filled_ * kSlotBytes, piece_ % 2 * (kChunkBytes / 2), columns, sums, begun, weight};
    // Rows that are not there have sums that nobody reads.
    constexpr int kRest = kSecondRows % kMmaRows;
    const int most = kRest == 0 ? place.rows : place.rows - kRest;
    int row = 0;
#pragma unroll 1
    for (; row < most; row += kMmaRows) MultiplyTile<kMmaRows>(tile, row);
    if (kRest != 0 && row < place.rows) MultiplyTile<kRest>(tile, row);
  }

  struct Tile {
    const char* piece;
    int first_exponent;
    int columns;  // that there are from the piece's first on
    float* sums;
    bool begun;    // whether there are sums already
    float weight;  // by which they are multiplied at last
  };
  // Multiplies of_rows rows of a piece, from `row` on.
  template <int of_rows>
  __device__ __forceinline__ void MultiplyTile(const Tile& tile, int row) {
    float sums[4] = {};
    if (tile.begun) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        if (RowMma::SumRow(i) < of_rows) sums[i] = tile.sums[row + RowMma::SumRow(i)];
      }
    }
    Weights weights[kSteps];
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
      weights[step].LoadExponents(tile.piece, tile.first_exponent, row, of_rows, step);
    }
#pragma unroll
    for (int step = 0; step < kSteps; ++step) weights[step].Load(tile.piece, row, of_rows, step);
    float added[4] = {};
    float (&into)[4] = W::kScaled ? added : sums;
    if (W::kOneConversion || AreUsual(weights)) {
      MultiplySteps<true, of_rows>(tile, weights, into);
    } else {
      MultiplySteps<false, of_rows>(tile, weights, into);
    }
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      if constexpr (W::kScaled) {
        sums[i] = sums[i] + added[i] * scales_[RowMma::SumRow(i) / kGatedRows];
      }
      if (RowMma::SumToken(i) != 0 || RowMma::SumRow(i) >= of_rows) continue;
      tile.sums[row + RowMma::SumRow(i)] = tile.weight * sums[i];
    }
  }
  static __device__ __forceinline__ bool AreUsual(const Weights (&weights)[kSteps]) {
    uint32_t largest = 0;
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
      const uint32_t exponent = weights[step].LargestExponent();
      if (exponent > largest) largest = exponent;
    }
    return device::AreUsualMxfp4Scales(largest);
  }
  // All columns of the product are those of the one token. Zeros behind a row's end are left out.
  template <bool usual, int of_rows>
  __device__ __forceinline__ void MultiplySteps(const Tile& tile, const Weights (&weights)[kSteps],
                                                float (&sums)[4]) const {
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
      if (step * (kPieceColumns / kSteps) >= tile.columns) break;
#pragma unroll
      for (int operand = 0; operand < W::kOperands; ++operand) {
        const int vec = operand * kRowChunks + step * Weights::kGroups + RowMma::Group();
        weights[step].template Multiply<usual>(of_rows, operand, tokens_[vec], sums);
      }
    }
  }

  // ---- the ends of rounds

  // The columns between the products of the round's strips, a strip by a wave.
  __device__ __forceinline__ void StoreGatedStrips() const {
    const int first = round_ * kRoundStrips;
    const int strips = Smaller(walk_.FirstStrips() - first, kRoundStrips);
    const int chains = Smaller(walk_.Pieces(0), kWaves);
    const int own = device::Lane() * 2;  // of the strip's columns
#pragma unroll 1
    for (int i = device::Wave(); i < strips; i += kWaves) {
      const auto strip = walk_.FirstStripOf(first + i);
      if (own >= strip.rows / 2) continue;
      const int row = own / kGatedRows * kMmaRows + own % kGatedRows;
      const int column = strip.entry * p_.routed.columns + strip.row / 2 + own;
      StoreGated<W, kWaves, kRows>(p_.swiglu, SumsOf(i, 0) + row, chains, p_.h + column * 2);
    }
  }

  // The output's columns of the round: the sums of each wave's chains, then those of all waves.
  __device__ __forceinline__ void StoreOutput() const {
    const int wave = device::Wave();
    const int pieces = walk_.Pieces(1);
    if (device::Lane() < kSecondRows) {
      float sum = 0.0F;
#pragma unroll 1
      for (int entry = 0; entry < entries_; ++entry) {
        const auto turn = static_cast<uint32_t>(chosen_.entries[entry].expert * pieces);
        const int chain = (wave + kWaves - static_cast<int>(turn % kWaves)) % kWaves;
        if (chain < pieces) sum = sum + SumsOf(entry, chain)[device::Lane()];
      }
      waves_[wave * kRows + device::Lane()] = sum;
    }
    __syncthreads();
    const int first =
        (static_cast<int>(blockIdx.x) + (round_ - Place::kSecond) * static_cast<int>(gridDim.x)) *
        kSecondRows;
    const int quads = Smaller(p_.layout.hidden - first, kSecondRows) / kQuad;
    if (wave != 0 || device::Lane() >= quads) return;
    float4 sum = {0, 0, 0, 0};
#pragma unroll
    for (int i = 0; i < kWaves; ++i) {
      AddQuad(*reinterpret_cast<const float4*>(waves_ + i * kRows + device::Lane() * kQuad), sum);
    }
    StoreRounded<Codec>(p_, 0, first + device::Lane() * kQuad, sum);
  }

  const DecodeParams& p_;
  const Chosen& chosen_;
  const int entries_;
  // In registers, which are not found anew.
  const int lane_ = device::Shuffle(device::Lane(), device::Lane());
  const int wave_ = device::Shuffle(device::Wave(), 0);
  char* const ring_;             // of this wave
  device::Vec16* const tokens_;  // likewise
  float* const sums_;
  float* const waves_;
  Walk walk_;
  int round_ = 0;
  Place current_;  // whose piece is multiplied next
  int piece_ = 0;
  int filled_ = 0;  // the ring's slot that is filled next; the current piece is in it until then
  device::Vec16 token_;
  bool has_bias_ = false;
  float bias_ = 0.0F;
  float scales_[2];
  device::CopyAhead<3, kRows * kRowChunks / device::kMinWaveSize + 1> copies_;
};

}  // namespace octet::decode

#endif  // OCTET_KERNELS_DECODE_ONE_TOKEN_H_
