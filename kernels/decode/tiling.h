// How a block divides its work, by the most tokens that all ranks together may have.
#ifndef OCTET_KERNELS_DECODE_TILING_H_
#define OCTET_KERNELS_DECODE_TILING_H_

#include "kernels/decode/layout.h"
#include "row_mma.h"
#include "runtime/platform/gemm_call.h"

namespace octet::decode {

// The platform's choices, which do not depend on the elements.
using Mma = device::RowMma<device::GemmElement::kBf16>;
inline constexpr int kWaves = Mma::kWaves;

// Kernels are compiled for so many tokens.
inline constexpr int kFewTokens = 8;
inline constexpr int kSomeTokens = 16;
constexpr int CapacityFor(int tokens) {
  return tokens <= kFewTokens ? kFewTokens : tokens <= kSomeTokens ? kSomeTokens : kMostTokens;
}

// Groups of tokens that are multiplied together.
constexpr int TilesFor(int tokens) { return (tokens + Mma::kMinTokens - 1) / Mma::kMinTokens; }
// Whether pairs are dense (chosen.h).
constexpr bool IsDense(int tokens) { return TilesFor(tokens) == 1; }
// A wave loads a piece at once: some columns of each of some rows, if the routed experts' weights
// have so many bits. 128 columns cost fewer instructions than 64, but need larger pieces.
constexpr int PieceRowBytes(int tokens, int bits) {
  return tokens > kSomeTokens || bits < 8 ? 128 : 128 * bits / 8;
}
// Pieces that follow each other and go to the same wave: as many as have the columns of one piece
// of fewer tokens, so that sums are added in the same order however many tokens there may be.
constexpr int PiecesOfTurn(int tokens, int bits) {
  return PieceRowBytes(kFewTokens, bits) / PieceRowBytes(tokens, bits);
}
// Bytes of a slot: a piece, and behind it 16 of MXFP4's scales for each row.
constexpr int SlotBytes(int rows, int row_bytes, int bits) {
  return rows * (bits < 8 ? row_bytes + 16 : row_bytes);
}
// What a piece takes beside its products is more than they are with few tokens and small weights:
// so it has rows for two of them, if there is room for two such pieces.
constexpr int PieceRows(int tokens, int bits) {
  constexpr int kPlainBits = 16;
  const bool fits = Mma::kRing > 2 * SlotBytes(2 * kMmaRows, PieceRowBytes(tokens, bits), bits);
  return tokens <= kFewTokens && bits < kPlainBits && fits ? 2 * kMmaRows : kMmaRows;
}
// Those of down: with FP8 a layer often has no more than one strip of 16 rows for each block.
constexpr int SecondRows(int tokens, int bits) {
  return bits < 8 ? PieceRows(tokens, bits) : kMmaRows;
}
// What strips of down have instead where blocks then have fewer rows in all.
constexpr int FewerRows(int tokens, int bits) {
  const int rows = SecondRows(tokens, bits);
  return rows > kMmaRows ? rows - kMmaRows / 2 : rows;
}
constexpr int SlotBytesFor(int tokens, int bits) {
  return SlotBytes(PieceRows(tokens, bits), PieceRowBytes(tokens, bits), bits);
}
// The pieces that a wave has room for, two at least: while it multiplies one, the next one comes.
// With more rows sums need the room of a third.
constexpr int SlotsFor(int tokens, int bits) {
  const int ring = tokens > kSomeTokens ? Mma::kSmallRing : Mma::kRing;
  const int slots = ring / SlotBytesFor(tokens, bits);
  return slots < 2 || PieceRows(tokens, bits) > kMmaRows ? 2 : slots;
}
// Buffers for the sums of the waves: with two, one wave adds up what is in one of them while the
// others go on.
constexpr int BuffersFor(int tokens) { return tokens > kSomeTokens ? 1 : 2; }

}  // namespace octet::decode

#endif  // OCTET_KERNELS_DECODE_TILING_H_
