// The two products of a decode layer. Lanes bring weights through their wave's ring and tokens, or
// what lies between the products, through registers; each wave has the sums of its pieces, which
// are added over the waves in their order.
//
//   sums   [buffers][waves][tokens or pairs of an entry][16 rows], in shared memory
#ifndef OCTET_KERNELS_DECODE_PRODUCTS_H_
#define OCTET_KERNELS_DECODE_PRODUCTS_H_

#include <bit>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "device_ops.h"
#include "kernels/decode/chosen.h"
#include "kernels/decode/kernels.h"
#include "kernels/decode/layout.h"
#include "kernels/decode/pieces.h"
#include "kernels/decode/protocol.h"
#include "kernels/decode/strips.h"
#include "kernels/decode/tiling.h"
#include "kernels/decode/tokens.h"
#include "kernels/decode/weights.h"
#include "kernels/router/router_math.h"

namespace octet::decode {

// kMost: the most tokens of all ranks together.
template <typename Weights, int kMost>
class Products {
 public:
  using StripsType = Strips<Weights::kBytes>;
  using Ring = PieceRing<PieceWalk<StripsType, kWaves>, SlotsFor(kMost)>;

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

  // h[pair] = silu(gate · x) ⊙ (up · x) of this block's units.
  __device__ __forceinline__ void First() {
    Ahead ahead;
    if constexpr (kDense) ahead.tokens = Piece<Weights>(OwnRow(), device::Wave(), p_.layout.hidden);
    int number = 0;
    for (auto unit = strips_.FirstOfBlock(); strips_.Has(unit); strips_.Next(unit)) {
      const Entry entry = chosen_.entries[unit.entry];
      const bool shared = strips_.IsShared(unit.entry);
      const int column = strips_.ColumnOf(unit);
      Sums sums = {};
      if (kMixed && shared) {
        FirstOf<Plain>(entry, {}, ahead, sums);
      } else {
        FirstOf<Weights>(entry, FirstScales(entry, column), ahead, sums);
      }
      float* const buffer = BufferOf(number++);
      PutSums(buffer, entry.tokens, sums);
      __syncthreads();
      ForRows(number, entry.tokens * 2, [&](int i) {
        if (IsChosen(entry, i / 2)) {
          StoreGated(buffer, GatedRow(shared, entry, i / 2), i / 2, column, i % 2 * kQuad);
        }
      });
    }
  }

  // Σ weight · (down · h) of this block's columns of the output.
  __device__ __forceinline__ void Second(const Protocol& protocol) {
    int number = 0;
    for (int unit = static_cast<int>(blockIdx.x); unit < strips_.second_units();
         unit += static_cast<int>(gridDim.x)) {
      float* const buffer = BufferOf(number++);
      if constexpr (kDense) {
        SecondOfAll(unit, buffer);
      } else {
        SecondByEntries(unit, buffer);
      }
      __syncthreads();
      const int quads = Smaller(p_.layout.hidden - unit * kPieceRows, kPieceRows) / kQuad;
      ForRows(number, tokens_.num_all() * quads, [&](int i) {
        StoreOutput(protocol, i / quads, unit * kPieceRows + i % quads * kQuad,
                    AddWaves(buffer, i / quads, i % quads * kQuad));
      });
    }
  }

 private:
  using RowMma = device::RowMma<Weights::kElement>;
  using Plain = PlainWeights<Weights::kElement>;
  using Codec = CodecOf<Weights::kElement>::Type;
  template <typename W>
  using Piece = PieceTokens<W, RowMma>;

  static constexpr int kTiles = TilesFor(kMost);
  static constexpr bool kDense = IsDense(kMost);
  static constexpr int kBuffers = BuffersFor(kMost);
  static constexpr int kScaleGroup = 128;
  static constexpr bool kMixed = !std::is_same_v<Weights, Plain>;  // the shared experts are plain

  struct Sums {
    float of[kTiles][4];
  };
  // Scales of the pieces of a strip: those of its first eight rows, and of the others.
  struct Scales {
    const float* half[2];
  };
  // A lane's operands of its next piece. It loads them while it multiplies the one before.
  struct Ahead {
    Piece<Weights> tokens;
    float scales[2] = {};
  };

  template <typename W>
  static __device__ __forceinline__ int PiecesOf(int columns) {
    return (columns + W::kPieceColumns - 1) / W::kPieceColumns;
  }
  // Adds a piece's products.
  template <typename W>
  static __device__ __forceinline__ void Add(const char* data, const Piece<W>& tokens,
                                             const float (&of_half)[2], float (&sums)[4]) {
    if constexpr (W::kScaled) {
      float unscaled[4] = {};
      tokens.Multiply(data, unscaled);
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        sums[i] = sums[i] + unscaled[i] * of_half[RowMma::SumRow(i) / kGatedRows];
      }
    } else {
      tokens.Multiply(data, sums);
    }
  }

  template <typename W>
  static __device__ __forceinline__ void LoadScales(const Scales& scales, int piece,
                                                    float (&of_half)[2]) {
    if constexpr (W::kScaled) {
      of_half[0] = scales.half[0][piece];
      of_half[1] = scales.half[1][piece];
    }
  }

  // This lane's rows of an entry whose tokens are compacted: one for each tile.
  struct Rows {
    const char* of[kTiles];
    int columns;
    int tokens;
  };
  template <typename RowOfPair>
  static __device__ __forceinline__ Rows RowsOf(const Entry& entry, int columns, RowOfPair row) {
    Rows rows;
    rows.columns = columns;
    rows.tokens = entry.tokens;
#pragma unroll
    for (int n = 0; n < kTiles; ++n) {
      const int index = n * RowMma::Tokens() + RowMma::Token();
      rows.of[n] = index < entry.tokens ? row(index) : nullptr;
    }
    return rows;
  }
  // Adds the products of this wave's pieces of a strip, from `first` on.
  template <typename W>
  __device__ __forceinline__ void Multiply(int first, const Rows& rows, const Scales& scales,
                                           Sums& sums) const {
    for (int piece = first; piece < PiecesOf<W>(rows.columns); piece += kWaves) {
      const Piece<W> of_first(rows.of[0], piece, rows.columns);
      float of_half[2] = {};
      LoadScales<W>(scales, piece, of_half);
      const char* const data = ring_.Take();
      Add<W>(data, of_first, of_half, sums.of[0]);
#pragma unroll
      for (int n = 1; n < kTiles; ++n) {
        if (n * RowMma::Tokens() >= rows.tokens) break;
        Add<W>(data, Piece<W>(rows.of[n], piece, rows.columns), of_half, sums.of[n]);
      }
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
  static __device__ __forceinline__ void PutSums(float* buffer, int count, const Sums& sums) {
#pragma unroll
    for (int n = 0; n < kTiles; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int index = n * RowMma::Tokens() + RowMma::SumToken(i);
        if (index < count) SumsOf(buffer, device::Wave(), index)[RowMma::SumRow(i)] = sums.of[n][i];
      }
    }
  }
  // Adds a quad of rows over all waves.
  static __device__ __forceinline__ float4 AddWaves(float* buffer, int index, int first_row) {
    float4 sum = {0, 0, 0, 0};
#pragma unroll 4
    for (int wave = 0; wave < kWaves; ++wave) {
      const float4 v = *reinterpret_cast<const float4*>(SumsOf(buffer, wave, index) + first_row);
      AddQuad(v, sum);
    }
    return sum;
  }
  // Calls `use(i)` for i of [0, n), behind the barrier after which the sums of unit `number` are
  // there: by one wave, another for each unit, if the others can go on meanwhile.
  template <typename Use>
  static __device__ __forceinline__ void ForRows(int number, int n, Use use) {
    if constexpr (kBuffers == 1) {
      for (int i = static_cast<int>(threadIdx.x); i < n; i += static_cast<int>(blockDim.x)) use(i);
      __syncthreads();
    } else if (device::Wave() == number % kWaves) {
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
  // Returns the row of an entry's pair between the products.
  __device__ __forceinline__ char* GatedRow(bool shared, const Entry& entry, int index) const {
    if (shared) return p_.shared_h + static_cast<int64_t>(index) * p_.shared_experts.columns * 2;
    return p_.h + static_cast<int64_t>(entry.first_pair + index) * p_.routed.columns * 2;
  }

  // ---- gate and up

  // The token of this lane, which it brings to all entries.
  __device__ __forceinline__ const char* OwnRow() const {
    return RowMma::Token() < tokens_.num_all() ? tokens_.RowOf(RowMma::Token()) : nullptr;
  }
  template <typename W>
  __device__ __forceinline__ void FirstOf(const Entry& entry, const Scales& scales, Ahead& ahead,
                                          Sums& sums) const {
    const int columns = p_.layout.hidden;
    if constexpr (!kDense) {
      const Rows rows =
          RowsOf(entry, columns, [&](int i) { return tokens_.RowOf(TokenOf(entry, i)); });
      Multiply<W>(device::Wave(), rows, scales, sums);
    } else if constexpr (!std::is_same_v<W, Weights>) {
      Multiply<W>(device::Wave(), {{OwnRow()}, columns, entry.tokens}, scales, sums);
    } else {
      const char* const row = OwnRow();
      for (int piece = device::Wave(); piece < PiecesOf<W>(columns); piece += kWaves) {
        const Piece<W> tokens = ahead.tokens;
        float of_half[2] = {};
        LoadScales<W>(scales, piece, of_half);
        // Every unit has the same pieces.
        const bool last = piece + kWaves >= PiecesOf<W>(columns);
        ahead.tokens = Piece<W>(row, last ? device::Wave() : piece + kWaves, columns);
        Add<W>(ring_.Take(), tokens, of_half, sums.of[0]);
      }
    }
  }
  __device__ __forceinline__ Scales FirstScales(const Entry& entry, int column) const {
    if constexpr (!Weights::kScaled) return {};
    const int groups = (p_.routed.columns + kScaleGroup - 1) / kScaleGroup;
    const int pitch = (p_.layout.hidden + kScaleGroup - 1) / kScaleGroup;
    const float* const gate =
        p_.routed.first_scales +
        (static_cast<int64_t>(entry.expert) * 2 * groups + column / kScaleGroup) * pitch;
    return {{gate, gate + static_cast<int64_t>(groups) * pitch}};
  }
  // Four columns of the entry's pair `index`, from `column + first` on.
  static __device__ __forceinline__ void StoreGated(float* buffer, char* row, int index, int column,
                                                    int first) {
    const float4 gate = AddWaves(buffer, index, first);
    const float4 up = AddWaves(buffer, index, kGatedRows + first);
    *reinterpret_cast<uint2*>(row + (column + first) * 2) =
        make_uint2(Codec::Pack(Gated(gate.x, up.x), Gated(gate.y, up.y)),
                   Codec::Pack(Gated(gate.z, up.z), Gated(gate.w, up.w)));
  }
  static __device__ __forceinline__ float Gated(float gate, float up) {
    return gate * Sigmoid(gate) * up;
  }

  // ---- down

  // Multiplies all routed entries in a row, so that the rows between the products are loaded ahead;
  // then the shared experts.
  __device__ __forceinline__ void SecondOfAll(int unit, float* buffer) const {
    using Walk = EntryWalk<StripsType, kWaves>;
    const int columns = p_.routed.columns;
    const int pieces = PiecesOf<Weights>(columns);
    Walk walk(strips_, pieces);  // one piece ahead
    Sums all = {};
    Ahead ahead;
    if (!walk.done()) LoadAhead(walk, unit, columns, ahead);
    while (!walk.done()) {
      const Ahead now = ahead;
      const Entry& entry = chosen_.entries[walk.entry()];
      walk.Next();
      if (!walk.done()) LoadAhead(walk, unit, columns, ahead);
      float sums[4] = {};
      Add<Weights>(ring_.Take(), now.tokens, now.scales, sums);
      AddChosen(entry, sums, all);
    }
    if (strips_.has_shared()) SecondOfShared(all);
    PutSums(buffer, tokens_.num_all(), all);
  }
  template <typename Walk>
  __device__ __forceinline__ void LoadAhead(const Walk& walk, int unit, int columns,
                                            Ahead& ahead) const {
    const Entry& entry = chosen_.entries[walk.entry()];
    const int token = RowMma::Token();
    const bool chosen = token < tokens_.num_all() && IsChosen(entry, token);
    ahead.tokens =
        Piece<Weights>(chosen ? GatedRow(false, entry, token) : nullptr, walk.piece(), columns);
    LoadScales<Weights>(SecondScales(entry, unit), walk.piece(), ahead.scales);
  }
  __device__ __forceinline__ void SecondOfShared(Sums& all) const {
    const int index = strips_.num_entries() - 1;
    const Entry& entry = chosen_.entries[index];
    const int columns = strips_.Columns(index);
    const int first = strips_.template FirstPiece<kWaves>(index, PiecesOf<Plain>(columns));
    const Rows rows = RowsOf(entry, columns, [&](int i) { return SharedRow(entry, i); });
    Sums sums = {};
    Multiply<Plain>(first, rows, {}, sums);
    AddChosen(entry, sums.of[0], all);
  }
  // This rank's part of the columns.
  __device__ __forceinline__ const char* SharedRow(const Entry& entry, int index) const {
    return GatedRow(true, entry, index) + strips_.SharedColumn() * 2;
  }
  // Adds the sums of the tokens that chose the entry: another's may be infinite.
  __device__ __forceinline__ void AddChosen(const Entry& entry, const float (&sums)[4],
                                            Sums& all) const {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int token = RowMma::SumToken(i);
      if (token >= tokens_.num_all()) continue;
      const float weight = chosen_.pair_weights[entry.first_pair + token];
      if (std::bit_cast<uint32_t>(weight) == kNotChosen) continue;
      all.of[0][i] = all.of[0][i] + weight * sums[i];
    }
  }

  // One entry after the other; tokens' sums are in shared memory.
  __device__ __forceinline__ void SecondByEntries(int unit, float* buffer) const {
    for (int i = device::Lane(); i < tokens_.num_all() * kPieceRows; i += device::kWaveSize) {
      SumsOf(buffer, device::Wave(), 0)[i] = 0.0F;
    }
    device::SyncWave();
    for (int index = 0; index < strips_.num_entries(); ++index) {
      const bool shared = strips_.IsShared(index);
      const int columns = strips_.Columns(index);
      const int pieces = shared ? PiecesOf<Plain>(columns) : PiecesOf<Weights>(columns);
      const int first = strips_.template FirstPiece<kWaves>(index, pieces);
      if (first >= pieces) continue;
      const Entry entry = chosen_.entries[index];
      Sums sums = {};
      if (shared) {
        const Rows rows = RowsOf(entry, columns, [&](int i) { return SharedRow(entry, i); });
        Multiply<Plain>(first, rows, {}, sums);
      } else {
        const Rows rows = RowsOf(entry, columns, [&](int i) { return GatedRow(false, entry, i); });
        Multiply<Weights>(first, rows, SecondScales(entry, unit), sums);
      }
      AddWeighted(entry, sums, buffer);
    }
  }
  __device__ __forceinline__ void AddWeighted(const Entry& entry, const Sums& sums,
                                              float* buffer) const {
#pragma unroll
    for (int n = 0; n < kTiles; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int pair = n * RowMma::Tokens() + RowMma::SumToken(i);
        if (pair >= entry.tokens) continue;
        const int token = chosen_.pair_tokens[entry.first_pair + pair];
        float* const sum = SumsOf(buffer, device::Wave(), token) + RowMma::SumRow(i);
        *sum = *sum + chosen_.pair_weights[entry.first_pair + pair] * sums.of[n][i];
      }
    }
    device::SyncWave();  // the next entry may have a token in another lane
  }
  __device__ __forceinline__ Scales SecondScales(const Entry& entry, int unit) const {
    if constexpr (!Weights::kScaled) return {};
    const int groups = (p_.layout.hidden + kScaleGroup - 1) / kScaleGroup;
    const int pitch = (p_.routed.columns + kScaleGroup - 1) / kScaleGroup;
    const float* const scales =
        p_.routed.second_scales +
        (static_cast<int64_t>(entry.expert) * groups + unit * kPieceRows / kScaleGroup) * pitch;
    return {{scales, scales}};
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
};

}  // namespace octet::decode

#endif  // OCTET_KERNELS_DECODE_PRODUCTS_H_
