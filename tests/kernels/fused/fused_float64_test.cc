// RoutedExperts against float64.
#include <gtest/gtest.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "kernels/fused/products.h"
#include "kernels/oracle/gemm_reference.h"
#include "kernels/oracle/reference.h"
#include "kernels/types/fp8_rows.h"
#include "octet/routed_experts.h"
#include "runtime/base/status_macros.h"
#include "tests/kernels/fused/fused_harness.h"
#include "tests/kernels/fused/routed_experts_fixture.h"
#include "tests/support/host_copy.h"
#include "tests/support/node/node_fixture.h"

namespace octet {
namespace {

// Holds h against float64, and y against what float64 makes of the h that the GPU has.
class Float64Check {
 public:
  Float64Check(FusedHarness& harness, const StepInput& input, const FusedOutputs& outputs)
      : harness_(harness), config_(harness.problem().config), outputs_(outputs[0]) {
    sent_ = input.sent();
    num_ranks_ = harness.problem().num_ranks;
    for (int rank = 0; rank < num_ranks_; ++rank) {
      received_.push_back(ReferenceDispatch(config_.ep, sent_, rank));
    }
  }

  // The first element of h that is wrong.
  std::string FirstWrongH(int rank) const {
    const ReferenceReceived& received = received_[Index(rank)];
    const GroupedGemmConfig first = FirstProduct(config_, num_ranks_);
    for (size_t row = 0; row < received.sources.size(); ++row) {
      const RowSource source = received.sources[row];
      if (source.rank < 0) continue;
      RankInput one = sent_[Index(source.rank)].Tokens(config_.ep, Index(source.token), 1);
      std::vector<uint8_t> fp8(Index(config_.ep.hidden));
      std::vector<uint32_t> scales(Index(config_.ep.scale_words()));
      if (config_.ep.dispatch_format == DispatchFormat::kQuantizedFp8) {
        ReferenceQuantize(config_.ep, one.x, absl::MakeSpan(fp8), absl::MakeSpan(scales));
        one.fp8 = fp8;
        one.scales = scales;
      }
      const HostGemm gemm = FirstGemm(rank, first, one, received.row_weights[row]);
      for (int c = 0; c < config_.intermediate; ++c) {
        const GemmExpectation want = ExpectedElement(gemm, source.local_expert, 0, c);
        const uint16_t got = H(rank, row)[Index(c)];
        if (MeetsExpectation(want, config_.ep.dtype, got)) continue;
        return absl::StrCat("rank ", rank, " h row ", row, " column ", c, " is ",
                            FloatFromBits(config_.ep.dtype, got), " and should be ", want.value,
                            " +- ", want.error);
      }
    }
    return "";
  }

  // The first element of y that is wrong, given h.
  std::string FirstWrongY(int rank) const {
    for (int token = 0; token < sent_[Index(rank)].num_tokens; ++token) {
      for (int c = 0; c < config_.ep.hidden; ++c) {
        const GemmExpectation want = ExpectedY(rank, token, c);
        const uint16_t got =
            outputs_[Index(rank)].y[Index(token) * Index(config_.ep.hidden) + Index(c)];
        if (MeetsExpectation(want, config_.ep.dtype, got)) continue;
        return absl::StrCat("rank ", rank, " y token ", token, " column ", c, " is ",
                            FloatFromBits(config_.ep.dtype, got), " and should be ", want.value,
                            " +- ", want.error);
      }
    }
    return "";
  }

 private:
  static size_t Index(int i) { return static_cast<size_t>(i); }

  absl::Span<const uint16_t> H(int rank, size_t row) const {
    return absl::MakeConstSpan(outputs_[Index(rank)].h)
        .subspan(row * Index(config_.intermediate), Index(config_.intermediate));
  }

  HostGemm FirstGemm(int rank, const GroupedGemmConfig& config, const RankInput& one,
                     const float& weight) const {
    const GemmProblem& weights = harness_.weights(rank).first;
    const bool fp8 = config.format == GemmFormat::kFp8;
    const auto bytes_of = [](const auto& span) {
      return absl::MakeConstSpan(reinterpret_cast<const uint8_t*>(span.data()),
                                 span.size() * sizeof(span[0]));
    };
    HostGemm gemm = {.config = config,
                     .a = fp8 ? one.fp8 : bytes_of(one.x),
                     .b = weights.b,
                     .bias = weights.bias,
                     .a_scales = bytes_of(one.scales),
                     .b_scales = weights.b_scales};
    if (config_.weights_in == WeightsIn::kFirstProduct) {
      gemm.row_scale = absl::MakeConstSpan(&weight, 1);
    }
    return gemm;
  }

  // Every output is rounded to the dtype, multiplied by its weight and added in float32; with
  // kPerRank the ranks' sums are rounded to the dtype.
  GemmExpectation ExpectedY(int origin, int token, int column) const {
    const double unit = config_.ep.dtype == DType::kFloat16 ? 0x1p-11 : 0x1p-8;
    constexpr double kTiny = 0x1p-24;  // more than what rounding a subnormal float16 adds
    const RankInput& input = sent_[Index(origin)];
    double value = 0;
    double error = 0;
    double magnitude = 0;
    for (int rank = 0; rank < num_ranks_; ++rank) {
      const ReferenceReceived& received = received_[Index(rank)];
      for (size_t row = 0; row < received.sources.size(); ++row) {
        const RowSource source = received.sources[row];
        if (source.rank != origin || source.token != token) continue;
        const GemmExpectation out = SecondElement(rank, row, source.local_expert, column);
        const double weight = config_.weights_in == WeightsIn::kFirstProduct
                                  ? 1.0
                                  : input.topk_weights[Index(token * config_.ep.topk + source.k)];
        const double rounded = std::abs(out.value) + out.error;
        value += weight * out.value;
        error += std::abs(weight) * (out.error + unit * rounded + kTiny);
        magnitude += std::abs(weight) * (rounded * (1 + unit) + kTiny);
      }
    }
    const std::vector<uint16_t>& y_bias = harness_.weights(origin).y_bias;
    if (!y_bias.empty()) {
      const double bias = FloatFromBits(config_.ep.dtype, y_bias[Index(column)]);
      value += bias;
      magnitude += std::abs(bias);
    }
    const double sums = (config_.ep.topk + num_ranks_ + 2) * 0x1p-24;
    return {value, error + (unit + sums) * (magnitude + error) + config_.ep.topk * kTiny};
  }

  GemmExpectation SecondElement(int rank, size_t row, int local_expert, int column) const {
    const GemmProblem& weights = harness_.weights(rank).second;
    const absl::Span<const uint16_t> h = H(rank, row);
    HostGemm gemm = {
        .config = SecondProduct(config_, num_ranks_),
        .a = absl::MakeConstSpan(reinterpret_cast<const uint8_t*>(h.data()), 2 * h.size()),
        .b = weights.b,
        .bias = weights.bias,
        .b_scales = weights.b_scales};
    std::vector<uint8_t> fp8(h.size());
    std::vector<uint32_t> scales(static_cast<size_t>(gemm.config.scale_words()));
    if (gemm.config.format == GemmFormat::kFp8) {
      EpConfig quantized;
      quantized.hidden = config_.intermediate;
      quantized.scale_format = config_.ep.scale_format;
      quantized.scale_group = 128;
      ReferenceQuantize(quantized, h, absl::MakeSpan(fp8), absl::MakeSpan(scales));
      gemm.a = fp8;
      gemm.a_scales = BytesOfAll(scales);
    }
    return ExpectedElement(gemm, local_expert, 0, column);
  }

  FusedHarness& harness_;
  const RoutedExpertsConfig config_;
  const std::vector<FusedOutput>& outputs_;
  std::vector<RankInput> sent_;
  int num_ranks_;
  std::vector<ReferenceReceived> received_;
};

TEST_P(FusionTest, MeetsFloat64) {
  const bool unfused =
      GetParam().dispatch_gemm == Fusion::kNone && GetParam().gemm_combine == Fusion::kNone;
  const uint32_t shapes = unfused ? 6 : GetParam().gemm_combine == Fusion::kNone ? 5 : 3;
  for (uint32_t shape = 0; shape < shapes; ++shape) {
    FusedProblem problem = Small(2);
    problem.bias = shape != 1;
    problem.seed = 70 + shape;
    RoutedExpertsConfig& config = problem.config;
    if (shape == 1) config.ep.dispatch_format = DispatchFormat::kFp8;
    if (shape == 1) config.ep.hidden = 272;
    if (shape == 1) config.activation = GemmActivation::kNone;
    if (shape == 2) config.ep.dtype = DType::kFloat16;
    if (shape == 2) config.ep.combine_order = CombineOrder::kFlat;
    if (shape > 0 && shape < 5) config.weights_in = WeightsIn::kFirstProduct;
    if (shape == 5) config.ep.strategy = Strategy::kLowLatency;
    if (shape == 5) config.ep.dispatch_format = DispatchFormat::kQuantizedFp8;
    if (shape == 5) config.ep.hidden = 272;
    if (shape >= 3) config.second_format = GemmFormat::kFp8;
    if (shape >= 3) config.intermediate = 144;
    if (shape == 3) config.ep.scale_format = ScaleFormat::kUe8m0;
    if (shape == 4) config.ep.dispatch_format = DispatchFormat::kFp8;
    if (shape == 4) config.ep.hidden = 272;
    if (shape == 4 && config.dispatch_gemm == Fusion::kNone) {
      config.ep.high_throughput.expert_alignment = 8;
    }
    Make(problem);
    if (HasFatalFailure() || IsSkipped()) return;
    const StepInput input = harness().Draw({6, 4}, 0.1);
    const absl::StatusOr<FusedOutputs> outputs = harness().Fused({input});
    ASSERT_OK(outputs.status());
    const Float64Check check(harness(), input, *outputs);
    for (const int rank : {0, 1}) {
      EXPECT_EQ(check.FirstWrongH(rank), "") << problem.Text();
      EXPECT_EQ(check.FirstWrongY(rank), "") << problem.Text();
    }
  }
}

}  // namespace
}  // namespace octet
