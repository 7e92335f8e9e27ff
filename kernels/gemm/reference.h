// What a grouped product must be: computed in float64 on the host, with a bound on how far float32
// sums may lie from it.
#ifndef OCTET_KERNELS_GEMM_REFERENCE_H_
#define OCTET_KERNELS_GEMM_REFERENCE_H_

#include <cstdint>

#include "absl/types/span.h"
#include "octet/grouped_gemm.h"

namespace octet {

// The operands of a product, on the host. The elements of a and b are bits of config.dtype.
struct HostGemm {
  GroupedGemmConfig config;
  absl::Span<const uint16_t> a;       // [rows][K]
  absl::Span<const uint16_t> b;       // [L][N][K]
  absl::Span<const float> bias;       // [L][N] or empty
  absl::Span<const float> row_scale;  // [rows] or empty
};

// An element of the output before it is rounded: |exact - value| <= error for every order of
// float32 sums. Not finite if the inputs make it so.
struct GemmExpectation {
  double value;
  double error;
};

// The element of `row`, which is one of `expert`'s, in the output's column `column`. The bound of a
// sum is (K + 2) · 2^-24 · Σ|a||b|, as long as Σ|a||b| is below the largest float32; silu() adds
// 2^-16 of its result.
GemmExpectation ExpectedElement(const HostGemm& gemm, int expert, int64_t row, int column);

// Whether `bits` is what some number within the bound rounds to; infinity for infinity, NaN for
// NaN.
bool MeetsExpectation(const GemmExpectation& expected, DType dtype, uint16_t bits);

}  // namespace octet

#endif  // OCTET_KERNELS_GEMM_REFERENCE_H_
