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
// Bytes of a piece's rows, and the pieces that a wave has room for, if the routed experts' weights
// have so many bits. 128 columns cost fewer instructions than 64, but need larger pieces.
constexpr int PieceRowBytes(int tokens, int bits) {
  return tokens > kSomeTokens || bits < 8 ? 128 : 128 * bits / 8;
}
constexpr int SlotsFor(int tokens, int bits) {
  const int ring = tokens > kSomeTokens ? Mma::kSmallRing : Mma::kRing;
  return ring / (kPieceRows * PieceRowBytes(tokens, bits));
}
// Bytes of a slot: a piece, and behind it a scale for each 16 bytes of it, if there are such scales.
constexpr int SlotBytes(int piece_row_bytes, bool of_blocks) {
  const int piece = kPieceRows * piece_row_bytes;
  return of_blocks ? piece + piece / 16 : piece;
}
// Buffers for the sums of the waves: with two, one wave adds up what is in one of them while the
// others go on.
constexpr int BuffersFor(int tokens) { return tokens > kSomeTokens ? 1 : 2; }

}  // namespace octet::decode

#endif  // OCTET_KERNELS_DECODE_TILING_H_
