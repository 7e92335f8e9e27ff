// The two products of a decode layer. Lanes bring weights through their wave's ring and tokens, or
// what lies between the products, through registers; each wave has the sums of its pieces, which
// are added over the waves in their order.
//
//   sums   [buffers][waves][tokens or pairs of an entry][rows of a piece], in shared memory
#ifndef OCTET_KERNELS_DECODE_PRODUCTS_H_
#define OCTET_KERNELS_DECODE_PRODUCTS_H_

#include <bit>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "device_ops.h"
#include "kernels/decode/chosen.h"
#include "kernels/decode/gated.h"
#include "kernels/decode/kernels.h"
#include "kernels/decode/layout.h"
#include "kernels/decode/pieces.h"
#include "kernels/decode/protocol.h"
#include "kernels/decode/ring.h"
#include "kernels/decode/strips.h"
#include "kernels/decode/tiling.h"
#include "kernels/decode/tokens.h"
#include "kernels/decode/weights.h"
#include "octet/swiglu.h"

namespace octet::decode {

// kMost: the most tokens of all ranks together.
template <typename Weights, int kMost>
class Products {
 public:
  using StripsType = Strips<Weights, kMost>;
  using Ring = PieceRing<PieceWalk<StripsType, kWaves>>;

  // The constructor's arguments. `sums` are those of the waves, as above.
  struct Inputs {
    const DecodeParams& p;
    const Tokens& tokens;
    const Chosen& chosen;
    const StripsType& strips;
    float* sums;
  };
  __device__ __forceinline__ Products(const Inputs& in, Ring& ring)
      : p_(in.p),
        tokens_(in.tokens),
        chosen_(in.chosen),
        strips_(in.strips),
        ring_(ring),
        sums_(in.sums) {}

  // This block's units of a phase. kFirst: h[pair] = silu(gate · x) ⊙ (up · x). kSecond, when h is
  // there: Σ weight · (down · h), to where the output goes.
  template <Phase phase>
  __device__ __forceinline__ void Run(const Protocol& protocol) {
    int number = 0;
#pragma unroll 1
    for (Unit unit = strips_.FirstOf(phase); strips_.Has(phase, unit); strips_.Next(phase, unit)) {
      float* const buffer = BufferOf(number++);
      Sum<phase>(unit, buffer);
      __syncthreads();
      if constexpr (phase == Phase::kFirst) {
        const Entry entry = chosen_.entries[unit.entry];
        const bool shared = strips_.IsShared(unit.entry);
        const int column = strips_.ColumnOf(unit);
        constexpr int kPairs = StripsType::kColumns / 2;
        ForRows(number, entry.tokens * kPairs, [&](int i) {
          const int index = i / kPairs;
          const int own = i % kPairs * 2;  // of the strip's columns
          if (!IsChosen(entry, index) || !HasColumn(shared, column + own)) return;
          const int row = own / kGatedRows * kMmaRows + own % kGatedRows;
          StoreGated<Weights, kWaves, kMost * kPieceRows>(
              shared ? SwiGlu() : p_.swiglu, SumsOf(buffer, 0, index) + row, kWaves,
              GatedRows(shared) + GatedOffset(shared, entry, index) + (column + own) * 2);
        });
      } else {
        constexpr int kRows = StripsType::kSecondRows;
        const int first = unit.strip * kRows;
        const int quads = Smaller(p_.layout.hidden - first, kRows) / kQuad;
        ForRows(number, tokens_.num_all() * quads, [&](int i) {
          StoreOutput(protocol, i / quads, first + i % quads * kQuad,
                      AddWaves(buffer, i / quads, i % quads * kQuad));
        });
      }
    }
  }

 private:
  using RowMma = device::RowMma<Weights::kElement>;
  using Plain = PlainWeights<Weights::kElement>;
  using Codec = CodecOf<Weights::kElement>::Type;
  static constexpr int kPieceRows = StripsType::kPieceRows;
  template <typename W>
  using Piece = PieceTokens<W, RowMma, kPieceRows, StripsType::kPieceRowBytes>;

  static constexpr int kTiles = TilesFor(kMost);
  static constexpr bool kDense = IsDense(kMost);
  static constexpr int kBuffers = BuffersFor(kMost);
  static constexpr int kScaleGroup = 128;
  static constexpr int kRowTiles = kPieceRows / kMmaRows;
  // Whether there are shared experts, which are plain, beside others.
  static constexpr bool kMixed = Weights::kSharedExperts && !std::is_same_v<Weights, Plain>;

  template <Phase phase>
  static constexpr int kRowsOf = phase == Phase::kFirst ? kPieceRows : StripsType::kSecondRows;
  template <Phase phase>
  static constexpr int kTilesOf = (kRowsOf<phase> + kMmaRows - 1) / kMmaRows;

  // For each tile of tokens, of each tile of rows.
  struct Sums {
    float of[kTiles][kRowTiles][4];
  };
  // Scales of the pieces of a strip: those of its first eight rows, and of the others.
  struct Scales {
    const float* half[2];
  };
  // Adds a piece's products.
  template <Phase phase, typename W>
  static __device__ __forceinline__ void Add(const char* data, const Piece<W>& tokens,
                                             const float (&of_half)[2],
                                             float (&sums)[kRowTiles][4]) {
    if constexpr (W::kScaled) {
      float unscaled[kRowTiles][4] = {};
      tokens.template Multiply<kRowsOf<phase>>(data, unscaled);
#pragma unroll
      for (int r = 0; r < kTilesOf<phase>; ++r) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          sums[r][i] = sums[r][i] + unscaled[r][i] * of_half[RowMma::SumRow(i) / kGatedRows];
        }
      }
    } else {
      tokens.template Multiply<kRowsOf<phase>>(data, sums);
    }
  }

  // This lane's rows of an entry: one for each tile, so many bytes from the base.
  struct Rows {
    static constexpr int kNone = -1;

    const char* base;
    int offsets[kTiles];
    int columns;
    int tokens;

    __device__ __forceinline__ const char* Of(int tile) const {
      return offsets[tile] == kNone ? nullptr : base + offsets[tile];
    }
  };

  // Puts the sums of this wave's pieces of a unit into `buffer`.
  template <Phase phase>
  __device__ __forceinline__ void Sum(const Unit& unit, float* buffer) {
    constexpr bool kIsSecond = phase == Phase::kSecond;
    if (!kDense && kIsSecond) ClearSums(buffer);
    Sums all = {};
    EntriesOfWave<StripsType, kWaves> entries(strips_);
    for (int index = kIsSecond ? entries.Next() : unit.entry; index < unit.end;
         index = kIsSecond ? entries.Next() : unit.end) {
      const Entry entry = chosen_.entries[index];
      const Sums sums = SumEntry<phase>(unit, index, entry);
      if constexpr (!kIsSecond) {
        PutSums<phase>(buffer, entry.tokens, sums);
      } else if constexpr (kDense) {
        AddChosen(entry, sums, all);
      } else {
        AddWeighted(entry, sums, buffer);
      }
    }
    if (kDense && kIsSecond) PutSums<phase>(buffer, tokens_.num_all(), all);
  }
  // Returns the sums of this wave's pieces of an entry's strip.
  template <Phase phase>
  __device__ __forceinline__ Sums SumEntry(const Unit& unit, int index, const Entry& entry) {
    const int pieces = strips_.PiecesOf(phase, index);
    const int first = strips_.template FirstPiece<kWaves>(phase, index, pieces, device::Wave());
    const bool plain = kMixed && strips_.IsShared(index);
    const Rows rows = RowsOf<phase>(index, entry);
    const Scales scales = ScalesOf<phase>(unit, entry);
    Sums sums = FirstSums<phase>(unit, index, entry, first);
#pragma unroll 1
    for (int piece = first; piece < pieces; piece = StripsType::template NextPiece<kWaves>(piece)) {
      Multiply<phase>(plain, piece, rows, scales, sums);
    }
    return sums;
  }

  // Returns what a strip's sums begin with: the wave with the first piece has the biases, if any.
  template <Phase phase>
  __device__ __forceinline__ Sums FirstSums(const Unit& unit, int index, const Entry& entry,
                                            int first) const {
    if constexpr (!Weights::kParameters) return {};
    constexpr bool kIsFirst = phase == Phase::kFirst;
    Sums sums = {};
    const float* const biases = kIsFirst ? p_.routed.first_bias : p_.routed.second_bias;
    if (biases == nullptr || first != 0 || strips_.IsShared(index)) return sums;
    const int rows = kIsFirst ? 2 * p_.routed.columns : p_.layout.hidden;
#pragma unroll
    for (int i = 0; i < kTilesOf<phase> * 4; ++i) {
      const int row = unit.strip * kRowsOf<phase> + i / 4 * kMmaRows + RowMma::SumRow(i % 4);
      const float bias =
          row < rows ? biases[static_cast<int64_t>(entry.expert) * rows + row] : 0.0F;
#pragma unroll
      for (int n = 0; n < kTiles; ++n) sums.of[n][i / 4][i % 4] = bias;
    }
    return sums;
  }

  // Adds the products with the next piece of the ring, which is piece `piece` of a strip. `plain`:
  // of weights of the dtype, whatever Weights is.
  template <Phase phase>
  __device__ __forceinline__ void Multiply(bool plain, int piece, const Rows& rows,
                                           const Scales& scales, Sums& sums) {
    // Loaded before the wait for the piece; not those of the shared experts, for which there are no
    // registers.
    const Piece<Weights> tokens = TokensOf<phase>(plain, piece, rows);
    float of_half[2] = {};
    if (!plain) LoadScales(scales, piece, of_half);
    const char* const data = ring_.Take();
    if (plain) {
      AddTiles<phase, Plain>(data, Piece<Plain>(rows.Of(0), piece, rows.columns), piece, rows,
                             of_half, sums);
    } else {
      AddTiles<phase, Weights>(data, tokens, piece, rows, of_half, sums);
    }
  }
  // `first`: of the first tile.
  template <Phase phase, typename W>
  // NOLINTNEXTLINE(readability-function-size)
  static __device__ __forceinline__ void AddTiles(const char* data, const Piece<W>& first,
                                                  int piece, const Rows& rows,
                                                  const float (&of_half)[2], Sums& sums) {
    Add<phase, W>(data, first, of_half, sums.of[0]);
#pragma unroll
    for (int n = 1; n < kTiles; ++n) {
      if (n * RowMma::Tokens() >= rows.tokens) break;
      Add<phase, W>(data, Piece<W>(rows.Of(n), piece, rows.columns), of_half, sums.of[n]);
    }
  }

  // Whether all entries have the same tokens, so that a wave that multiplies the same piece of each
  // need not load them again.
  template <Phase phase>
  static constexpr bool KeepsTokens() {
    return kDense && phase == Phase::kFirst && !Weights::kSharedExperts;
  }
  // Returns the first tile's tokens of a piece.
  template <Phase phase>
  __device__ __forceinline__ Piece<Weights> TokensOf(bool plain, int piece, const Rows& rows) {
    if constexpr (KeepsTokens<phase>()) {
      if (kept_piece_ != piece) kept_ = Piece<Weights>(rows.Of(0), piece, rows.columns);
      kept_piece_ = piece;
      return kept_;
    }
    return Piece<Weights>(plain ? nullptr : rows.Of(0), piece, rows.columns);
  }

  template <Phase phase>
  __device__ __forceinline__ Rows RowsOf(int index, const Entry& entry) const {
    Rows rows;
    rows.columns = strips_.Columns(phase, index);
    rows.tokens = entry.tokens;
    const bool shared = strips_.IsShared(index);
    constexpr bool kIsFirst = phase == Phase::kFirst;
    rows.base = kIsFirst ? tokens_.rows() : GatedRows(shared);
    // A rank has a part of the shared experts' columns.
    if (!kIsFirst && shared) rows.base += strips_.SharedColumn() * 2;
#pragma unroll
    for (int n = 0; n < kTiles; ++n) {
      const int i = n * RowMma::Tokens() + RowMma::Token();
      rows.offsets[n] = Rows::kNone;
      if (i >= entry.tokens || !(KeepsTokens<phase>() || IsChosen(entry, i))) continue;
      rows.offsets[n] =
          kIsFirst ? tokens_.OffsetOf(TokenOf(entry, i)) : GatedOffset(shared, entry, i);
    }
    return rows;
  }

  template <Phase phase>
  __device__ __forceinline__ Scales ScalesOf(const Unit& unit, const Entry& entry) const {
    if constexpr (!Weights::kScaled) return {};
    constexpr bool kIsFirst = phase == Phase::kFirst;
    const auto groups = [](int columns) { return (columns + kScaleGroup - 1) / kScaleGroup; };
    const int of_columns = groups(p_.routed.columns);
    const int of_hidden = groups(p_.layout.hidden);
    if (kIsFirst) {
      const float* const gate = static_cast<const float*>(p_.routed.first_scales) +
                                (static_cast<int64_t>(entry.expert) * 2 * of_columns +
                                 strips_.ColumnOf(unit) / kScaleGroup) *
                                    of_hidden;
      return {{gate, gate + static_cast<int64_t>(of_columns) * of_hidden}};
    }
    const float* const scales = static_cast<const float*>(p_.routed.second_scales) +
                                (static_cast<int64_t>(entry.expert) * of_hidden +
                                 unit.strip * StripsType::kSecondRows / kScaleGroup) *
                                    of_columns;
    return {{scales, scales}};
  }
  static __device__ __forceinline__ void LoadScales(const Scales& scales, int piece,
                                                    float (&of_half)[2]) {
    if constexpr (Weights::kScaled) {
      of_half[0] = scales.half[0][piece];
      of_half[1] = scales.half[1][piece];
    }
  }

  // ---- sums of the waves

  __device__ __forceinline__ float* BufferOf(int number) const {
    return sums_ + number % kBuffers * kWaves * kMost * kPieceRows;
  }
  // Returns a wave's sums of the 16 rows of a token, or of an entry's pair.
  static __device__ __forceinline__ float* SumsOf(float* buffer, int wave, int index) {
    return buffer + (wave * kMost + index) * kPieceRows;
  }
  template <Phase phase>
  static __device__ __forceinline__ void PutSums(float* buffer, int count, const Sums& sums) {
#pragma unroll
    for (int n = 0; n < kTiles; ++n) {
#pragma unroll
      for (int i = 0; i < kTilesOf<phase> * 4; ++i) {
        const int index = n * RowMma::Tokens() + RowMma::SumToken(i % 4);
        if (index >= count) continue;
        SumsOf(buffer, device::Wave(), index)[i / 4 * kMmaRows + RowMma::SumRow(i % 4)] =
            sums.of[n][i / 4][i % 4];
      }
    }
  }
  // Adds a quad of rows over all waves.
  static __device__ __forceinline__ float4 AddWaves(float* buffer, int index, int first_row) {
    float4 sum = {0, 0, 0, 0};
#pragma unroll
    for (int wave = 0; wave < kWaves; ++wave) {
      const float4 v = *reinterpret_cast<const float4*>(SumsOf(buffer, wave, index) + first_row);
      AddQuad(v, sum);
    }
    return sum;
  }
  // Whether the wave adds up the sums of unit `number`, with more than one buffer.
  static __device__ __forceinline__ bool IsAdder(int number) {
    return device::Wave() == number % kWaves;
  }
  // Calls `use(i)` for i of [0, n), behind the barrier after which the sums of unit `number` are
  // there: by one wave, another for each unit, if the others can go on meanwhile.
  template <typename Use>
  static __device__ __forceinline__ void ForRows(int number, int n, Use use) {
    if constexpr (kBuffers == 1) {
      for (int i = static_cast<int>(threadIdx.x); i < n; i += static_cast<int>(blockDim.x)) use(i);
      __syncthreads();
    } else if (IsAdder(number)) {
      for (int i = device::Lane(); i < n; i += device::kWaveSize) use(i);
    }
  }

  // ---- pairs

  __device__ __forceinline__ bool IsChosen(const Entry& entry, int index) const {
    return !kDense ||
           std::bit_cast<uint32_t>(chosen_.pair_weights[entry.first_pair + index]) != kNotChosen;
  }
  __device__ __forceinline__ int TokenOf(const Entry& entry, int index) const {
    return kDense ? index : chosen_.pair_tokens[entry.first_pair + index];
  }
  // The row of an entry's pair between the products: GatedOffset bytes from GatedRows.
  __device__ __forceinline__ char* GatedRows(bool shared) const {
    return shared ? p_.shared_h : p_.h;
  }
  __device__ __forceinline__ int GatedOffset(bool shared, const Entry& entry, int index) const {
    if (shared) return index * p_.shared_experts.columns * 2;
    return (entry.first_pair + index) * p_.routed.columns * 2;
  }

  // ---- gate and up

  // Whether an expert has a column between the products: the last strip may have fewer.
  __device__ __forceinline__ bool HasColumn(bool shared, int column) const {
    return kRowTiles == 1 || column < (shared ? p_.shared_experts : p_.routed).columns;
  }
  // ---- down

  // Adds the sums of the tokens that chose the entry: another's may be infinite.
  __device__ __forceinline__ void AddChosen(const Entry& entry, const Sums& sums, Sums& all) const {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int token = RowMma::SumToken(i);
      if (token >= tokens_.num_all()) continue;
      const float weight = chosen_.pair_weights[entry.first_pair + token];
      if (std::bit_cast<uint32_t>(weight) == kNotChosen) continue;
#pragma unroll
      for (int r = 0; r < kTilesOf<Phase::kSecond>; ++r) {
        all.of[0][r][i] = all.of[0][r][i] + weight * sums.of[0][r][i];
      }
    }
  }

  // Without dense pairs, tokens' sums are in shared memory.
  __device__ __forceinline__ void ClearSums(float* buffer) const {
    for (int i = device::Lane(); i < tokens_.num_all() * kPieceRows; i += device::kWaveSize) {
      SumsOf(buffer, device::Wave(), 0)[i] = 0.0F;
    }
    device::SyncWave();
  }
  __device__ __forceinline__ void AddWeighted(const Entry& entry, const Sums& sums,
                                              float* buffer) const {
#pragma unroll
    for (int n = 0; n < kTiles; ++n) {
#pragma unroll
      for (int i = 0; i < kTilesOf<Phase::kSecond> * 4; ++i) {
        const int pair = n * RowMma::Tokens() + RowMma::SumToken(i % 4);
        if (pair >= entry.tokens) continue;
        const int token = chosen_.pair_tokens[entry.first_pair + pair];
        float* const sum =
            SumsOf(buffer, device::Wave(), token) + i / 4 * kMmaRows + RowMma::SumRow(i % 4);
        *sum = *sum + chosen_.pair_weights[entry.first_pair + pair] * sums.of[n][i / 4][i % 4];
      }
    }
    device::SyncWave();  // the next entry may have a token in another lane
  }
  // Four columns of a token's output, or of this rank's part of it.
  __device__ __forceinline__ void StoreOutput(const Protocol& protocol, int token, int column,
                                              const float4& sum) const {
    if (p_.layout.num_ranks == 1) {
      StoreRounded<Codec>(p_, token, column, sum);
      return;
    }
    const Tokens::Place place = Tokens::PlaceOf(token);
    float* const to = protocol.PartialOf(place.rank, place.number) + column;
    device::StoreStream(reinterpret_cast<device::Vec16*>(to), std::bit_cast<device::Vec16>(sum));
  }

  const DecodeParams& p_;
  const Tokens& tokens_;
  const Chosen& chosen_;
  const StripsType& strips_;
  Ring& ring_;
  float* const sums_;
  Piece<Weights> kept_;  // tokens of gate and up
  int kept_piece_ = -1;
};

}  // namespace octet::decode

#endif  // OCTET_KERNELS_DECODE_PRODUCTS_H_
