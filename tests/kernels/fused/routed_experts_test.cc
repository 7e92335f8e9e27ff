// RoutedExperts against the same work as separate calls, to the bit, and against float64.
#include "octet/routed_experts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <fstream>
#include <memory>
#include <random>
#include <string>
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
#include "octet/placement.h"
#include "octet/topology.h"
#include "runtime/base/status_macros.h"
#include "runtime/node/schedule.h"
#include "tests/kernels/fused/fused_harness.h"
#include "tests/kernels/fused/routed_experts_fixture.h"
#include "tests/support/host_copy.h"
#include "tests/support/node/node_fixture.h"
#include "tests/support/scoped_environment.h"
#include "tests/support/strategy_variants.h"

namespace octet {
namespace {

using ::testing::HasSubstr;

// Random shapes: what `fusions` can do, from everything that RoutedExperts takes.
FusedProblem DrawProblem(uint32_t seed, const Fusions& fusions) {
  std::mt19937 rng(seed);
  const auto draw = [&rng](int least, int most) {
    return std::uniform_int_distribution<int>(least, most)(rng);
  };
  FusedProblem problem;
  problem.seed = seed;
  problem.num_ranks = draw(1, 8);
  problem.bias = draw(0, 2) == 0;
  RoutedExpertsConfig& config = problem.config;
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
  const bool one_kernel = fusions.dispatch_gemm != Fusion::kNone ||
                          fusions.gemm_combine != Fusion::kNone || ep.dtype != DType::kBFloat16;
  if (!one_kernel && draw(0, 2) == 0) {
    config.first_format = GemmFormat::kMxfp4;
    config.second_format = GemmFormat::kMxfp4;
    config.second_fp8_rows = draw(0, 1) == 0;
    ep.hidden = 32 * draw(1, 9);
    config.intermediate = 32 * draw(1, 5);
  }
  return problem;
}

// One expert more than can be divided by the ranks, and the first ones on several.
TEST_P(FusionTest, PlacementsAreEqualToSeparateCalls) {
  for (uint32_t seed = 1; seed <= 6; ++seed) {
    FusedProblem problem = DrawProblem(seed, GetParam());
    if (problem.num_ranks > NumGpus()) continue;
    EpConfig& ep = problem.config.ep;
    ++ep.num_experts;
    std::vector<double> loads(static_cast<size_t>(ep.num_experts), 1.0);
    loads[0] = 5;
    loads[1] = 3;
    ep.placement = *PlanPlacement(loads, problem.num_ranks, ep.num_experts / problem.num_ranks + 2);
    Make(problem);
    if (HasFatalFailure()) return;
    ExpectEqual({harness().Draw(harness().DrawTokens()), harness().Draw(FullTokens(), 0.1)});
    if (HasFailure()) return;
  }
}

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

class FusedStrategyTest : public RoutedExpertsTest,
                          public ::testing::WithParamInterface<StrategyCase> {};

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

std::vector<StrategyCase> PackedVariants() {
  std::vector<StrategyCase> packed;
  for (const StrategyCase& variant : AllVariants()) {
    if (variant.output == Output::kPackedExperts && variant.duplicates == Duplicates::kFill) {
      packed.push_back(variant);
    }
  }
  return packed;
}
INSTANTIATE_TEST_SUITE_P(All, FusedStrategyTest, ::testing::ValuesIn(PackedVariants()),
                         [](const ::testing::TestParamInfo<StrategyCase>& info) {
                           return info.param.name;
                         });

// ---- What the unfused calls alone can do.

TEST_F(RoutedExpertsTest, BothProductsOfFp8ReplayInAGraph) {
  FusedProblem problem = SmallFp8Problem(2);
  problem.config.ep.dispatch_format = DispatchFormat::kFp8;
  problem.config.ep.hidden = 272;
  ExpectReplays(problem);
}

TEST_F(RoutedExpertsTest, TakesCachedLayouts) {
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
    RoutedExperts& experts = harness().experts();
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
TEST_F(RoutedExpertsTest, NanStaysWithItsTokenThroughASecondProductOfFp8) {
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

// The kernels are the same, and need shared memory for each expert: what one object needs little of
// is not taken from the other.
TEST_F(RoutedExpertsTest, OneOfFewExpertsLeavesOneOfManyAlone) {
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

TEST_F(RoutedExpertsTest, DividedWorkGivesTheSame) {
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
    const RoutedExpertsConfig& chosen = harness().experts().config();
    EXPECT_EQ(chosen.dispatch_gemm_tuning.send_percent, tuning.send_percent);
    EXPECT_TRUE(chosen.dispatch_gemm_tuning.tiles.has_value());
    EXPECT_EQ(chosen.gemm_combine_tuning.row_parts, tuning.row_parts);
    EXPECT_EQ(chosen.ep.tuning.row_parts, tuning.row_parts);
    ExpectEqual({harness().Draw(FullTokens()), harness().Draw(FullTokens(), 0.3)});
  }
}

// What can be left out of a fused dispatch, in all combinations.
TEST_F(RoutedExpertsTest, EveryWayOfSendingGivesTheSame) {
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
TEST_F(RoutedExpertsTest, TrafficIsThatOfTheWay) {
  constexpr int64_t kBesideChoice = 24;
  for (const int stages : {2, 1}) {
    FusedProblem problem = SmallProblem(2);  // three experts on each rank
    problem.config.dispatch_gemm = Fusion::kTiles;
    problem.config.dispatch_gemm_tuning.stages = stages;
    Make(problem);
    if (HasFatalFailure() || IsSkipped()) return;
    const RoutedExperts& experts = harness().experts();
    const int64_t idle = experts.DispatchGemmTraffic(0, {}).wire_bytes;
    const Traffic traffic = experts.DispatchGemmTraffic(0, {3, 5, 1, 4, -1, 0});
    const int64_t rows = stages == 2 ? 2 : 3;
    EXPECT_EQ(traffic.wire_bytes - idle, rows * 136 * 2 + 3 * kBesideChoice);
    EXPECT_EQ(traffic.rows, stages == 2 ? 4 : 5);
  }
}

TEST_F(RoutedExpertsTest, TheEpilogueChoosesTheOrderThatItNeeds) {
  FusedProblem problem = SmallProblem(2);
  problem.config.gemm_combine = Fusion::kEpilogue;
  Make(problem);
  if (HasFatalFailure() || IsSkipped()) return;
  const RoutedExpertsConfig& chosen = harness().experts().config();
  EXPECT_EQ(chosen.ep.combine_order, CombineOrder::kFlat);
  EXPECT_EQ(chosen.ep.combine_method, CombineMethod::kPush);
  EXPECT_EQ(chosen.gemm_combine_tuning.row_parts, 1);
  EXPECT_EQ(chosen.gemm_combine_tuning.combine_percent, 0);
}

// What kAuto takes, and how it divides the work, comes from the tuning file.
TEST_F(RoutedExpertsTest, TakesWhatWasMeasured) {
  if (NumGpus() == 0) GTEST_SKIP() << "no GPU";
  const absl::StatusOr<std::unique_ptr<Node>> node = Node::Create({.num_ranks = 1});
  ASSERT_OK(node.status());
  RoutedExpertsConfig config = SmallProblem(1).config;
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
  const auto chosen = [&](const RoutedExpertsConfig& asked, bool use = true) {
    auto experts = RoutedExperts::Create(**node, asked, {.use_measured_tuning = use});
    EXPECT_OK(experts.status());
    return (*experts)->config();
  };
  RoutedExpertsConfig got = chosen(config);
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
TEST_F(RoutedExpertsTest, AMeasuredEpilogueIsForItsOrderAlone) {
  if (NumGpus() == 0) GTEST_SKIP() << "no GPU";
  const absl::StatusOr<std::unique_ptr<Node>> node = Node::Create({.num_ranks = 1});
  ASSERT_OK(node.status());
  RoutedExpertsConfig config = SmallProblem(1).config;
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
    const absl::StatusOr<std::unique_ptr<RoutedExperts>> experts =
        RoutedExperts::Create(**node, config);
    ASSERT_OK(experts.status());
    const RoutedExpertsConfig& chosen = (*experts)->config();
    EXPECT_EQ(chosen.gemm_combine,
              order == CombineOrder::kFlat ? Fusion::kEpilogue : Fusion::kNone);
    if (order != CombineOrder::kFlat) continue;
    EXPECT_EQ(chosen.ep.tuning.row_parts, 2);
    EXPECT_EQ(chosen.gemm_combine_tuning.combine_percent, 0);
  }
}

}  // namespace
}  // namespace octet
