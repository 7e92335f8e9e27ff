#include "kernels/oracle/layer_reference.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <initializer_list>
#include <limits>
#include <utility>

#include "kernels/layer/layer_config.h"
#include "kernels/layer/pack_weights.h"
#include "kernels/oracle/gemm_reference.h"
#include "kernels/types/fp8_rows.h"
#include "octet/ep_config.h"
#include "octet/fp8.h"
#include "octet/native_fp8.h"
#include "runtime/base/size.h"

namespace octet {
namespace {

constexpr double kFloatRoundoff = 0x1p-24;
constexpr double kFp8Roundoff = 0x1p-4;
constexpr double kFp8Underflow = 0x1p-10;  // half the smallest number, times the scale

double Roundoff(DType dtype) { return dtype == DType::kFloat16 ? 0x1p-11 : 0x1p-8; }
double Underflow(DType dtype) { return dtype == DType::kFloat16 ? 0x1p-25 : 0x1p-134; }

double Largest(DType dtype) { return dtype == DType::kFloat16 ? 65504 : 0x1.fep127; }

// `x` rounded to the dtype.
Bounded Rounded(const Bounded& x, DType dtype) {
  const double magnitude = std::abs(x.value) + x.error;
  return {x.value, x.error + Roundoff(dtype) * magnitude + Underflow(dtype),
          x.may_overflow || magnitude > Largest(dtype)};
}

constexpr bool kCutsFp8Sums = kFp8SumBits < 23;  // to fewer bits than float32 has

// The error of a float32 sum of products relative to the sum of their magnitudes.
double SumError(size_t terms, bool of_fp8) {
  const double error = (static_cast<double>(terms) + 2) * kFloatRoundoff;
  if (!of_fp8 || !kCutsFp8Sums) return error;
  // Each addend of a matrix unit's sum is cut at the last place that remains of the largest.
  return error + std::ldexp(kGemmScaleGroup + 1.0, -kFp8SumBits);
}

// A matrix as the kernels see it, times rows of FP8 or not.
class MatrixRows {
 public:
  MatrixRows(const HostTensor& tensor, const WeightFormat& format, bool of_fp8 = false)
      : packed_(PackMatrix(tensor, format)),
        format_(format),
        of_fp8_(of_fp8),
        columns_(Size(tensor.columns)) {}

  // A product of these matrices, whose rows alternate, converts their weights to FP8 (GroupedGemm):
  // sets by how much they may move, as if all of them were converted together.
  static void Convert(std::initializer_list<MatrixRows*> matrices) {
    if constexpr (!kCutsFp8Sums) return;
    float largest = 0;
    float smallest = std::numeric_limits<float>::infinity();
    for (const MatrixRows* const matrix : matrices) {
      if (!matrix->of_fp8_ || InfoOf(matrix->format_).quantizes_rows) return;
      for (const float scale : matrix->packed_.scales) {  // NaN is neither
        if (scale > largest) largest = scale;
        if (scale < smallest) smallest = scale;
      }
    }
    constexpr float kExact = 0x1p-14F;
    if (smallest >= kExact * largest) return;
    for (MatrixRows* const matrix : matrices) matrix->conversion_ = std::ldexp(largest, -16);
  }

  double At(int row, size_t column) const {
    const size_t index = Size(row) * columns_ + column;
    if (!format_.has_scales()) {
      const auto* const data = reinterpret_cast<const std::byte*>(packed_.elements.data());
      return LoadNumber(format_.element, data, index);
    }
    const size_t block = Size(row / format_.block_rows) * format_.BlocksOfColumns(columns_) +
                         column / Size(format_.block_columns);
    const float scale = packed_.scales[block];
    if (InfoOf(format_).quantizes_rows) {
      return static_cast<double>(FloatFromFp8Bits(Fp8Form::kNative, packed_.elements[index])) *
             static_cast<double>(scale);
    }
    const auto* const data = reinterpret_cast<const std::byte*>(packed_.elements.data());
    return LoadNumber(format_.element, data, index) * scale;  // infinite beyond float32
  }

  // The product of a row with x, as a kernel computes it in float32.
  Bounded Times(int row, absl::Span<const Bounded> x) const {
    double sum = 0;
    double magnitude = 0;
    double error = 0;
    bool may_overflow = false;
    for (size_t i = 0; i < columns_; ++i) {
      may_overflow = may_overflow || x[i].may_overflow;
      const double weight = At(row, i);
      sum += weight * x[i].value;
      magnitude += std::abs(weight) * (std::abs(x[i].value) + x[i].error);
      const double size = std::abs(x[i].value) + x[i].error;
      error += std::abs(weight) * x[i].error + conversion_ * size;
      magnitude += conversion_ * size;
    }
    error += SumError(columns_, of_fp8_) * magnitude;
    return {sum, error, may_overflow || magnitude > std::numeric_limits<float>::max()};
  }

 private:
  const PackedMatrix packed_;
  const WeightFormat format_;
  const bool of_fp8_;
  const size_t columns_;
  double conversion_ = 0;
};

Bounded Activated(const Bounded& gate, const Bounded& up, const SwiGlu& swiglu) {
  // Cutting moves two numbers together, if at all.
  const double limit = swiglu.limit;
  const double cut = gate.value > limit ? limit : gate.value;
  const double most = up.value > limit ? limit : up.value;
  const double raised = (most < -limit ? -limit : most) + static_cast<double>(swiglu.up_offset);
  // Where parameters are not those that change nothing, each of their products and sums is rounded.
  const double raised_error =
      up.error + (swiglu.up_offset == 0 ? 0 : kFloatRoundoff * (std::abs(raised) + up.error));
  const double cut_error = gate.error + (swiglu.alpha == 1 ? 0 : kFloatRoundoff * std::abs(cut));
  const double silu = cut / (1 + std::exp(-static_cast<double>(swiglu.alpha) * cut));
  const double error = kSiluSlope * cut_error + kSiluError * (std::abs(silu) + gate.error);
  return {silu * raised, error * (std::abs(raised) + raised_error) + std::abs(silu) * raised_error,
          gate.may_overflow || up.may_overflow};
}

// `x` plus element `column` of a bias in float32, if there is one.
Bounded Biased(const Bounded& x, const HostTensor& bias, int column) {
  if (bias.empty()) return x;
  const double value = x.value + static_cast<double>(ElementOf(bias, 0, column));
  return {value, x.error + kFloatRoundoff * (std::abs(value) + x.error), x.may_overflow};
}

// Rows that are quantized in groups move by at most what the largest of a group allows.
void AddQuantization(std::vector<Bounded>& row) {
  for (size_t begin = 0; begin < row.size(); begin += kGemmScaleGroup) {
    const size_t end = std::min(begin + kGemmScaleGroup, row.size());
    double largest = 0;
    for (size_t i = begin; i < end; ++i) {
      largest = std::max(largest, std::abs(row[i].value) + row[i].error);
    }
    constexpr double kLargestFp8 = 240;  // the smaller of both forms'
    const double underflow = kFp8Underflow * largest / kLargestFp8;
    for (size_t i = begin; i < end; ++i) {
      row[i].error += kFp8Roundoff * (std::abs(row[i].value) + row[i].error) + underflow;
    }
  }
}

}  // namespace

bool Bounded::Holds(double got) const {
  if (may_overflow && !std::isfinite(got)) return true;
  if (std::isnan(value) || std::isnan(error)) return std::isnan(got);
  if (std::isinf(value) || std::isinf(error)) return std::isnan(got) || got == value;
  return std::abs(got - value) <= error;
}

bool LayerReference::HasFp8Rows() const {
  return QuantizesRows(config_) && config_.path != LayerPath::kDecode;
}

std::vector<Bounded> LayerReference::Logits(absl::Span<const uint16_t> x) const {
  std::vector<Bounded> row;
  row.reserve(x.size());
  for (const uint16_t bits : x) row.push_back({FloatFromBits(config_.dtype, bits), 0});
  std::vector<Bounded> logits;
  const MatrixRows router(weights_.router, PlainWeights(config_));
  for (int e = 0; e < config_.num_experts; ++e) {
    logits.push_back(Biased(router.Times(e, row), weights_.logit_bias, e));
  }
  if (config_.shared_gate) {
    logits.push_back(MatrixRows(weights_.shared_gate, PlainWeights(config_)).Times(0, row));
  }
  return logits;
}

std::vector<Bounded> LayerReference::Mlp(const MlpWeights& weights, absl::Span<const double> x,
                                         const WeightFormat& format, const SwiGlu& swiglu) const {
  const bool of_fp8 = &weights != &weights_.shared && HasFp8Rows();
  std::vector<Bounded> row;
  row.reserve(x.size());
  for (const double element : x) row.push_back({element, 0});
  std::vector<Bounded> between;
  {
    MatrixRows gate(weights.gate, format, of_fp8);
    MatrixRows up(weights.up, format, of_fp8);
    MatrixRows::Convert({&gate, &up});
    for (int i = 0; i < weights.gate.rows; ++i) {
      Bounded gate_product = Biased(gate.Times(i, row), weights.gate_bias, i);
      Bounded up_product = Biased(up.Times(i, row), weights.up_bias, i);
      for (Bounded* const product : {&gate_product, &up_product}) {
        if (roundings_.gate_up) *product = Rounded(*product, config_.dtype);
      }
      between.push_back(Rounded(Activated(gate_product, up_product, swiglu), config_.dtype));
    }
  }
  if (of_fp8) AddQuantization(between);
  MatrixRows down(weights.down, format, of_fp8);
  MatrixRows::Convert({&down});
  std::vector<Bounded> out;
  for (int i = 0; i < weights.down.rows; ++i) {
    out.push_back(Rounded(Biased(down.Times(i, between), weights.down_bias, i), config_.dtype));
  }
  return out;
}

std::vector<Bounded> LayerReference::Output(const Routed& token) const {
  const WeightFormat format = ExpertWeights(config_);
  const RoutedExpertsConfig experts = ExpertsConfig(config_);
  std::vector<double> x(token.x.size());
  std::transform(token.x.begin(), token.x.end(), x.begin(), [this](uint16_t bits) {
    return static_cast<double>(FloatFromBits(config_.dtype, bits));
  });
  // Experts get x, or x times its weight, and that quantized if rows are.
  std::vector<uint16_t> given(token.x.begin(), token.x.end());
  std::vector<double> quantized = x;
  for (size_t i = 0; config_.weighs_input && i < given.size(); ++i) {
    given[i] =
        BitsFromFloat(config_.dtype, FloatFromBits(config_.dtype, given[i]) * token.weights[0]);
    quantized[i] = static_cast<double>(FloatFromBits(config_.dtype, given[i]));
  }
  if (HasFp8Rows()) {
    std::vector<uint8_t> elements(token.x.size());
    std::vector<uint32_t> scales(Size(experts.ep.scale_words()));
    std::vector<float> values(token.x.size());
    ReferenceQuantize(experts.ep, given, absl::MakeSpan(elements), absl::MakeSpan(scales));
    Dequantize(experts.ep, elements, scales, absl::MakeSpan(values));
    quantized.assign(values.begin(), values.end());
  }
  // Added to an addend's error: its share of the float32 sums' roundings, and of the rounding of
  // its rank's sum and its node's, whose magnitudes are at most those of their addends together.
  const double once = Roundoff(config_.dtype);
  const double sums = 2.0 * static_cast<double>(token.experts.size()) * kFloatRoundoff +
                      (roundings_.node_sums ? (2 + once) * once : once);
  const double underflow = (roundings_.node_sums ? 2.0 : 1.0) * Underflow(config_.dtype);
  std::vector<Bounded> y(x.size());
  for (size_t k = 0; k < token.experts.size(); ++k) {
    if (token.experts[k] < 0) continue;  // a dropped choice
    const std::vector<Bounded> out =
        Mlp(weights_.experts[Size(token.experts[k])], quantized, format, config_.swiglu);
    const double weight = config_.weighs_input ? 1.0 : static_cast<double>(token.weights[k]);
    for (size_t i = 0; i < y.size(); ++i) {
      const double value = weight * out[i].value;
      const double error = std::abs(weight) * out[i].error;
      y[i].value += value;
      y[i].may_overflow = y[i].may_overflow || out[i].may_overflow;
      y[i].error += error + sums * (std::abs(value) + error) + underflow;
    }
  }
  for (Bounded& element : y) element = Rounded(element, config_.dtype);
  if (config_.shared_intermediate == 0) return y;
  const std::vector<Bounded> shared = Mlp(weights_.shared, x, PlainWeights(config_), SwiGlu());
  const double gate =
      config_.shared_gate ? 1 / (1 + std::exp(-static_cast<double>(token.shared_gate))) : 1.0;
  for (size_t i = 0; i < y.size(); ++i) {
    y[i].value += gate * shared[i].value;
    y[i].may_overflow = y[i].may_overflow || shared[i].may_overflow;
    y[i].error += gate * (shared[i].error + kSiluError * std::abs(shared[i].value));
    y[i] = Rounded(y[i], config_.dtype);
  }
  return y;
}

}  // namespace octet
