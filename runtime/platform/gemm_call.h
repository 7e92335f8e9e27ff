// What the tile_gemm.h of all platforms have in common: the operands of a grouped product, one tile
// of it, and the arguments of TileGemm::Run().
#ifndef OCTET_RUNTIME_PLATFORM_GEMM_CALL_H_
#define OCTET_RUNTIME_PLATFORM_GEMM_CALL_H_

#include <cstddef>
#include <cstdint>

namespace octet::device {

// The elements of A and B, and of the output unless they have scales (or Epilogue::kFloat32).
enum class GemmElement {
  kBf16,
  kFp16,
  kFp8,       // NativeFp8, with scales (GemmScales); the output is bfloat16
  kMxfp4,     // of B, with scales (octet/fp4_format.h); A and the output are bfloat16
  kFp8Mxfp4,  // A as with kFp8, B as with kMxfp4; the output is bfloat16
};
// The elements of A, their bytes, the bits of those of B, and the elements of the output.
constexpr GemmElement RowElementOf(GemmElement element) {
  if (element == GemmElement::kFp8Mxfp4) return GemmElement::kFp8;
  return element == GemmElement::kMxfp4 ? GemmElement::kBf16 : element;
}
constexpr int BytesOf(GemmElement element) {
  return RowElementOf(element) == GemmElement::kFp8 ? 1 : 2;
}
constexpr bool HasMxfp4Weights(GemmElement element) {
  return element == GemmElement::kMxfp4 || element == GemmElement::kFp8Mxfp4;
}
constexpr int WeightBitsOf(GemmElement element) {
  return HasMxfp4Weights(element) ? 4 : 8 * BytesOf(element);
}
constexpr GemmElement OutElementOf(GemmElement element) {
  const GemmElement rows = RowElementOf(element);
  return rows == GemmElement::kFp8 ? GemmElement::kBf16 : rows;
}

// Rows of A and groups of 128 rows of B have a row of scales each: one for every 128 columns of K,
// float32 or 8-bit exponents (ScaleFormat::kUe8m0). Sums over 64 or 128 columns are multiplied
// by both scales before they are added. If the epilogue is gated, groups are of 128 rows of gate,
// or of up, which alternate by eight in B.
//
// Each row of B in MXFP4 has scales of its own: an 8-bit exponent for every 32 columns of K.
// Elements are multiplied by them before they are multiplied by those of A, or, with kFp8Mxfp4, as
// GroupedGemm says (octet/grouped_gemm.h).
struct GemmScales {
  const void* a;  // [rows][row_words], nullptr without scales
  // [experts][GemmScaleRows()][row_words]; with MXFP4, [experts][n][mxfp4_words].
  const void* b;
  int row_words;  // 4-byte words of a row of `a`, and of one of `b` if that has no MXFP4
  bool ue8m0;
  int mxfp4_words;  // of a row of `b` with MXFP4, a multiple of four
};

// out[row] = A[row] · B[expert of the row]ᵀ. All pointers are 16-byte aligned; n, k and out_columns
// are multiples of 8; with kFp8, k of 16, with MXFP4 of 32.
struct GemmOperands {
  const void* a;  // [rows][k]
  const void* b;  // [experts][n][k]
  void* out;      // [rows][out_columns]
  int64_t rows;   // that there is memory for
  int experts;
  int n;
  int k;
  int out_columns;    // n, or n / 2 if the epilogue is gated
  GemmScales scales;  // of all but 16-bit operands
};

// The product of some rows and some columns of one expert.
struct GemmTile {
  int expert;
  int row;     // the first
  int rows;    // from there to the last row of the expert, perhaps more than a tile has
  int column;  // the first, of B
};

// What a block does for a tile, and on which of its tracks it does so.
enum class GemmWork {
  kWait,      // for the tile's number, its rows and, in what multiplies, the first operands
  kMultiply,  // from there until the sums are complete
  kEpilogue,  // until the stores of the output are handed over
  kLoad,      // until the last operands are asked for, waits for free stages included
};
enum class GemmTrack { kMultiply, kLoad };
inline constexpr int kGemmTracks = 2;

// The arguments of TileGemm::Run(). The README states what Trace is: a base, since an empty one
// takes no room among a kernel's parameters.
template <typename MapsType, typename EpilogueType, typename TraceType>
struct GemmCall : TraceType {
  using Maps = MapsType;
  using Epilogue = EpilogueType;

  Maps maps;
  GemmOperands operands;
  Epilogue epilogue;
  int32_t* next_unit;  // 0 before and after the launch
};

// What free waves do beside a product that has nothing for them to do.
struct NothingBeside {
  constexpr void operator()(int /*wave*/) const {}
};

// The shape of a launch, of Gemm::kThreads threads in each block.
struct TileGemmLaunch {
  int blocks;
  size_t shared_bytes;  // dynamic, of a block
  bool cooperative;     // all blocks become resident at once, or the launch fails
};

}  // namespace octet::device

#endif  // OCTET_RUNTIME_PLATFORM_GEMM_CALL_H_
