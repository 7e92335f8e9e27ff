#include "kernels/gemm/reference.h"

#include <cmath>
#include <limits>

namespace octet {
namespace {

constexpr double kUnitRoundoff = 0x1p-24;  // of float32
// What instructions for exp and division may be off, relative to the result; and absolute, where
// exp(-x) exceeds float32.
constexpr double kSiluError = 0x1p-16;
constexpr double kSiluUnderflow = 0x1p-119;
constexpr double kSiluSlope = 1.1;  // the steepest is 1.0998
constexpr int kGroup = 8;           // columns of gate, then of up

// Element `column` of the product, with the bias.
GemmExpectation Sum(const HostGemm& gemm, int expert, int64_t row, int column) {
  const GroupedGemmConfig& config = gemm.config;
  const auto k = static_cast<size_t>(config.k);
  const size_t weight_row =
      static_cast<size_t>(expert) * static_cast<size_t>(config.n) + static_cast<size_t>(column);
  const uint16_t* const a = gemm.a.data() + static_cast<size_t>(row) * k;
  const uint16_t* const b = gemm.b.data() + weight_row * k;
  double sum = 0;
  double magnitude = 0;
  for (size_t i = 0; i < k; ++i) {
    const double product = static_cast<double>(FloatFromBits(config.dtype, a[i])) *
                           static_cast<double>(FloatFromBits(config.dtype, b[i]));
    sum += product;
    magnitude += std::abs(product);
  }
  double error = (config.k + 2) * kUnitRoundoff * magnitude;
  if (!gemm.bias.empty()) {
    sum += static_cast<double>(gemm.bias[weight_row]);
    error += kUnitRoundoff * (std::abs(sum) + error);
  }
  return {sum, error};
}

GemmExpectation Scaled(const GemmExpectation& x, const HostGemm& gemm, int64_t row) {
  if (gemm.row_scale.empty()) return x;
  const auto scale = static_cast<double>(gemm.row_scale[static_cast<size_t>(row)]);
  const double value = x.value * scale;
  const double error = x.error * std::abs(scale);
  return {value, error + kUnitRoundoff * (std::abs(value) + error)};
}

// The dtype's number nearest to x moved to the neighbour in float32 in direction `towards`, so that
// rounding twice does not exclude what rounding once gives.
float RoundedBeyond(DType dtype, double x, float towards) {
  return FloatFromBits(dtype, BitsFromFloat(dtype, std::nextafter(static_cast<float>(x), towards)));
}

}  // namespace

GemmExpectation ExpectedElement(const HostGemm& gemm, int expert, int64_t row, int column) {
  if (gemm.config.activation == GemmActivation::kNone) {
    return Scaled(Sum(gemm, expert, row, column), gemm, row);
  }
  const int gate_column = column / kGroup * 2 * kGroup + column % kGroup;
  const GemmExpectation gate = Sum(gemm, expert, row, gate_column);
  const GemmExpectation up = Scaled(Sum(gemm, expert, row, gate_column + kGroup), gemm, row);
  const double silu = gate.value / (1 + std::exp(-gate.value));
  const double silu_error =
      kSiluSlope * gate.error + kSiluError * (std::abs(silu) + gate.error) + kSiluUnderflow;
  const double value = silu * up.value;
  const double error = silu_error * (std::abs(up.value) + up.error) + std::abs(silu) * up.error;
  return {value, error + kUnitRoundoff * (std::abs(value) + error)};
}

bool MeetsExpectation(const GemmExpectation& expected, DType dtype, uint16_t bits) {
  const float got = FloatFromBits(dtype, bits);
  if (std::isnan(expected.value)) return std::isnan(got);
  if (std::isinf(expected.value)) return static_cast<double>(got) == expected.value;
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  return got >= RoundedBeyond(dtype, expected.value - expected.error, -kInfinity) &&
         got <= RoundedBeyond(dtype, expected.value + expected.error, kInfinity);
}

}  // namespace octet
