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

#include "box_copy.h"
#include "copy_ahead.h"
#include "device_ops.h"
#include "kernels/decode/chain_walk.h"
#include "kernels/decode/chosen.h"
#include "kernels/decode/gated.h"
#include "kernels/decode/kernels.h"
#include "kernels/decode/layout.h"
#include "kernels/decode/pieces.h"
#include "kernels/decode/strips.h"
#include "kernels/decode/tiling.h"
#include "kernels/decode/weights.h"

namespace octet::decode {

template <typename W>
class OneToken {
 public:
  // `shared`: the block's memory. One rank has all experts, and those that a token chose differ, so
  // the number of entries is known before the choice.
  __device__ __forceinline__ OneToken(const OneTokenParams& p, const Chosen& chosen, char* shared)
      : p_(p),
        chosen_(chosen),
        barriers_(reinterpret_cast<device::BoxBarrier*>(shared + p.shared.barriers) +
                  wave_ * kSlots),
        ring_(shared + p.shared.ring + wave_ * kRingBytes),
        tokens_(reinterpret_cast<device::Vec16*>(shared + p.shared.tokens + wave_ * kTokenBytes)),
        sums_(reinterpret_cast<float*>(shared + p.shared.sums)),
        waves_(reinterpret_cast<float*>(shared + p.shared.waves)),
        walk_(BlockStrips<W>(p, chosen.entries, p.num_tokens * p.route.topk),
              reinterpret_cast<ChainPlace*>(shared + p.shared.chains) + wave_ * kListedChains) {}

  // By all threads, before Run and a barrier: what does not depend on the choice.
  __device__ __forceinline__ void Prepare() {
    walk_.Prepare();
    for (int i = 0; i < kSlots; ++i) device::BoxInit(barriers_ + i);
    if (threadIdx.x != 0) return;
    for (const PieceBoxes& boxes : p_.boxes) {
      device::PrefetchBoxes(boxes.weights);
      if (W::kOfBlocks) device::PrefetchBoxes(boxes.exponents);
    }
  }

  // All of both products of the block. between(): called by all threads when the block has stored
  // its part between the products; whether all of it is there then.
  template <typename Between>
  __device__ __forceinline__ void Run(Between between) {
    // Two pieces are on their way before the first one is multiplied, and behind the last piece of
    // gate and up the first two of down.
    device::BoxFence();  // the choice had the rings' memory
    walk_.AddExperts();
    current_.round = Place::kNothing;
#pragma unroll 1
    while (true) {
#pragma unroll 1
      while (current_.round <= round_) {
        if (current_.round != Place::kNothing) Multiply();
        Step();
        if (W::kScaled && steps_ == 1) walk_.AddScales();  // the first piece is on its way
      }
      __syncthreads();
      if (round_ < Place::kSecond) {
        StoreGatedStrips();
        if ((round_ + 1) * kRoundStrips < walk_.strips().FirstStrips()) {
          ++round_;
          __syncthreads();  // the sums have been read
        } else {
          if (!between()) {
            AwaitLoads();
            return;
          }
          round_ = Place::kSecond;
          if (walk_.strips().SecondStrips() == 0) return;
        }
      } else {
        StoreOutput();
        ++round_;
        if (round_ - Place::kSecond == walk_.strips().SecondStrips()) return;
      }
      LoadInputs(current_, piece_);
      PutInputs();
      LoadInputs(walk_.place(), walk_.piece());
    }
  }

 private:
  using Place = ChainPlace;
  using Shape = Strips<W, kFewTokens>;
  using RowMma = device::RowMma<W::kElement>;
  using Codec = CodecOf<W::kElement>::Type;
  using Weights = LaneWeights<W, RowMma, Shape::kPieceRows, Shape::kPieceRowBytes>;
  static constexpr int kRows = Shape::kPieceRows;
  static constexpr int kSecondRows = Shape::kSecondRows;
  static constexpr int kRowBytes = Shape::kPieceRowBytes;
  static constexpr int kSlots = 2;
  static constexpr int kPieceBytes = kRows * kRowBytes;
  static constexpr int kExponentBytes = kRows * kChunkBytes;  // those of two pieces (ring.h)
  static constexpr int kPieceColumns = kRowBytes * 8 / W::kBits;
  static constexpr int kVecs = kPieceColumns / device::kElementsPerVec;  // of tokens
  static constexpr int kRowChunks = kRowBytes / kChunkBytes;
  static constexpr int kSteps = kRowChunks / Weights::kGroups;
  static constexpr int kRingBytes = kSlots * SlotBytesFor(kFewTokens, W::kBits);
  static constexpr int kTokenBytes = 2 * kPieceColumns * 2;  // of the next piece, too
  static_assert(kVecs <= device::kMinWaveSize && kRows <= device::kMinWaveSize);

  // ---- loading ahead

  // Goes on by a piece, and loads the one behind it.
  __device__ __forceinline__ void Step() {
    device::SyncWave();  // nobody reads the piece before
    current_ = walk_.place();
    piece_ = walk_.piece();
    if constexpr (W::kScaled) {
      if (current_.round < Place::kEnd && current_.round != Place::kNothing) {
        walk_.CopyScales(scales_);
      }
    }
    PutInputs();
    walk_.Next();
    if (walk_.place().round != Place::kEnd) Load(walk_.place(), walk_.piece());
    LoadInputs(walk_.place(), walk_.piece());
    ++steps_;
  }
  // The slot that is filled next; the current piece is in it until then.
  __device__ __forceinline__ int Slot() const { return static_cast<int>(steps_ % kSlots); }
  __device__ __forceinline__ char* Exponents(int slot) const {
    return ring_ + kSlots * kPieceBytes + slot * kExponentBytes;
  }
  // Behind the end of a row there are zeros; rows behind those of the strip are not used.
  __device__ __forceinline__ void Load(const Place& place, int piece) {
    const int slot = Slot();
    const PieceBoxes& boxes = p_.boxes[place.boxes()];
    constexpr int kBytesOfRow = kRowBytes + (W::kOfBlocks ? kChunkBytes : 0);
    device::BoxLoad(barriers_ + slot, boxes.rows * kBytesOfRow, [&](const auto& start) {
      start(ring_ + slot * kPieceBytes, boxes.weights, piece * kRowBytes, place.row);
      if constexpr (W::kOfBlocks) {
        const auto pair = static_cast<int>(static_cast<uint32_t>(piece) / 2);
        start(Exponents(slot), boxes.exponents, pair * kChunkBytes, place.row);
      }
    });
  }
  // Until the current piece is there.
  __device__ __forceinline__ void AwaitPiece() {
    device::BoxWait(barriers_ + Slot(), steps_ / kSlots - 1);
  }
  // Until nothing is on its way.
  __device__ __forceinline__ void AwaitLoads() {
    while (current_.round != Place::kEnd) {
      if (current_.round != Place::kNothing) AwaitPiece();
      current_ = walk_.place();
      ++steps_;
      walk_.End();
    }
  }

  // Whether what a piece is multiplied by is there in this round.
  __device__ __forceinline__ bool HasInputs(const Place& place) const {
    return place.round <= round_ && place.round != Place::kNothing;
  }
  // Asks for it, if it is there, and for what the piece's sums begin with.
  __device__ __forceinline__ void LoadInputs(const Place& place, int piece) {
    if (HasInputs(place)) {
      const int which = place.product();
      const Product& product = p_.products[which];
      const int column = piece * kPieceColumns + lane_ * device::kElementsPerVec;
      if (lane_ < kVecs) {
        const bool present = column < product.columns;
        const char* const from =
            (which == 0 ? p_.x : p_.h) + place.tokens + (present ? column * 2 : 0);
        copies_.Start(tokens_ + kVecs + lane_, reinterpret_cast<const device::Vec16*>(from),
                      present);
      }
      if (HasBias(place, piece) && lane_ < place.rows()) {
        bias_ = product.bias[place.row + lane_];
      }
    }
    copies_.Commit();
  }
  // Puts those of the current piece where Multiply reads them. A wave's barrier comes before and
  // behind it.
  __device__ __forceinline__ void PutInputs() {
    const Place& place = current_;
    if (!HasInputs(place)) return;
    copies_.template Wait<0>();
    if (lane_ < kVecs) {
      // Lanes of different groups read vectors that follow each other.
      const int vec = lane_ % W::kOperands * kRowChunks + lane_ / W::kOperands;
      tokens_[vec] = W::InOrder(tokens_[kVecs + lane_]);  // which the lane itself has copied
    }
    if (HasBias(place, piece_) && lane_ < place.rows()) {
      sums_[place.sums + lane_] = bias_;
    }
  }
  // Whether a piece's sums begin with biases.
  static __device__ __forceinline__ bool HasBias(const Place& place, int piece) {
    return W::kParameters && place.has_bias() && piece < kWaves;
  }

  // ---- products

  __device__ __forceinline__ float* SumsOf(int strip_or_entry, int chain) const {
    return sums_ + (strip_or_entry * kWaves + chain) * kRows;
  }

  // Multiplies the current piece.
  __device__ __forceinline__ void Multiply() {
    const Place& place = current_;
    float* const sums = sums_ + place.sums;
    const bool begun = piece_ >= kWaves || HasBias(place, piece_);
    float weight = 1.0F;
    if (place.product() == 1 && piece_ + kWaves >= walk_.strips().Pieces(1)) {
      weight = chosen_.pair_weights[place.entry()];
    }
    device::SyncWave();
    AwaitPiece();
    const int columns = p_.products[place.product()].columns - piece_ * kPieceColumns;
    const Tile tile = {ring_ + Slot() * kPieceBytes,
                       Exponents(Slot()) + (piece_ & 1) * (kChunkBytes / 2),
                       columns,
                       sums,
                       begun,
                       weight};
    // Rows that are not there have sums that nobody reads.
    constexpr int kRest = kSecondRows % kMmaRows;
    const int rows = place.rows();
    const int most = kRest == 0 ? rows : rows - kRest;
    int row = 0;
#pragma unroll 1
    for (; row < most; row += kMmaRows) MultiplyTile<kMmaRows>(tile, row);
    if (kRest != 0 && row < rows) MultiplyTile<kRest>(tile, row);
  }

  struct Tile {
    const char* piece;
    const char* exponents;
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
        if (RowMma::SumRow(i) < of_rows) sums[i] = tile.sums[row + SumRow(i)];
      }
    }
    Weights weights[kSteps];
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
      weights[step].LoadExponents(tile.exponents, 0, row, of_rows, step);
    }
#pragma unroll
    for (int step = 0; step < kSteps; ++step) weights[step].Load(tile.piece, row, of_rows, step);
    float added[4] = {};
    float (&into)[4] = W::kScaled ? added : sums;
    if (W::kOneConversion || AreUsual(weights)) {
      MultiplySteps<of_rows>(tile, weights, into);
    } else {
      MultiplyUnusual<of_rows>(tile, row, into);
    }
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      if constexpr (W::kScaled) {
        sums[i] = sums[i] + added[i] * scales_[RowMma::SumRow(i) / kGatedRows];
      }
      if (RowMma::SumToken(i) != 0 || RowMma::SumRow(i) >= of_rows) continue;
      tile.sums[row + SumRow(i)] = tile.weight * sums[i];
    }
  }
  static __device__ __forceinline__ int SumRow(int i) { return Weights::RowAt(RowMma::SumRow(i)); }
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
  template <int of_rows>
  __device__ __forceinline__ void MultiplySteps(const Tile& tile, const Weights (&weights)[kSteps],
                                                float (&sums)[4]) const {
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
      if (step * (kPieceColumns / kSteps) >= tile.columns) break;
#pragma unroll
      for (int operand = 0; operand < W::kOperands; ++operand) {
        const int vec = operand * kRowChunks + step * Weights::kGroups + RowMma::Group();
        weights[step].template Multiply<true>(of_rows, operand, tokens_[vec], sums);
      }
    }
  }

  // The same, with scales of any size, in little code between the code that runs.
  template <int of_rows>
  __device__ __forceinline__ void MultiplyUnusual(const Tile& tile, int row,
                                                  float (&sums)[4]) const {
#pragma unroll 1
    for (int i = 0; i < kSteps * W::kOperands; ++i) {
      const int step = i / W::kOperands;
      const int operand = i % W::kOperands;
      if (step * (kPieceColumns / kSteps) >= tile.columns) break;
      Weights weights;
      weights.LoadExponents(tile.exponents, 0, row, of_rows, step);
      weights.LoadWord(tile.piece, row, of_rows, step, operand);
      const int vec = operand * kRowChunks + step * Weights::kGroups + RowMma::Group();
      weights.template Multiply<false>(of_rows, 0, tokens_[vec], sums);
    }
  }

  // ---- the ends of rounds

  // The columns between the products of the round's strips, a strip by a wave.
  __device__ __forceinline__ void StoreGatedStrips() const {
    const int first = round_ * kRoundStrips;
    const int strips = Smaller(walk_.strips().FirstStrips() - first, kRoundStrips);
    const int chains = Smaller(walk_.strips().Pieces(0), kWaves);
    const int own = device::Lane() * 2;  // of the strip's columns
#pragma unroll 1
    for (int i = device::Wave(); i < strips; i += kWaves) {
      const auto strip = walk_.strips().FirstStripOf(first + i);
      if (own >= strip.rows / 2) continue;
      const int row = own / kGatedRows * kMmaRows + own % kGatedRows;
      const int column = strip.entry * p_.routed.columns + strip.row / 2 + own;
      StoreGated<W, kWaves, kRows>(p_.swiglu, SumsOf(i, 0) + row, chains, p_.h + column * 2);
    }
  }

  // The output's columns of the round: the sums of each wave's chains, then those of all waves.
  __device__ __forceinline__ void StoreOutput() const {
    const int wave = device::Wave();
    const int pieces = walk_.strips().Pieces(1);
    if (device::Lane() < kSecondRows) {
      float sum = 0.0F;
#pragma unroll 1
      for (int entry = 0; entry < walk_.strips().num_entries; ++entry) {
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

  const OneTokenParams& p_;
  const Chosen& chosen_;
  // In registers, which are not found anew.
  const int lane_ = device::Shuffle(device::Lane(), device::Lane());
  const int wave_ = device::Shuffle(device::Wave(), 0);
  device::BoxBarrier* const barriers_;  // of this wave's slots
  char* const ring_;                    // of this wave
  device::Vec16* const tokens_;         // likewise
  float* const sums_;
  float* const waves_;
  ChainWalk<W> walk_;
  int round_ = 0;
  Place current_;  // whose piece is multiplied next
  int piece_ = 0;
  uint32_t steps_ = 0;  // so many pieces have been loaded, or the walk has come to its end
  float bias_ = 0.0F;   // of the walk's piece
  float scales_[2];     // of the current one
  device::CopyAhead<2, 1> copies_;
};

}  // namespace octet::decode

#endif  // OCTET_KERNELS_DECODE_ONE_TOKEN_H_
