// The scales of FP8 operands of matrix products, as kernels of all platforms read them.
#ifndef OCTET_RUNTIME_PLATFORM_GEMM_SCALES_H_
#define OCTET_RUNTIME_PLATFORM_GEMM_SCALES_H_

#include <bit>
#include <cstdint>

#include "octet/fp8_scale.h"
#include "octet/gemm_tiles.h"
#include "runtime/platform/gemm_call.h"

namespace octet::device {

// Consecutive rows of scales: of rows of A, or of groups of 128 rows of B.
class ScaleRows {
 public:
  ScaleRows() = default;
  static constexpr ScaleRows OfRows(const GemmScales& scales, int64_t first) {
    return {scales.a, first, scales};
  }
  // Returns the rows of an expert's columns of the product, from `column` on. If gated, they begin
  // with that of gate; the row of up is UpRow() further.
  template <bool gated>
  static constexpr ScaleRows OfColumns(const GemmOperands& p, int expert, int column) {
    constexpr int kGroupColumns = gated ? 2 * kGemmScaleGroup : kGemmScaleGroup;
    const int rows = GemmScaleRows(p.n, gated);
    return {p.scales.b, static_cast<int64_t>(expert) * rows + column / kGroupColumns, p.scales};
  }
  static constexpr int UpRow(const GemmOperands& p) { return GemmScaleRows(p.n, true) / 2; }

  // Returns the scale of row `row`, counted from the first, for columns of K from 128 * group on.
  constexpr float At(int row, int group) const { return ScaleOf(WordAt(row, group), group); }
  // The same in two steps, of which the second waits for the first one's load.
  constexpr uint32_t WordAt(int row, int group) const {
    return first_[row * row_words_ + (ue8m0_ ? group / kExponentsPerWord : group)];
  }
  // Always inlined: kernels with many uses would otherwise call it, and those for AMD then spill.
  [[gnu::always_inline]] constexpr float ScaleOf(uint32_t word, int group) const {
    const auto exponent = static_cast<uint8_t>(word >> (group % kExponentsPerWord * 8));
    return ue8m0_ ? ScaleFromUe8m0(exponent) : std::bit_cast<float>(word);
  }

  // The same where the format is known: the words of a row, and which one has a scale.
  constexpr const uint32_t* RowAt(int row) const {
    return first_ + static_cast<int64_t>(row) * row_words_;
  }
  template <bool ue8m0>
  static constexpr int WordOf(int group) {
    return ue8m0 ? group / kExponentsPerWord : group;
  }
  template <bool ue8m0>
  [[gnu::always_inline]] static constexpr float ScaleOf(uint32_t word, int group) {
    const auto exponent = static_cast<uint8_t>(word >> (group % kExponentsPerWord * 8));
    return ue8m0 ? ScaleFromUe8m0(exponent) : std::bit_cast<float>(word);
  }

 private:
  static constexpr int kExponentsPerWord = 4;

  constexpr ScaleRows(const void* rows, int64_t first, const GemmScales& scales)
      : first_(static_cast<const uint32_t*>(rows) + first * scales.row_words),
        row_words_(scales.row_words),
        ue8m0_(scales.ue8m0) {}

  const uint32_t* first_;
  int row_words_;
  bool ue8m0_;
};

}  // namespace octet::device

#endif  // OCTET_RUNTIME_PLATFORM_GEMM_SCALES_H_
