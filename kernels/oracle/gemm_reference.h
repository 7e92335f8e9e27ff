// What a grouped product must be: computed in float64 on the host, with a bound on how far float32
// sums may lie from it.
#ifndef OCTET_KERNELS_ORACLE_GEMM_REFERENCE_H_
#define OCTET_KERNELS_ORACLE_GEMM_REFERENCE_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "octet/grouped_gemm.h"

namespace octet {

// A kernel's silu: how steep it is at most (1.0998), and what instructions for exp and division may
// be off, relative to the result.
inline constexpr double kSiluSlope = 1.1;
inline constexpr double kSiluError = 0x1p-16;

// The operands of a product, on the host, as bytes where their type depends on the config.
struct HostGemm {
  GroupedGemmConfig config;
  absl::Span<const uint8_t> a;              // [rows][K]
  absl::Span<const uint8_t> b;              // [L][N][K]
  absl::Span<const float> bias = {};        // [L][N] or empty
  absl::Span<const float> row_scale = {};   // [rows] or empty
  absl::Span<const uint8_t> a_scales = {};  // [rows][row_scale_words()] words, or empty
  absl::Span<const uint8_t> b_scales = {};  // [L][weight_scale_rows()][scale_words] words, or empty
};

// The bytes of a vector of numbers.
template <typename T>
absl::Span<const uint8_t> BytesOfAll(const std::vector<T>& values) {
  return {reinterpret_cast<const uint8_t*>(values.data()), values.size() * sizeof(T)};
}

// An element of the output before it is rounded: |exact - value| <= error for every order of
// float32 sums. Not finite if the inputs make it so.
struct GemmExpectation {
  double value;
  double error;
};

// The element of `row`, which is one of `expert`'s, in the output's column `column`. The bound of a
// sum is (K + 2) · 2^-24 · Σ|a||b|, as long as Σ|a||b| is below the largest float32; silu() adds
// 2^-16 of its result. With FP8 operands it is the same for K = 128 columns that share a scale, or
// what kFp8SumBits (octet/native_fp8.h) means for them; scaling them and adding them in float32
// adds (groups + 2) · 2^-24 · Σ|a||b|.
GemmExpectation ExpectedElement(const HostGemm& gemm, int expert, int64_t row, int column);

// Whether `bits` is what some number within the bound rounds to; infinity for infinity, NaN for
// NaN.
bool MeetsExpectation(const GemmExpectation& expected, DType dtype, uint16_t bits);
// The same for an output that is not rounded.
bool MeetsExpectation(const GemmExpectation& expected, float got);

// Element `index` of an output in memory, which begins at `out`.
float OutputElement(const GroupedGemmConfig& config, const void* out, size_t index);
// Whether that element is what was expected.
bool OutputMeets(const GroupedGemmConfig& config, const GemmExpectation& expected, const void* out,
                 size_t index);

}  // namespace octet

#endif  // OCTET_KERNELS_ORACLE_GEMM_REFERENCE_H_
