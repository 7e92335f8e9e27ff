#include "kernels/oracle/gemm_reference.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <limits>

#include "octet/fp4_format.h"
#include "octet/fp8_format.h"
#include "octet/fp8_scale.h"
#include "octet/gemm_tiles.h"
#include "octet/native_fp8.h"
#include "octet/types/weight_format.h"

namespace octet {
namespace {

constexpr double kUnitRoundoff = 0x1p-24;    // of float32
constexpr double kSiluUnderflow = 0x1p-119;  // absolute, where exp(-x) exceeds float32
constexpr int kGroup = 8;                    // columns of gate, then of up
constexpr int kSignificandBits = 23;         // of float32, behind the leading one
constexpr double kSmallestFloat = 0x1p-149;
constexpr size_t kColumnsAtOnce = 32;  // of K, that a matrix unit multiplies 8-bit floats of

template <typename T>
T Load(const uint8_t* bytes, size_t index) {
  T value;
  std::memcpy(&value, bytes + index * sizeof(T), sizeof(T));
  return value;
}

// Scale `index` of a row of them.
double ScaleAt(const GroupedGemmConfig& config, const uint8_t* row, size_t index) {
  return config.scale_format == ScaleFormat::kUe8m0 ? ScaleFromUe8m0(row[index])
                                                    : Load<float>(row, index);
}

// Returns the sum of products of 16-bit operands.
GemmExpectation PlainSum(const HostGemm& gemm, size_t row, size_t weight_row) {
  const DType dtype = gemm.config.dtype;
  const auto k = static_cast<size_t>(gemm.config.k);
  const uint8_t* const a = gemm.a.data() + row * k * sizeof(uint16_t);
  const uint8_t* const b = gemm.b.data() + weight_row * k * sizeof(uint16_t);
  double sum = 0;
  double magnitude = 0;
  for (size_t i = 0; i < k; ++i) {
    const double product = static_cast<double>(FloatFromBits(dtype, Load<uint16_t>(a, i))) *
                           static_cast<double>(FloatFromBits(dtype, Load<uint16_t>(b, i)));
    sum += product;
    magnitude += std::abs(product);
  }
  return {sum, (gemm.config.k + 2) * kUnitRoundoff * magnitude};
}

// Sums of products of 8-bit floats, as a matrix unit may compute them.
struct Fp8Sum {
  double sum = 0;
  double magnitude = 0;
  double error = 0;

  // Adds the products of some columns of K, at most as many as a matrix unit adds at once.
  void Add(absl::Span<const double> products) {
    double largest = std::abs(sum) + error;
    for (const double product : products) {
      sum += product;
      magnitude += std::abs(product);
      largest = std::max(largest, std::abs(product));
    }
    if constexpr (kFp8SumBits < kSignificandBits) {
      // Each addend is cut at the last place that remains of the largest.
      error += static_cast<double>(products.size() + 1) * std::ldexp(largest, -kFp8SumBits);
    }
  }
};

// Sums of 128 columns of K, each of which is scaled before it is added in float32.
class ScaledTotal {
 public:
  void Add(const Fp8Sum& group, double scale) {
    const double error = group.error + (kGemmScaleGroup + 2) * kUnitRoundoff * group.magnitude;
    value_ += group.sum * scale;
    // A product of scales is a float32, perhaps a subnormal one.
    error_ += error * std::abs(scale) + group.magnitude * kSmallestFloat;
    magnitude_ += (group.magnitude + error) * std::abs(scale);
    ++groups_;
  }
  GemmExpectation Get() const {
    return {value_, error_ + (groups_ + 2) * kUnitRoundoff * magnitude_};
  }

 private:
  double value_ = 0;
  double error_ = 0;
  double magnitude_ = 0;
  double groups_ = 0;
};

// Returns the sum of products of 8-bit operands with scales.
GemmExpectation ScaledSum(const HostGemm& gemm, size_t row, size_t weight_row, size_t scale_row) {
  const auto k = static_cast<size_t>(gemm.config.k);
  const auto words = static_cast<size_t>(gemm.config.row_scale_words());
  const uint8_t* const a = gemm.a.data() + row * k;
  const uint8_t* const b = gemm.b.data() + weight_row * k;
  const uint8_t* const a_scales = gemm.a_scales.data() + row * words * sizeof(float);
  const uint8_t* const b_scales = gemm.b_scales.data() + scale_row * words * sizeof(float);
  ScaledTotal total;
  for (size_t begin = 0; begin < k; begin += kGemmScaleGroup) {
    const size_t end = std::min(begin + kGemmScaleGroup, k);
    Fp8Sum group;
    for (size_t i = begin; i < end; i += kColumnsAtOnce) {
      double products[kColumnsAtOnce];
      const size_t count = std::min(kColumnsAtOnce, end - i);
      for (size_t j = 0; j < count; ++j) {
        products[j] = static_cast<double>(FloatFromFp8(NativeFp8{a[i + j]})) *
                      static_cast<double>(FloatFromFp8(NativeFp8{b[i + j]}));
      }
      group.Add({products, count});
    }
    total.Add(group, ScaleAt(gemm.config, a_scales, begin / kGemmScaleGroup) *
                         ScaleAt(gemm.config, b_scales, begin / kGemmScaleGroup));
  }
  return total.Get();
}

// Returns by how much a converted weight may be wrong: 64 columns of the product and 128 of K, from
// `begin` on, become 8-bit floats times one power of two where matrix units add so few bits.
double ConversionError(const HostGemm& gemm, size_t weight_row, size_t begin) {
  if constexpr (kFp8SumBits >= kSignificandBits) return 0;
  constexpr size_t kColumns = 64;
  constexpr size_t kBlock = kMxBlock;
  constexpr uint8_t kNan = 0xff;
  const auto n = static_cast<size_t>(gemm.config.n);
  const size_t words = static_cast<size_t>(gemm.config.scale_words()) * sizeof(uint32_t);
  const size_t end = std::min(begin + kGemmScaleGroup, static_cast<size_t>(gemm.config.k));
  const size_t first = weight_row / n * n + weight_row % n / kColumns * kColumns;
  const size_t last = std::min(first + kColumns, (weight_row / n + 1) * n);
  uint8_t largest = 0;
  uint8_t smallest = kNan;
  for (size_t row = first; row < last; ++row) {
    for (size_t block = begin / kBlock; block * kBlock < end; ++block) {
      const uint8_t exponent = gemm.b_scales[row * words + block];
      if (exponent == kNan) continue;
      largest = std::max(largest, exponent);
      smallest = std::min(smallest, exponent);
    }
  }
  constexpr int kExact = 14;  // powers of two
  return largest - smallest <= kExact ? 0 : std::ldexp(ScaleFromUe8m0(largest), -kExact - 2);
}

// Returns the sum of products of 8-bit rows with scales and MXFP4 weights.
GemmExpectation Fp8ConvertedSum(const HostGemm& gemm, size_t row, size_t weight_row) {
  const auto k = static_cast<size_t>(gemm.config.k);
  const WeightFormat format = gemm.config.weight_format();
  const uint8_t* const a = gemm.a.data() + row * k;
  const uint8_t* const a_scales =
      gemm.a_scales.data() +
      row * static_cast<size_t>(gemm.config.row_scale_words()) * sizeof(uint32_t);
  const auto* const b =
      reinterpret_cast<const std::byte*>(gemm.b.data()) + format.Bytes(weight_row * k);
  const uint8_t* const b_scales =
      gemm.b_scales.data() +
      weight_row * static_cast<size_t>(gemm.config.scale_words()) * sizeof(uint32_t);
  ScaledTotal total;
  for (size_t begin = 0; begin < k; begin += kGemmScaleGroup) {
    const size_t end = std::min(begin + kGemmScaleGroup, k);
    const double conversion = ConversionError(gemm, weight_row, begin);
    Fp8Sum group;
    double of_conversion = 0;
    for (size_t i = begin; i < end; i += kColumnsAtOnce) {
      double products[kColumnsAtOnce];
      const size_t count = std::min(kColumnsAtOnce, end - i);
      for (size_t j = 0; j < count; ++j) {
        const auto x = static_cast<double>(FloatFromFp8(NativeFp8{a[i + j]}));
        const float weight =
            LoadNumber(format.element, b, i + j) *
            ScaleFromUe8m0(b_scales[(i + j) / static_cast<size_t>(format.block_columns)]);
        products[j] = x * static_cast<double>(weight);
        of_conversion += std::abs(x) * conversion;
      }
      group.Add({products, count});
    }
    group.error += of_conversion;
    total.Add(group, ScaleAt(gemm.config, a_scales, begin / kGemmScaleGroup));
  }
  return total.Get();
}

// Returns the sum of products of rows of the dtype and weights with scales of their own.
GemmExpectation ConvertedSum(const HostGemm& gemm, size_t row, size_t weight_row) {
  const auto k = static_cast<size_t>(gemm.config.k);
  const WeightFormat format = gemm.config.weight_format();
  const uint8_t* const a = gemm.a.data() + row * k * sizeof(uint16_t);
  const auto* const b =
      reinterpret_cast<const std::byte*>(gemm.b.data()) + format.Bytes(weight_row * k);
  const uint8_t* const scales =
      gemm.b_scales.data() +
      weight_row * static_cast<size_t>(gemm.config.scale_words()) * sizeof(uint32_t);
  double sum = 0;
  double magnitude = 0;
  for (size_t i = 0; i < k; ++i) {
    // Numbers beyond float32 are infinities.
    const float weight = LoadNumber(format.element, b, i) *
                         ScaleFromUe8m0(scales[i / static_cast<size_t>(format.block_columns)]);
    const double product =
        static_cast<double>(FloatFromBits(gemm.config.dtype, Load<uint16_t>(a, i))) *
        static_cast<double>(weight);
    sum += product;
    magnitude += std::abs(product);
  }
  return {sum, (gemm.config.k + 2) * kUnitRoundoff * magnitude};
}

// The row of b_scales that an expert's column of the product belongs to.
size_t ScaleRowOf(const HostGemm& gemm, int expert, int column) {
  const int rows = gemm.config.weight_scale_rows();
  int row = column / kGemmScaleGroup;
  if (gemm.config.activation == GemmActivation::kSwiGlu) {
    const bool up = column / kGroup % 2 == 1;
    const int own_column = column / (2 * kGroup) * kGroup + column % kGroup;
    row = own_column / kGemmScaleGroup + (up ? rows / 2 : 0);
  }
  return static_cast<size_t>(expert) * static_cast<size_t>(rows) + static_cast<size_t>(row);
}

GemmExpectation SumOf(const HostGemm& gemm, size_t row, size_t weight_row, size_t scale_row) {
  const WeightFormatInfo& weights = InfoOf(gemm.config.weight_format());
  if (weights.quantizes_rows) return ScaledSum(gemm, row, weight_row, scale_row);
  if (gemm.config.fp8_rows) return Fp8ConvertedSum(gemm, row, weight_row);
  return weights.format.has_scales() ? ConvertedSum(gemm, row, weight_row)
                                     : PlainSum(gemm, row, weight_row);
}

// Element `column` of the product, with the bias.
GemmExpectation Sum(const HostGemm& gemm, int expert, int64_t row, int column) {
  const auto weight_row = static_cast<size_t>(expert) * static_cast<size_t>(gemm.config.n) +
                          static_cast<size_t>(column);
  const auto own_row = static_cast<size_t>(row);
  auto [sum, error] = SumOf(gemm, own_row, weight_row, ScaleRowOf(gemm, expert, column));
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
  const SwiGlu& swiglu = gemm.config.swiglu;
  // Cutting moves two numbers together, if at all.
  const double limit = swiglu.limit;
  const double cut = gate.value > limit ? limit : gate.value;
  const double most = up.value > limit ? limit : up.value;
  const double raised = (most < -limit ? -limit : most) + static_cast<double>(swiglu.up_offset);
  const double raised_error =
      swiglu.up_offset == 0 ? up.error : up.error + kUnitRoundoff * (std::abs(raised) + up.error);
  const double silu = cut / (1 + std::exp(-static_cast<double>(swiglu.alpha) * cut));
  // The product with alpha is rounded, too.
  const double exponent_error = swiglu.alpha == 1.0F ? 0 : kUnitRoundoff * std::abs(cut);
  const double silu_error = kSiluSlope * (gate.error + exponent_error) +
                            kSiluError * (std::abs(silu) + gate.error) + kSiluUnderflow;
  const double value = silu * raised;
  const double error =
      silu_error * (std::abs(raised) + raised_error) + std::abs(silu) * raised_error;
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

bool MeetsExpectation(const GemmExpectation& expected, float got) {
  if (std::isnan(expected.value)) return std::isnan(got);
  const auto value = static_cast<double>(got);
  if (std::isinf(expected.value)) return value == expected.value;
  const double error = expected.error + kSmallestFloat;
  if (!std::isinf(value)) return std::abs(value - expected.value) <= error;
  return std::signbit(value) == std::signbit(expected.value) &&
         std::abs(expected.value) + error > static_cast<double>(std::numeric_limits<float>::max());
}

float OutputElement(const GroupedGemmConfig& config, const void* out, size_t index) {
  const auto* const bytes = static_cast<const uint8_t*>(out);
  return config.output == GemmOutput::kFloat32
             ? Load<float>(bytes, index)
             : FloatFromBits(config.dtype, Load<uint16_t>(bytes, index));
}

bool OutputMeets(const GroupedGemmConfig& config, const GemmExpectation& expected, const void* out,
                 size_t index) {
  if (config.output == GemmOutput::kFloat32) {
    return MeetsExpectation(expected, OutputElement(config, out, index));
  }
  return MeetsExpectation(expected, config.dtype,
                          Load<uint16_t>(static_cast<const uint8_t*>(out), index));
}

}  // namespace octet
