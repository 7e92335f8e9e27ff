// FusedExperts against the same work as separate calls, to the bit, and against float64.
#include "octet/fused_experts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <fstream>
#include <functional>
#include <memory>
#include <optional>
#include <ostream>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "kernels/fused/products.h"
#include "kernels/oracle/gemm_reference.h"
#include "kernels/oracle/reference.h"
#include "kernels/tuning/tuning.h"
#include "kernels/types/fp8_rows.h"
#include "octet/graph.h"
#include "octet/topology.h"
#include "runtime/base/status_macros.h"
#include "runtime/node/schedule.h"
#include "tests/kernels/fused/fused_harness.h"
#include "tests/support/host_copy.h"
#include "tests/support/node/node_fixture.h"
#include "tests/support/scoped_environment.h"
#include "tests/support/strategy_variants.h"

namespace octet {
namespace {

using ::testing::HasSubstr;

// Ways in which the calls can be made of kernels.
struct Fusions {
  const char* name;
  Fusion dispatch_gemm;
  Fusion gemm_combine;
};
void PrintTo(const Fusions& fusions, std::ostream* out) { *out << fusions.name; }

constexpr Fusions kFusions[] = {{"none", Fusion::kNone, Fusion::kNone},
                                {"dispatch_tiles", Fusion::kTiles, Fusion::kNone},
                                {"combine_tiles", Fusion::kNone, Fusion::kTiles},
                                {"combine_serial", Fusion::kNone, Fusion::kSerial},
                                {"combine_epilogue", Fusion::kNone, Fusion::kEpilogue},
                                {"both_tiles", Fusion::kTiles, Fusion::kTiles}};

// Whether one strategy alone has them.
bool NeedHighThroughput(const Fusions& fusions) {
  return fusions.dispatch_gemm != Fusion::kNone || fusions.gemm_combine != Fusion::kNone;
}

int NumGpus() {
  const absl::StatusOr<Topology> topology = DiscoverTopology();
  return topology.ok() ? static_cast<int>(topology->gpus.size()) : 0;
}

FusedProblem SmallProblem(int num_ranks) {
  FusedProblem problem;
  problem.num_ranks = num_ranks;
  problem.config.ep.num_experts = 3 * num_ranks;
  problem.config.ep.topk = 3;
  problem.config.ep.hidden = 136;
  problem.config.ep.max_tokens_per_rank = 9;
  problem.config.ep.strategy = Strategy::kHighThroughput;
  problem.config.intermediate = 24;
  return problem;
}

// The same with a second product of FP8 operands.
FusedProblem SmallFp8Problem(int num_ranks) {
  FusedProblem problem = SmallProblem(num_ranks);
  problem.config.second_format = GemmFormat::kFp8;
  problem.config.intermediate = 144;
  return problem;
}

// Random shapes: what `fusions` can do, from everything that FusedExperts takes.
FusedProblem DrawProblem(uint32_t seed, const Fusions& fusions) {
  std::mt19937 rng(seed);
  const auto draw = [&rng](int least, int most) {
    return std::uniform_int_distribution<int>(least, most)(rng);
  };
  FusedProblem problem;
  problem.seed = seed;
  problem.num_ranks = draw(1, 8);
  problem.bias = draw(0, 2) == 0;
  FusedExpertsConfig& config = problem.config;
  config.dispatch_gemm = fusions.dispatch_gemm;
  config.gemm_combine = fusions.gemm_combine;
  config.intermediate = 8 * draw(1, 12);
  config.activation = draw(0, 1) == 0 ? GemmActivation::kNone : GemmActivation::kSwiGlu;
  EpConfig& ep = config.ep;
  ep.num_experts = problem.num_ranks * draw(1, 5);
  ep.topk = draw(1, std::min(ep.num_experts, 6));
  ep.hidden = 8 * draw(1, 30);
  ep.max_tokens_per_rank = draw(2, 24);
  const int type = draw(0, 3);
  if (type == 1) ep.dtype = DType::kFloat16;
  const int strategy = draw(0, 5);
  if (type >= 2) {
    ep.hidden *= 2;
    const bool quantized = !NeedHighThroughput(fusions) && strategy < 3;
    ep.dispatch_format = quantized ? DispatchFormat::kQuantizedFp8 : DispatchFormat::kFp8;
    ep.scale_format = type == 2 ? ScaleFormat::kFloat32 : ScaleFormat::kUe8m0;
    ep.strategy = quantized ? Strategy::kLowLatency : Strategy::kHighThroughput;
  } else {
    ep.strategy = NeedHighThroughput(fusions) || strategy >= 3 ? Strategy::kHighThroughput
                  : strategy == 0                              ? Strategy::kDirect
                  : strategy == 1                              ? Strategy::kLowLatency
                                                               : Strategy::kAuto;
  }
  if (ep.strategy == Strategy::kHighThroughput) {
    if (draw(0, 1) == 0) config.weights_in = WeightsIn::kFirstProduct;
    if (fusions.dispatch_gemm != Fusion::kTiles && draw(0, 2) == 0) {
      ep.high_throughput.expert_alignment = 8;
    }
    ep.combine_order = draw(0, 1) == 0 ? CombineOrder::kFlat : CombineOrder::kPerRank;
    ep.combine_method = draw(0, 1) == 0 ? CombineMethod::kPush : CombineMethod::kPull;
    if (fusions.gemm_combine != Fusion::kNone) ep.tuning.row_parts = draw(0, 5);
    if (fusions.gemm_combine == Fusion::kEpilogue) {
      ep.combine_order = CombineOrder::kFlat;
      ep.combine_method = CombineMethod::kPush;
      config.gemm_combine_tuning.combine_percent = draw(0, 1) * 50;
    }
    if (fusions.dispatch_gemm == Fusion::kTiles) {
      config.dispatch_gemm_tuning = {
          .send_order = draw(0, 1) == 0 ? SendOrder::kExpert : SendOrder::kToken,
          .tile_waits = draw(0, 1) == 0 ? TileWaits::kGroup : TileWaits::kExpert,
          .stages = draw(1, 2)};
    }
  }
  if (fusions.gemm_combine == Fusion::kNone && ep.dtype == DType::kBFloat16 && draw(0, 1) == 0) {
    config.second_format = GemmFormat::kFp8;
    config.intermediate *= 2;
    constexpr ScaleFormat kFormats[] = {ScaleFormat::kFloat32, ScaleFormat::kPowerOfTwo,
                                        ScaleFormat::kUe8m0};
    if (type < 2) ep.scale_format = kFormats[draw(0, 2)];
  }
  return problem;
}

class FusedExpertsTest : public ::testing::Test {
 protected:
  // Skips the test where there are fewer GPUs: `if (IsSkipped()) return;`.
  void Make(const FusedProblem& problem) {
    if (problem.num_ranks > NumGpus()) {
      GTEST_SKIP() << problem.num_ranks << " ranks on " << NumGpus() << " GPUs";
    }
    absl::StatusOr<std::unique_ptr<FusedHarness>> harness = FusedHarness::Create(problem);
    ASSERT_OK(harness.status()) << problem.Text();
    harness_ = *std::move(harness);
  }
  FusedHarness& harness() { return *harness_; }

  void ExpectEqual(const std::vector<StepInput>& inputs,
                   const FusedHarness::Between& between = nullptr) {
    const absl::StatusOr<std::string> difference = harness_->Compare(inputs, between);
    ASSERT_OK(WithSchedule(difference.status())) << harness_->problem().Text();
    EXPECT_EQ(*difference, "") << harness_->problem().Text() << " " << CurrentSchedule();
  }

  // A graph of both calls, replayed with other rows, choices and weights.
  void ExpectReplays(const FusedProblem& problem);

  std::vector<int> FullTokens() {
    return std::vector<int>(static_cast<size_t>(harness_->problem().num_ranks),
                            harness_->problem().config.ep.max_tokens_per_rank);
  }

 private:
  std::unique_ptr<FusedHarness> harness_;
};

class FusionTest : public FusedExpertsTest, public ::testing::WithParamInterface<Fusions> {
 protected:
  FusedProblem Small(int num_ranks) {
    FusedProblem problem = SmallProblem(num_ranks);
    problem.config.dispatch_gemm = GetParam().dispatch_gemm;
    problem.config.gemm_combine = GetParam().gemm_combine;
    if (GetParam().gemm_combine == Fusion::kEpilogue) {
      problem.config.ep.combine_order = CombineOrder::kFlat;
    }
    return problem;
  }
};

// Calls in a row with other routings and numbers of tokens, plain ones among them.
TEST_P(FusionTest, RandomShapesAreEqualToSeparateCalls) {
  constexpr uint32_t kShapes = 24;
  int shapes = 0;
  for (uint32_t seed = 1; seed <= kShapes; ++seed) {
    const FusedProblem problem = DrawProblem(seed, GetParam());
    if (problem.num_ranks > NumGpus()) continue;
    ++shapes;
    Make(problem);
    if (HasFatalFailure()) return;
    std::vector<int> some_idle = harness().DrawTokens();
    some_idle[seed % some_idle.size()] = 0;
    const std::vector<StepInput> inputs = {harness().Draw(harness().DrawTokens()),
                                           harness().Draw(some_idle, 0.3),
                                           harness().Draw(FullTokens(), 0.05)};
    ExpectEqual(inputs, [this](Rank& rank, size_t call, const FusedHarness::CallMemory& memory) {
      if (call != 0) return absl::OkStatus();
      const DispatchArgs plain = harness().dispatch_args(rank, memory).dispatch;
      ExpertParallel& ep = harness().experts().ep();
      OCTET_ASSIGN_OR_RETURN(const Received received, ep.Dispatch(rank, plain));
      if (ep.config().dispatch_format != DispatchFormat::kSame) return absl::OkStatus();
      return ep.Combine(rank, received.handle,
                        {.expert_out = received.x, .y = memory.x.as<void>()});
    });
    if (HasFailure()) return;
  }
  EXPECT_GT(shapes, 0);
}

TEST_P(FusionTest, NobodyHasTokens) {
  Make(Small(3));
  if (HasFatalFailure() || IsSkipped()) return;
  const StepInput none = harness().Draw({0, 0, 0});
  ExpectEqual({none, harness().Draw({0, 9, 0}), none});
}

TEST_P(FusionTest, EveryChoiceIsDropped) {
  Make(Small(2));
  if (HasFatalFailure() || IsSkipped()) return;
  ExpectEqual({harness().Draw(FullTokens(), 1), harness().Draw(FullTokens())});
}

TEST_P(FusionTest, AllRowsGoToOneExpert) {
  for (const WeightsIn weights_in : {WeightsIn::kCombine, WeightsIn::kFirstProduct}) {
    FusedProblem problem = Small(4);
    problem.config.weights_in = weights_in;
    problem.config.ep.max_tokens_per_rank = 40;
    Make(problem);
    if (HasFatalFailure() || IsSkipped()) return;
    std::vector<StepInput> inputs;
    for (const int32_t expert : {0, 11, 5}) {
      inputs.push_back(harness().Draw(FullTokens()));
      for (StepInput::PerRank& rank : inputs.back().ranks) {
        for (size_t i = 0; i < rank.topk_idx.size(); ++i) {
          rank.topk_idx[i] = i % 3 == 1 ? expert : -1;
        }
      }
    }
    ExpectEqual(inputs);
  }
}

TEST_P(FusionTest, FewBlocksGiveTheSame) {
  for (const int blocks : {1, 2, 5}) {
    FusedProblem problem = Small(2);
    problem.config.ep.tuning.row_parts = blocks;
    problem.config.ep.max_blocks = blocks;
    Make(problem);
    if (HasFatalFailure() || IsSkipped()) return;
    ExpectEqual({harness().Draw(FullTokens()), harness().Draw({3, 9})});
  }
}

// So many that a wave of a combine returns several before it publishes them.
TEST_P(FusionTest, ManyTokensForAWave) {
  FusedProblem problem = Small(2);
  problem.config.ep.max_tokens_per_rank = 90;
  problem.config.ep.max_blocks = 1;
  problem.config.ep.tuning.waves_per_block = 1;
  problem.config.ep.tuning.row_parts = 2;
  Make(problem);
  if (HasFatalFailure() || IsSkipped()) return;
  ExpectEqual({harness().Draw(FullTokens()), harness().Draw({90, 3}, 0.4)});
}

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
  const FusedExpertsConfig config_;
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
    FusedExpertsConfig& config = problem.config;
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

void FusedExpertsTest::ExpectReplays(const FusedProblem& problem) {
  Make(problem);
  if (HasFatalFailure() || IsSkipped()) return;
  std::vector<StepInput> inputs;
  for (int i = 0; i < 4; ++i) inputs.push_back(harness().Draw({9, 5}, 0.2));
  const absl::StatusOr<FusedOutputs> want = harness().Separate(inputs);
  ASSERT_OK(want.status());
  FusedOutputs got(inputs.size(), std::vector<FusedOutput>(2));
  const absl::Status status = harness().node().Run([&](Rank& rank) -> absl::Status {
    OCTET_ASSIGN_OR_RETURN(const FusedHarness::CallMemory memory,
                           harness().Upload(rank, inputs[0]));
    OCTET_ASSIGN_OR_RETURN(const Graph graph, Graph::Capture(rank, [&] {
                             return harness().EnqueueFused(rank, memory).status();
                           }));
    for (size_t i = 0; i < inputs.size(); ++i) {
      OCTET_RETURN_IF_ERROR(harness().UploadInto(rank, inputs[i], memory));
      OCTET_RETURN_IF_ERROR(graph.Launch(rank));
      OCTET_RETURN_IF_ERROR(rank.Synchronize());
      OCTET_ASSIGN_OR_RETURN(got[i][static_cast<size_t>(rank.rank())],
                             harness().Download(rank, memory));
    }
    return absl::OkStatus();
  });
  if (absl::IsUnimplemented(status)) GTEST_SKIP() << status;
  ASSERT_OK(status);
  for (size_t i = 0; i < inputs.size(); ++i) {
    for (const size_t rank : {0, 1}) {
      EXPECT_EQ(got[i][rank].h, (*want)[i][rank].h) << "replay " << i;
      EXPECT_EQ(got[i][rank].y, (*want)[i][rank].y) << "replay " << i;
    }
  }
  ExpectEqual({inputs[2], inputs[1]});
}

TEST_P(FusionTest, ReplaysInAGraph) {
  FusedProblem problem = Small(2);
  problem.config.weights_in = WeightsIn::kFirstProduct;
  ExpectReplays(problem);
}

// What a kernel finds ends the Run, and the next one is right.
TEST_P(FusionTest, WorksAfterAFailure) {
  Make(Small(2));
  if (HasFatalFailure() || IsSkipped()) return;
  StepInput input = harness().Draw(FullTokens());
  const int32_t good = std::exchange(input.ranks[1].topk_idx[4], 1000);
  EXPECT_THAT(
      harness().Fused({input}).status(),
      StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("topk_idx of token 1, k 1 is 1000")));
  input.ranks[1].topk_idx[4] = good;
  ExpectEqual({input, input});
}

INSTANTIATE_TEST_SUITE_P(All, FusionTest, ::testing::ValuesIn(kFusions),
                         [](const ::testing::TestParamInfo<Fusions>& info) {
                           return std::string(info.param.name);
                         });

class FusedStrategyTest : public FusedExpertsTest, public ::testing::WithParamInterface<Variant> {};

TEST_P(FusedStrategyTest, IsEqualToSeparateCalls) {
  FusedProblem problem = SmallProblem(3);
  GetParam().ApplyTo(problem.config.ep);
  Make(problem);
  if (HasFatalFailure() || IsSkipped()) return;
  ExpectEqual(
      {harness().Draw({9, 0, 4}, 0.1), harness().Draw(FullTokens()), harness().Draw({1, 9, 9})});
}

TEST_P(FusedStrategyTest, IsEqualToSeparateCallsWithASecondProductOfFp8) {
  FusedProblem problem = SmallFp8Problem(2);
  GetParam().ApplyTo(problem.config.ep);
  Make(problem);
  if (HasFatalFailure() || IsSkipped()) return;
  ExpectEqual({harness().Draw({9, 0}, 0.1), harness().Draw(FullTokens())});
}

std::vector<Variant> PackedVariants() {
  std::vector<Variant> packed;
  for (const Variant& variant : AllVariants()) {
    if (variant.output == Output::kPackedExperts && variant.duplicates == Duplicates::kFill) {
      packed.push_back(variant);
    }
  }
  return packed;
}
INSTANTIATE_TEST_SUITE_P(All, FusedStrategyTest, ::testing::ValuesIn(PackedVariants()),
                         [](const ::testing::TestParamInfo<Variant>& info) {
                           return info.param.name;
                         });

// ---- What the unfused calls alone can do.

TEST_F(FusedExpertsTest, BothProductsOfFp8ReplayInAGraph) {
  FusedProblem problem = SmallFp8Problem(2);
  problem.config.ep.dispatch_format = DispatchFormat::kFp8;
  problem.config.ep.hidden = 272;
  ExpectReplays(problem);
}

TEST_F(FusedExpertsTest, TakesCachedLayouts) {
  Make(SmallProblem(2));
  if (HasFatalFailure() || IsSkipped()) return;
  const StepInput input = harness().Draw(FullTokens());
  const absl::StatusOr<FusedOutputs> want = harness().Separate({input});
  ASSERT_OK(want.status());
  FusedOutputs got(1, std::vector<FusedOutput>(2));
  ASSERT_OK(harness().node().Run([&](Rank& rank) -> absl::Status {
    OCTET_ASSIGN_OR_RETURN(const FusedHarness::CallMemory memory, harness().Upload(rank, input));
    OCTET_ASSIGN_OR_RETURN(const Received first, harness().EnqueueFused(rank, memory));
    DispatchGemmArgs args = harness().dispatch_args(rank, memory);
    args.dispatch.topk_idx = nullptr;
    args.dispatch.high_throughput.cached = &first.handle;
    FusedExperts& experts = harness().experts();
    OCTET_ASSIGN_OR_RETURN(const FusedReceived again, experts.DispatchGemm(rank, args));
    OCTET_RETURN_IF_ERROR(experts.GemmCombine(rank, again, harness().combine_args(rank, memory)));
    OCTET_RETURN_IF_ERROR(rank.Synchronize());
    OCTET_ASSIGN_OR_RETURN(got[0][static_cast<size_t>(rank.rank())],
                           harness().Download(rank, memory));
    return absl::OkStatus();
  }));
  for (const size_t rank : {0, 1}) {
    EXPECT_EQ(got[0][rank].h, (*want)[0][rank].h);
    EXPECT_EQ(got[0][rank].y, (*want)[0][rank].y);
  }
}

// What is not finite in h makes a whole group of its row NaN, and no other token's y.
TEST_F(FusedExpertsTest, NanStaysWithItsTokenThroughASecondProductOfFp8) {
  Make(SmallFp8Problem(1));
  if (HasFatalFailure() || IsSkipped()) return;
  StepInput input = harness().Draw(FullTokens());
  const auto hidden = static_cast<size_t>(harness().problem().config.ep.hidden);
  constexpr size_t kToken = 4;
  input.ranks[0].x[kToken * hidden + 5] = kUnwritten;  // a NaN
  const absl::StatusOr<FusedOutputs> outputs = harness().Fused({input});
  ASSERT_OK(outputs.status());
  const std::vector<uint16_t>& y = (*outputs)[0][0].y;
  for (size_t i = 0; i < y.size(); ++i) {
    EXPECT_EQ(std::isnan(FloatFromBits(DType::kBFloat16, y[i])), i / hidden == kToken)
        << "token " << i / hidden << " column " << i % hidden;
  }
}

// ---- Refusals.

class FusedMisuseTest : public FusedExpertsTest {
 protected:
  // Returns the Status of a Run of `call` on the only rank.
  absl::Status On(const std::function<absl::Status(Rank&, const FusedHarness::CallMemory&)>& call) {
    const StepInput input = harness().Draw(FullTokens());
    FusedHarness::CallMemory memory;  // freed outside of Run
    return harness().node().Run([&](Rank& rank) -> absl::Status {
      OCTET_ASSIGN_OR_RETURN(memory, harness().Upload(rank, input));
      return call(rank, memory);
    });
  }

  // The Status of a DispatchGemm with altered arguments.
  absl::Status Dispatch(const std::function<void(DispatchGemmArgs&)>& alter) {
    return On([&](Rank& rank, const FusedHarness::CallMemory& memory) {
      DispatchGemmArgs args = harness().dispatch_args(rank, memory);
      alter(args);
      return harness().experts().DispatchGemm(rank, args).status();
    });
  }

  // The Status of a GemmCombine with altered arguments.
  absl::Status Combine(const std::function<void(FusedReceived&, GemmCombineArgs&)>& alter) {
    return On([&](Rank& rank, const FusedHarness::CallMemory& memory) -> absl::Status {
      FusedExperts& experts = harness().experts();
      OCTET_ASSIGN_OR_RETURN(FusedReceived received,
                             experts.DispatchGemm(rank, harness().dispatch_args(rank, memory)));
      GemmCombineArgs args = harness().combine_args(rank, memory);
      alter(received, args);
      return experts.GemmCombine(rank, received, args);
    });
  }
};

auto Refused(const std::string& words) {
  return StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(words));
}

template <typename T>
void Shift(T*& pointer) {
  pointer = reinterpret_cast<T*>(reinterpret_cast<uintptr_t>(pointer) + 8);
}

TEST_F(FusedMisuseTest, RefusesArgumentsOfDispatchGemm) {
  Make(SmallProblem(1));
  if (HasFatalFailure() || IsSkipped()) return;
  EXPECT_THAT(Dispatch([](DispatchGemmArgs& args) { args.b = nullptr; }),
              Refused("b must not be null"));
  EXPECT_THAT(Dispatch([](DispatchGemmArgs& args) { args.out = nullptr; }),
              Refused("out must not be null"));
  EXPECT_THAT(Dispatch([](DispatchGemmArgs& args) { args.b_scales = args.b; }),
              Refused("b_scales must be null: only FP8 weights have scales"));
  EXPECT_THAT(Dispatch([](DispatchGemmArgs& args) { Shift(args.out); }),
              Refused("it must be 16-byte aligned"));
  EXPECT_THAT(Dispatch([](DispatchGemmArgs& args) { args.dispatch.x = nullptr; }),
              Refused("x and topk_idx must not be null"));
  ExpectEqual({harness().Draw(FullTokens())});
}

TEST_F(FusedMisuseTest, RefusesFp8WeightsWithoutScales) {
  FusedProblem problem = SmallProblem(1);
  problem.config.ep.dispatch_format = DispatchFormat::kFp8;
  problem.config.ep.hidden = 272;
  Make(problem);
  if (HasFatalFailure() || IsSkipped()) return;
  EXPECT_THAT(Dispatch([](DispatchGemmArgs& args) { args.b_scales = nullptr; }),
              Refused("b_scales must not be null"));
}

TEST_F(FusedMisuseTest, RefusesSecondFp8WeightsWithoutScales) {
  Make(SmallFp8Problem(1));
  if (HasFatalFailure() || IsSkipped()) return;
  EXPECT_THAT(Combine([](FusedReceived&, GemmCombineArgs& args) { args.b_scales = nullptr; }),
              Refused("b_scales must not be null"));
  EXPECT_THAT(Combine([](FusedReceived&, GemmCombineArgs& args) { Shift(args.b_scales); }),
              Refused("it must be 16-byte aligned"));
  ExpectEqual({harness().Draw(FullTokens())});
}

TEST_F(FusedMisuseTest, RefusesArgumentsOfGemmCombine) {
  Make(SmallProblem(1));
  if (HasFatalFailure() || IsSkipped()) return;
  EXPECT_THAT(Combine([](FusedReceived&, GemmCombineArgs& args) { args.a = nullptr; }),
              Refused("a must not be null"));
  EXPECT_THAT(Combine([](FusedReceived&, GemmCombineArgs& args) { args.b = nullptr; }),
              Refused("b must not be null"));
  EXPECT_THAT(Combine([](FusedReceived&, GemmCombineArgs& args) { args.b_scales = args.b; }),
              Refused("b_scales must be null: only FP8 weights have scales"));
  EXPECT_THAT(Combine([](FusedReceived&, GemmCombineArgs& args) { args.y = nullptr; }),
              Refused("expert_out and y must not be null"));
  EXPECT_THAT(Combine([](FusedReceived&, GemmCombineArgs& args) { Shift(args.b); }),
              Refused("it must be 16-byte aligned"));
  EXPECT_THAT(
      Combine([](FusedReceived& received, GemmCombineArgs& args) { args.a = received.received.x; }),
      Refused("a must not be received.x"));
  EXPECT_THAT(Combine([](FusedReceived& received, GemmCombineArgs&) { received = {}; }),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("of no dispatch")));
  ExpectEqual({harness().Draw(FullTokens())});
}

TEST_F(FusedMisuseTest, RefusesOutputsThatOverlapInputs) {
  Make(SmallProblem(1));
  if (HasFatalFailure() || IsSkipped()) return;
  EXPECT_THAT(Dispatch([](DispatchGemmArgs& args) { args.out = const_cast<void*>(args.b); }),
              Refused("out of rank 0 overlaps b: "));
  EXPECT_THAT(Dispatch([](DispatchGemmArgs& args) {
                args.out = const_cast<char*>(static_cast<const char*>(args.dispatch.x) + 16);
              }),
              Refused("out of rank 0 overlaps x: "));
  EXPECT_THAT(Combine([](FusedReceived&, GemmCombineArgs& args) {
                args.y = const_cast<char*>(static_cast<const char*>(args.a) - 16);
              }),
              Refused("y of rank 0 overlaps a: "));
  EXPECT_THAT(Combine([](FusedReceived&, GemmCombineArgs& args) {
                args.y = const_cast<char*>(static_cast<const char*>(args.b) + 32);
              }),
              Refused("y of rank 0 overlaps b: "));
  ExpectEqual({harness().Draw(FullTokens())});
}

TEST_F(FusedMisuseTest, CombinesOnceAndInTime) {
  FusedProblem problem = SmallProblem(1);
  problem.config.ep.high_throughput.kept_layouts = 3;
  Make(problem);
  if (HasFatalFailure() || IsSkipped()) return;
  FusedExperts& experts = harness().experts();
  EXPECT_THAT(On([&](Rank& rank, const FusedHarness::CallMemory& memory) -> absl::Status {
                const DispatchGemmArgs args = harness().dispatch_args(rank, memory);
                OCTET_ASSIGN_OR_RETURN(const FusedReceived received,
                                       experts.DispatchGemm(rank, args));
                const GemmCombineArgs combine = harness().combine_args(rank, memory);
                OCTET_RETURN_IF_ERROR(experts.GemmCombine(rank, received, combine));
                return experts.GemmCombine(rank, received, combine);
              }),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       HasSubstr("dispatch 1 of this rank has been combined")));
  EXPECT_THAT(On([&](Rank& rank, const FusedHarness::CallMemory& memory) -> absl::Status {
                const DispatchGemmArgs args = harness().dispatch_args(rank, memory);
                OCTET_ASSIGN_OR_RETURN(const FusedReceived received,
                                       experts.DispatchGemm(rank, args));
                OCTET_RETURN_IF_ERROR(experts.ep().Dispatch(rank, args.dispatch).status());
                return experts.GemmCombine(rank, received, harness().combine_args(rank, memory));
              }),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       HasSubstr("the handle is of dispatch 2 of this rank, whose last is 3")));
}

// The kernels are the same, and need shared memory for each expert: what one object needs little of
// is not taken from the other.
TEST_F(FusedExpertsTest, OneOfFewExpertsLeavesOneOfManyAlone) {
  for (const Fusions& fusions : kFusions) {
    FusedProblem problem = SmallProblem(1);
    problem.config.dispatch_gemm = fusions.dispatch_gemm;
    problem.config.gemm_combine = fusions.gemm_combine;
    if (fusions.gemm_combine == Fusion::kEpilogue) {
      problem.config.ep.combine_order = CombineOrder::kFlat;
    }
    problem.config.ep.num_experts = 128;
    Make(problem);
    if (HasFatalFailure() || IsSkipped()) return;
    problem.config.ep.num_experts = 4;
    const absl::StatusOr<std::unique_ptr<FusedHarness>> few = FusedHarness::Create(problem);
    ASSERT_OK(few.status());
    SCOPED_TRACE(fusions.name);
    ExpectEqual({harness().Draw(FullTokens())});
  }
}

TEST_F(FusedExpertsTest, DividedWorkGivesTheSame) {
  const FusedTuning tunings[] = {
      {.tiles = GemmTiles::kMedium,
       .send_percent = 100,
       .fill_percent = 100,
       .combine_percent = 100,
       .row_parts = 3},
      {.tiles = GemmTiles::kWide,
       .send_percent = 1,
       .fill_percent = 1,
       .combine_percent = 1,
       .row_parts = 1},
      {.send_percent = 50, .fill_percent = 50, .combine_percent = 50, .row_parts = kMaxRowParts}};
  for (const FusedTuning& tuning : tunings) {
    FusedProblem problem = SmallProblem(2);
    problem.config.ep.strategy = Strategy::kHighThroughput;
    problem.config.dispatch_gemm = Fusion::kTiles;
    problem.config.gemm_combine = Fusion::kTiles;
    problem.config.dispatch_gemm_tuning = tuning;
    problem.config.gemm_combine_tuning = tuning;
    Make(problem);
    if (HasFatalFailure() || IsSkipped()) return;
    const FusedExpertsConfig& chosen = harness().experts().config();
    EXPECT_EQ(chosen.dispatch_gemm_tuning.send_percent, tuning.send_percent);
    EXPECT_TRUE(chosen.dispatch_gemm_tuning.tiles.has_value());
    EXPECT_EQ(chosen.gemm_combine_tuning.row_parts, tuning.row_parts);
    EXPECT_EQ(chosen.ep.tuning.row_parts, tuning.row_parts);
    ExpectEqual({harness().Draw(FullTokens()), harness().Draw(FullTokens(), 0.3)});
  }
}

// What can be left out of a fused dispatch, in all combinations.
TEST_F(FusedExpertsTest, EveryWayOfSendingGivesTheSame) {
  for (const SendOrder order : {SendOrder::kExpert, SendOrder::kToken}) {
    for (const TileWaits waits : {TileWaits::kGroup, TileWaits::kExpert}) {
      for (const int stages : {1, 2}) {
        FusedProblem problem = SmallProblem(2);
        problem.config.ep.max_tokens_per_rank = 45;
        problem.config.ep.topk = 4;
        problem.config.dispatch_gemm = Fusion::kTiles;
        problem.config.dispatch_gemm_tuning = {
            .send_order = order, .tile_waits = waits, .stages = stages};
        Make(problem);
        if (HasFatalFailure() || IsSkipped()) return;
        const FusedTuning& chosen = harness().experts().config().dispatch_gemm_tuning;
        EXPECT_EQ(chosen.send_order, order);
        EXPECT_EQ(chosen.tile_waits, waits);
        EXPECT_EQ(chosen.stages, stages);
        ExpectEqual({harness().Draw(FullTokens()), harness().Draw({0, 45}, 0.4),
                     harness().Draw(FullTokens(), 1), harness().Draw({45, 1})});
      }
    }
  }
}

// A token with two choices on a rank crosses once, or with one stage twice; each choice is
// described in 16 bytes and announced in 8.
TEST_F(FusedExpertsTest, TrafficIsThatOfTheWay) {
  constexpr int64_t kBesideChoice = 24;
  for (const int stages : {2, 1}) {
    FusedProblem problem = SmallProblem(2);  // three experts on each rank
    problem.config.dispatch_gemm = Fusion::kTiles;
    problem.config.dispatch_gemm_tuning.stages = stages;
    Make(problem);
    if (HasFatalFailure() || IsSkipped()) return;
    const FusedExperts& experts = harness().experts();
    const int64_t idle = experts.DispatchGemmTraffic(0, {}).wire_bytes;
    const Traffic traffic = experts.DispatchGemmTraffic(0, {3, 5, 1, 4, -1, 0});
    const int64_t rows = stages == 2 ? 2 : 3;
    EXPECT_EQ(traffic.wire_bytes - idle, rows * 136 * 2 + 3 * kBesideChoice);
    EXPECT_EQ(traffic.rows, stages == 2 ? 4 : 5);
  }
}

TEST_F(FusedExpertsTest, TheEpilogueChoosesTheOrderThatItNeeds) {
  FusedProblem problem = SmallProblem(2);
  problem.config.gemm_combine = Fusion::kEpilogue;
  Make(problem);
  if (HasFatalFailure() || IsSkipped()) return;
  const FusedExpertsConfig& chosen = harness().experts().config();
  EXPECT_EQ(chosen.ep.combine_order, CombineOrder::kFlat);
  EXPECT_EQ(chosen.ep.combine_method, CombineMethod::kPush);
  EXPECT_EQ(chosen.gemm_combine_tuning.row_parts, 1);
  EXPECT_EQ(chosen.gemm_combine_tuning.combine_percent, 0);
}

// What kAuto takes, and how it divides the work, comes from the tuning file.
TEST_F(FusedExpertsTest, TakesWhatWasMeasured) {
  if (NumGpus() == 0) GTEST_SKIP() << "no GPU";
  const absl::StatusOr<std::unique_ptr<Node>> node = Node::Create({.num_ranks = 1});
  ASSERT_OK(node.status());
  FusedExpertsConfig config = SmallProblem(1).config;
  config.ep.strategy = Strategy::kHighThroughput;
  TuningTable table;
  table.Set(
      {.key = FusedTuningKeyOf((*node)->topology(), 1, FusedCall::kDispatchGemm, config),
       .choice = {.fusion = Fusion::kTiles,
                  .tuning = {.tiles = GemmTiles::kMedium, .send_percent = 31, .fill_percent = 7}}});
  table.Set(
      {.key = FusedTuningKeyOf((*node)->topology(), 1, FusedCall::kGemmCombine, config),
       .choice = {.fusion = Fusion::kTiles,
                  .tuning = {.tiles = GemmTiles::kMedium, .combine_percent = 44, .row_parts = 2}}});
  const std::string path = ::testing::TempDir() + "octet_fused_tuning_test.json";
  std::ofstream(path) << table.ToJson();
  const ScopedEnvironment environment("OCTET_TUNING");
  environment.Set(path.c_str());
  const auto chosen = [&](const FusedExpertsConfig& asked, bool use = true) {
    auto experts = FusedExperts::Create(**node, asked, {.use_measured_tuning = use});
    EXPECT_OK(experts.status());
    return (*experts)->config();
  };
  FusedExpertsConfig got = chosen(config);
  EXPECT_EQ(got.dispatch_gemm, Fusion::kTiles);
  EXPECT_EQ(got.dispatch_gemm_tuning.tiles, GemmTiles::kMedium);
  EXPECT_EQ(got.dispatch_gemm_tuning.send_percent, 31);
  EXPECT_EQ(got.dispatch_gemm_tuning.fill_percent, 7);
  EXPECT_EQ(got.dispatch_gemm_tuning.stages, 2) << "the file does not say";
  EXPECT_EQ(got.dispatch_gemm_tuning.send_order, SendOrder::kExpert);
  EXPECT_EQ(got.gemm_combine, Fusion::kTiles);
  EXPECT_EQ(got.gemm_combine_tuning.combine_percent, 44);
  EXPECT_EQ(got.ep.tuning.row_parts, 2);

  // What is asked for comes first.
  config.gemm_combine = Fusion::kSerial;
  config.dispatch_gemm_tuning.send_percent = 9;
  got = chosen(config);
  EXPECT_EQ(got.gemm_combine, Fusion::kSerial);
  EXPECT_EQ(got.dispatch_gemm_tuning.send_percent, 9);
  EXPECT_EQ(got.dispatch_gemm_tuning.fill_percent, 7);
  config.gemm_combine = Fusion::kAuto;

  // Separate kernels where nothing was measured, or where one kernel cannot be.
  EXPECT_EQ(chosen(config, false).dispatch_gemm, Fusion::kNone);
  config.ep.high_throughput.expert_alignment = 8;
  EXPECT_EQ(chosen(config).dispatch_gemm, Fusion::kNone);
  EXPECT_EQ(chosen(config).gemm_combine, Fusion::kTiles);
  config.ep.strategy = Strategy::kDirect;
  config.ep.high_throughput.expert_alignment = 1;
  EXPECT_EQ(chosen(config).gemm_combine, Fusion::kNone);
}

// What was measured changes no sums.
TEST_F(FusedExpertsTest, AMeasuredEpilogueIsForItsOrderAlone) {
  if (NumGpus() == 0) GTEST_SKIP() << "no GPU";
  const absl::StatusOr<std::unique_ptr<Node>> node = Node::Create({.num_ranks = 1});
  ASSERT_OK(node.status());
  FusedExpertsConfig config = SmallProblem(1).config;
  TuningTable table;
  table.Set({.key = FusedTuningKeyOf((*node)->topology(), 1, FusedCall::kGemmCombine, config),
             .choice = {.fusion = Fusion::kEpilogue,
                        .tuning = {.tiles = GemmTiles::kMedium, .row_parts = 2}}});
  const std::string path = ::testing::TempDir() + "octet_epilogue_tuning_test.json";
  std::ofstream(path) << table.ToJson();
  const ScopedEnvironment environment("OCTET_TUNING");
  setenv("OCTET_TUNING", path.c_str(), 1);
  for (const CombineOrder order :
       {CombineOrder::kAuto, CombineOrder::kPerRank, CombineOrder::kFlat}) {
    config.ep.combine_order = order;
    const absl::StatusOr<std::unique_ptr<FusedExperts>> experts =
        FusedExperts::Create(**node, config);
    ASSERT_OK(experts.status());
    const FusedExpertsConfig& chosen = (*experts)->config();
    EXPECT_EQ(chosen.gemm_combine,
              order == CombineOrder::kFlat ? Fusion::kEpilogue : Fusion::kNone);
    if (order != CombineOrder::kFlat) continue;
    EXPECT_EQ(chosen.ep.tuning.row_parts, 2);
    EXPECT_EQ(chosen.gemm_combine_tuning.combine_percent, 0);
  }
}

TEST_F(FusedMisuseTest, RefusesConfigsThatCannotBe) {
  if (NumGpus() == 0) GTEST_SKIP() << "no GPU";
  const absl::StatusOr<std::unique_ptr<Node>> node = Node::Create({.num_ranks = 1});
  ASSERT_OK(node.status());
  const auto refusal = [&](const std::function<void(FusedExpertsConfig&)>& alter) {
    FusedExpertsConfig config = SmallProblem(1).config;
    alter(config);
    return FusedExperts::Create(**node, config).status();
  };
  EXPECT_OK(refusal([](FusedExpertsConfig&) {}));
  EXPECT_THAT(refusal([](FusedExpertsConfig& config) { config.ep.output = Output::kDeduplicated; }),
              Refused("ep.output is deduplicated; the products need packed rows"));
  EXPECT_THAT(refusal([](FusedExpertsConfig& config) {
                config.ep.high_throughput.duplicates = Duplicates::kIndex;
              }),
              Refused("ep.high_throughput.duplicates is index; the products need a row for each"));
  EXPECT_THAT(refusal([](FusedExpertsConfig& config) {
                config.dispatch_gemm_tuning.tiles = GemmTiles::kFew16;
              }),
              Refused("dispatch_gemm_tuning.tiles is few16; it must be wide or medium"));
  EXPECT_THAT(
      refusal([](FusedExpertsConfig& config) { config.gemm_combine_tuning.combine_percent = 101; }),
      Refused("gemm_combine_tuning.combine_percent is 101; it must be from 0 to 100"));
  EXPECT_THAT(refusal([](FusedExpertsConfig& config) {
                config.ep.dispatch_format = DispatchFormat::kBytes;
              }),
              Refused("ep.dispatch_format is bytes; it must be same, fp8 or quantized_fp8"));
  EXPECT_THAT(refusal([](FusedExpertsConfig& config) {
                config.ep.dispatch_format = DispatchFormat::kQuantizedFp8;
                config.ep.hidden = 136;
              }),
              Refused("ep.hidden is 136; products of FP8 rows need a multiple of 16"));
  EXPECT_THAT(refusal([](FusedExpertsConfig& config) {
                config.ep.dispatch_format = DispatchFormat::kFp8;
                config.ep.scale_group = 64;
              }),
              Refused("ep.scale_group is 64; products of FP8 rows need 128"));
  EXPECT_THAT(refusal([](FusedExpertsConfig& config) {
                config.ep.dispatch_format = DispatchFormat::kFp8;
                config.ep.dtype = DType::kFloat16;
              }),
              Refused("ep.dtype is fp16; products of FP8 rows are bf16"));
  EXPECT_THAT(refusal([](FusedExpertsConfig& config) { config.intermediate = 12; }),
              Refused("intermediate is 12; it must be a positive multiple of 8"));
  EXPECT_THAT(refusal([](FusedExpertsConfig& config) { config.intermediate = 0; }),
              Refused("intermediate is 0; it must be a positive multiple of 8"));
  EXPECT_THAT(refusal([](FusedExpertsConfig& config) {
                config.ep.strategy = Strategy::kDirect;
                config.weights_in = WeightsIn::kFirstProduct;
              }),
              Refused("weights_in is first_product; that needs the strategy high_throughput, not "
                      "direct"));
  EXPECT_THAT(refusal([](FusedExpertsConfig& config) { config.ep.topk = 0; }), Refused("topk"));
  for (const Strategy strategy : {Strategy::kDirect, Strategy::kLowLatency, Strategy::kAuto}) {
    EXPECT_THAT(refusal([&](FusedExpertsConfig& config) {
                  config.gemm_combine = Fusion::kTiles;
                  config.ep.strategy = strategy;
                }),
                Refused("gemm_combine is tiles; that needs the strategy high_throughput"));
  }
  EXPECT_THAT(refusal([](FusedExpertsConfig& config) {
                config.dispatch_gemm = Fusion::kTiles;
                config.ep.strategy = Strategy::kDirect;
              }),
              Refused("ep.strategy is direct; the dispatch_gemm tiles needs high_throughput"));
  EXPECT_THAT(refusal([](FusedExpertsConfig& config) {
                config.dispatch_gemm = Fusion::kTiles;
                config.ep.high_throughput.expert_alignment = 8;
              }),
              Refused("expert_alignment is 8; the dispatch_gemm tiles needs 1"));
}

TEST_F(FusedMisuseTest, RefusesFusionsThatCannotBe) {
  if (NumGpus() == 0) GTEST_SKIP() << "no GPU";
  const absl::StatusOr<std::unique_ptr<Node>> node = Node::Create({.num_ranks = 1});
  ASSERT_OK(node.status());
  const auto refusal = [&](const std::function<void(FusedExpertsConfig&)>& alter) {
    FusedExpertsConfig config = SmallProblem(1).config;
    alter(config);
    return FusedExperts::Create(**node, config).status();
  };
  EXPECT_THAT(refusal([](FusedExpertsConfig& config) { config.dispatch_gemm = Fusion::kSerial; }),
              Refused("dispatch_gemm is serial; only gemm_combine can be"));
  EXPECT_THAT(refusal([](FusedExpertsConfig& config) { config.dispatch_gemm = Fusion::kEpilogue; }),
              Refused("dispatch_gemm is epilogue; only gemm_combine can be"));
  EXPECT_THAT(refusal([](FusedExpertsConfig& config) {
                config.gemm_combine = Fusion::kEpilogue;
                config.ep.combine_order = CombineOrder::kPerRank;
              }),
              Refused("ep.combine_order is per_rank; the gemm_combine epilogue needs flat"));
  EXPECT_THAT(refusal([](FusedExpertsConfig& config) {
                config.gemm_combine = Fusion::kEpilogue;
                config.ep.combine_method = CombineMethod::kPull;
              }),
              Refused("ep.combine_method is pull; the gemm_combine epilogue needs push"));
  EXPECT_THAT(refusal([](FusedExpertsConfig& config) { config.dispatch_gemm_tuning.stages = 3; }),
              Refused("dispatch_gemm_tuning.stages is 3; it must be from 0 to 2"));
}

TEST_F(FusedMisuseTest, RefusesSecondProductsOfFp8ThatCannotBe) {
  if (NumGpus() == 0) GTEST_SKIP() << "no GPU";
  const absl::StatusOr<std::unique_ptr<Node>> node = Node::Create({.num_ranks = 1});
  ASSERT_OK(node.status());
  const auto refusal = [&](const std::function<void(FusedExpertsConfig&)>& alter) {
    FusedExpertsConfig config = SmallFp8Problem(1).config;
    alter(config);
    return FusedExperts::Create(**node, config).status();
  };
  EXPECT_OK(refusal([](FusedExpertsConfig&) {}));
  EXPECT_THAT(
      refusal([](FusedExpertsConfig& config) { config.intermediate = 152; }),
      Refused("intermediate is 152; it must be a positive multiple of 16 with the second_format"));
  EXPECT_THAT(refusal([](FusedExpertsConfig& config) { config.intermediate = 0; }),
              Refused("intermediate is 0; it must be a positive multiple of 16"));
  EXPECT_THAT(refusal([](FusedExpertsConfig& config) { config.ep.dtype = DType::kFloat16; }),
              Refused("ep.dtype is fp16; products of FP8 rows are bf16"));
  EXPECT_THAT(refusal([](FusedExpertsConfig& config) { config.gemm_combine = Fusion::kTiles; }),
              Refused("gemm_combine is tiles; with the second_format fp8 it must be auto or none"));
  EXPECT_THAT(
      refusal([](FusedExpertsConfig& config) { config.gemm_combine = Fusion::kSerial; }),
      Refused("gemm_combine is serial; with the second_format fp8 it must be auto or none"));
}

TEST_F(FusedMisuseTest, OtherStrategiesRefuseToAddWithoutWeights) {
  FusedProblem problem = SmallProblem(1);
  problem.config.ep.strategy = Strategy::kDirect;
  Make(problem);
  if (HasFatalFailure() || IsSkipped()) return;
  EXPECT_THAT(On([&](Rank& rank, const FusedHarness::CallMemory& memory) -> absl::Status {
                ExpertParallel& ep = harness().experts().ep();
                OCTET_ASSIGN_OR_RETURN(
                    const Received received,
                    ep.Dispatch(rank, harness().dispatch_args(rank, memory).dispatch));
                return ep.Combine(rank, received.handle,
                                  {.expert_out = received.x,
                                   .y = memory.y.as<void>(),
                                   .high_throughput = {.unweighted = true}});
              }),
              Refused("unweighted needs the strategy high_throughput, not direct"));
}

TEST(FusionNamesTest, AreParsed) {
  for (const Fusion fusion : {Fusion::kAuto, Fusion::kNone, Fusion::kTiles, Fusion::kEpilogue}) {
    const absl::StatusOr<Fusion> parsed = ParseEnum<Fusion>("fusion", EnumName(fusion));
    ASSERT_OK(parsed.status());
    EXPECT_EQ(*parsed, fusion);
  }
  EXPECT_THAT(ParseEnum<WeightsIn>("weights_in", "second").status(),
              Refused("'second' is not one of combine, first_product"));
}

}  // namespace
}  // namespace octet
