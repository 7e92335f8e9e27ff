// The tile shapes of matrix products, by what they are for. Shared by host and device.
#ifndef OCTET_GEMM_TILES_H_
#define OCTET_GEMM_TILES_H_

namespace octet {

// The names tell what a shape is good at; its rows and columns are the platform's. On an H200:
enum class GemmTiles {
  kWide,    // many rows per expert: 128 rows by 256 columns; FP8 rows: by 192; MXFP4: by 128
  kMedium,  // 128 rows by 192 columns, where that divides N better; FP8: by 128; MXFP4: as kWide
  kFew64,   // few rows per expert, so that reading the weights decides: 64 rows by 128 columns
  kFew32,   // the same with 32 rows
  kFew16,   // the same with 16 rows
};

// The columns of K, and of N, that one scale of FP8 operands is for.
inline constexpr int kGemmScaleGroup = 128;

// Returns the number of rows of scales of an expert's `n` columns of the product: one for each 128
// columns. If gated, gate and up alternate, and there is one row for each 128 columns of gate, then
// one for each 128 of up.
constexpr int GemmScaleRows(int n, bool gated) {
  const int columns = gated ? n / 2 : n;
  return (gated ? 2 : 1) * ((columns + kGemmScaleGroup - 1) / kGemmScaleGroup);
}

}  // namespace octet

#endif  // OCTET_GEMM_TILES_H_
