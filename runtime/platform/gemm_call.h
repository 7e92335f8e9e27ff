// What the tile_gemm.h of all platforms have in common: the operands of a grouped product, one tile
// of it, and the arguments of TileGemm::Run().
#ifndef OCTET_RUNTIME_PLATFORM_GEMM_CALL_H_
#define OCTET_RUNTIME_PLATFORM_GEMM_CALL_H_

#include <cstdint>

namespace octet::device {

// The elements of A, B and the output.
enum class GemmElement { kBf16, kFp16 };

// out[row] = A[row] · B[expert of the row]ᵀ. All pointers are 16-byte aligned; n, k and out_columns
// are multiples of 8.
struct GemmOperands {
  const void* a;  // [rows][k]
  const void* b;  // [experts][n][k]
  void* out;      // [rows][out_columns]
  int64_t rows;   // that there is memory for
  int experts;
  int n;
  int k;
  int out_columns;  // n, or n / 2 if the epilogue is gated
};

// The product of some rows and some columns of one expert.
struct GemmTile {
  int expert;
  int row;     // the first
  int rows;    // from there to the last row of the expert, perhaps more than a tile has
  int column;  // the first, of B
};

// The arguments of TileGemm::Run().
template <typename MapsType, typename EpilogueType>
struct GemmCall {
  using Maps = MapsType;
  using Epilogue = EpilogueType;

  Maps maps;
  GemmOperands operands;
  Epilogue epilogue;
  int32_t* next_unit;  // 0 before and after the launch
};

}  // namespace octet::device

#endif  // OCTET_RUNTIME_PLATFORM_GEMM_CALL_H_
