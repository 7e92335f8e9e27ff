// The search of `octet tune`, on costs made up here, and both of its operations on a GPU.
#include "tools/measure/tune/tune.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "kernels/ep/strategy_registry.h"
#include "runtime/gpu/gpu_name.h"
#include "tools/measure/tune/gemm_tune.h"

namespace octet {
namespace {

using ::testing::HasSubstr;

constexpr TuneLimits kLimits = {.compute_units = 132, .most_waves = 16};
constexpr Tuning kStart = {
    .blocks = 264, .send_blocks = 132, .waves_per_block = 16, .row_parts = 1};

// Least at 132 blocks, 33 of which send, with 4 waves, in 2 parts.
absl::StatusOr<double> Cost(const Tuning& tuning) {
  if (tuning.blocks * tuning.waves_per_block > 264 * 16) {
    return absl::InvalidArgumentError("not resident");
  }
  return 100 + std::abs(tuning.blocks - 132) + std::abs(tuning.send_blocks - 33) +
         10 * std::abs(tuning.waves_per_block - 4) + 20 * std::abs(tuning.row_parts - 2);
}

absl::StatusOr<std::vector<TuneTrial>> Search(MeasureTuning measure,
                                              absl::FunctionRef<bool()> in_time) {
  return SearchTuning(kStart, kLimits, measure, in_time, [](const TuneTrial&) {});
}

TEST(SearchTuning, FindsTheLeast) {
  const auto trials = Search(Cost, [] { return true; });
  ASSERT_TRUE(trials.ok()) << trials.status();
  const TuneTrial& best = Fastest(*trials);
  EXPECT_EQ(best.us, 100);
  EXPECT_EQ(best.tuning.blocks, 132);
  EXPECT_EQ(best.tuning.send_blocks, 33);
  EXPECT_EQ(best.tuning.waves_per_block, 4);
  EXPECT_EQ(best.tuning.row_parts, 2);
  EXPECT_EQ(trials->front().tuning.blocks, kStart.blocks);
  EXPECT_LT(trials->size(), 60U);
  bool some_do_not_fit = false;
  for (size_t i = 0; i < trials->size(); ++i) {
    const Tuning& a = (*trials)[i].tuning;
    some_do_not_fit = some_do_not_fit || !(*trials)[i].fits;
    EXPECT_GT(a.send_blocks, 0);
    EXPECT_LT(a.send_blocks, a.blocks);
    for (size_t j = 0; j < i; ++j) {
      EXPECT_FALSE(a == (*trials)[j].tuning) << "measured twice";
    }
  }
  EXPECT_TRUE(some_do_not_fit);
}

TEST(SearchTuning, ChangesWhatTheStrategyHas) {
  // Least at 66 blocks of 8 waves, of which 3 send in dispatch and 5 in combine.
  const auto cost = [](const Tuning& tuning) -> absl::StatusOr<double> {
    EXPECT_EQ(tuning.send_blocks, 0);
    EXPECT_LE(tuning.send_waves, tuning.waves_per_block);
    EXPECT_LE(tuning.combine_send_waves, tuning.waves_per_block);
    return 100 + std::abs(tuning.blocks - 66) + 50 * std::abs(tuning.waves_per_block - 8) +
           10 * std::abs(tuning.send_waves - 3) + 10 * std::abs(tuning.combine_send_waves - 5);
  };
  const auto trials = SearchTuning(
      {.blocks = 132, .waves_per_block = 16, .send_waves = 8, .combine_send_waves = 6},
      {.strategy = Strategy::kHighThroughput, .compute_units = 132, .most_waves = 16}, cost,
      [] { return true; }, [](const TuneTrial&) {});
  ASSERT_TRUE(trials.ok()) << trials.status();
  EXPECT_EQ(Fastest(*trials).us, 100);
  EXPECT_EQ(Fastest(*trials).tuning.send_waves, 3);
  EXPECT_EQ(Fastest(*trials).tuning.combine_send_waves, 5);
}

TEST(SearchTuning, StopsInTimeAndAtErrors) {
  int left = 3;
  const auto few = Search(Cost, [&] { return left-- > 0; });
  ASSERT_TRUE(few.ok());
  EXPECT_EQ(few->size(), 4U);
  const auto failed = Search(
      [](const Tuning& tuning) -> absl::StatusOr<double> {
        if (tuning.row_parts == 4) return absl::InternalError("broken");
        return Cost(tuning);
      },
      [] { return true; });
  EXPECT_EQ(failed.status().message(), "broken");
  const auto misfit = Search(
      [](const Tuning&) -> absl::StatusOr<double> { return absl::InvalidArgumentError("no"); },
      [] { return true; });
  EXPECT_THAT(std::string(misfit.status().message()), HasSubstr("built-in choice does not fit"));
}

TEST(SearchTuning, TinyGpus) {
  const auto trials = SearchTuning(
      {.blocks = 2, .send_blocks = 1, .waves_per_block = 1, .row_parts = 1},
      {.compute_units = 1, .most_waves = 1}, Cost, [] { return true; }, [](const TuneTrial&) {});
  ASSERT_TRUE(trials.ok()) << trials.status();
  for (const TuneTrial& trial : *trials) EXPECT_LT(trial.tuning.send_blocks, trial.tuning.blocks);
}

TEST(CompareTuned, OnlyBeyondNoise) {
  const std::vector<double> base = {100, 102, 98, 101, 99, 100, 103, 97};
  const auto scaled = [&](double factor) {
    std::vector<double> us = base;
    for (double& each : us) each *= factor;
    return us;
  };
  EXPECT_TRUE(CompareTuned(base, scaled(0.95)).faster);
  EXPECT_FALSE(CompareTuned(base, base).faster);
  EXPECT_FALSE(CompareTuned(base, scaled(0.995)).faster) << "less than 1%";
  EXPECT_FALSE(CompareTuned(base, scaled(1.1)).faster);
  // A lower median, but as many pairs lost as won.
  const TuneComparison noisy =
      CompareTuned({100, 100, 100, 100, 100, 100}, {90, 90, 90, 101, 101, 90.5});
  EXPECT_LT(noisy.tuned_us, 99);
  EXPECT_EQ(noisy.won, 4);
  EXPECT_FALSE(noisy.faster);
  EXPECT_FALSE(CompareTuned({}, {}).faster);
}

TEST(TuneTable, LinesAndVerdicts) {
  const TuneTrial trial = {.tuning = kStart, .us = 50};
  EXPECT_EQ(TuneHead(Strategy::kDirect),
            "# blocks  send_blocks   waves  row_parts        time      built-in\n"
            "#                                               (us)           (%)\n");
  EXPECT_EQ(TuneLine(Strategy::kDirect, trial, 100),
            "     264          132      16          1        50.0          50.0\n");
  EXPECT_THAT(TuneLine(Strategy::kDirect, {.tuning = kStart, .fits = false}, 100),
              HasSubstr("-  does not fit\n"));
  EXPECT_THAT(TuneHead(Strategy::kHighThroughput), HasSubstr("send_waves  combine_send_waves"));
  TuneResult result;
  result.built_in = kStart;
  result.tuned = kStart;
  result.tuned.blocks = 132;
  EXPECT_THAT(TuneVerdict(result, 128),
              HasSubstr("128 tokens: nothing is faster than the built-in choice\n#   (blocks 264, "
                        "send_blocks 132, waves 16, row_parts 1)"));
  result.comparison = {.default_us = 50, .tuned_us = 40, .pairs = 20, .won = 19, .faster = true};
  EXPECT_THAT(TuneVerdict(result, 128), HasSubstr("faster in 19 of 20 pairs): taken\n"));
  result.comparison.faster = false;
  result.out_of_time = true;
  EXPECT_THAT(TuneVerdict(result, 128), HasSubstr("the built-in choice stays; out of time\n"));
}

TEST(TuneTable, WhichStrategyAutoShouldBe) {
  StrategyResult result;
  result.built_in = result.fastest = Strategy::kLowLatency;
  EXPECT_EQ(StrategyVerdict(result, 8),
            "# 8 tokens: auto stays low_latency, which is the fastest\n");
  result.fastest = Strategy::kDirect;
  result.comparison = {.default_us = 50, .tuned_us = 40, .pairs = 20, .won = 19, .faster = true};
  EXPECT_THAT(StrategyVerdict(result, 8),
              HasSubstr("direct takes 40.0 us, low_latency, which auto is by itself, 50.0 us"));
  EXPECT_THAT(StrategyVerdict(result, 8), HasSubstr("in 19 of 20 pairs): taken\n"));
  RunSpec options;
  options.workload.config.max_tokens_per_rank = 8;
  result.key.strategy = Strategy::kAuto;
  const TuningEntry entry = EntryOf(result, options);
  EXPECT_EQ(entry.chosen, Strategy::kDirect);
  EXPECT_THAT(entry.note, HasSubstr("40.0 us, low_latency 50.0 us; faster in 19 of 20 pairs"));
  result.comparison.faster = false;
  EXPECT_THAT(StrategyVerdict(result, 8), HasSubstr("not beyond noise, auto stays\n"));
}

// On a node: each strategy, and the choice among them.
TEST(TuneShape, StrategiesAgainstEachOther) {
  const absl::StatusOr<std::unique_ptr<Node>> node = Node::Create({.num_ranks = 1});
  if (!node.ok()) GTEST_SKIP() << node.status();
  RunSpec options;
  WorkloadSpec& spec = options.workload;
  spec.num_ranks = 1;
  spec.config.num_experts = 8;
  spec.config.topk = 2;
  spec.config.hidden = 64;
  spec.config.max_tokens_per_rank = 8;
  spec.tokens = {8};
  options.iters = 2;
  options.warmup = 1;
  ASSERT_TRUE(CompleteSpec(options).ok());
  const Progress quiet(false);
  std::vector<TuneResult> results;
  for (const Strategy strategy : AllStrategies()) {
    RunSpec named = options;
    named.workload.config.strategy = strategy;
    absl::StatusOr<TuneResult> result =
        TuneShape(**node, named, absl::Milliseconds(200), [](const TuneTrial&) {}, quiet);
    ASSERT_TRUE(result.ok()) << result.status();
    EXPECT_EQ(result->key.strategy, strategy);
    EXPECT_GT(result->best_us(), 0);
    results.push_back(*std::move(result));
  }
  // Whatever is the fastest here: each of them in its turn.
  for (TuneResult& fastest : results) {
    for (TuneResult& each : results) each.comparison = {.default_us = 100};
    fastest.comparison.default_us = 1;
    const absl::StatusOr<StrategyResult> best = CompareStrategies(**node, options, results, quiet);
    ASSERT_TRUE(best.ok()) << best.status();
    EXPECT_EQ(best->key.strategy, Strategy::kAuto);
    EXPECT_EQ(best->built_in, Strategy::kLowLatency);
    EXPECT_EQ(best->fastest, fastest.key.strategy);
    EXPECT_EQ(best->comparison.pairs, best->fastest == best->built_in ? 0 : 20);
  }
}

GemmOptions SmallProduct() {
  GemmOptions options;
  options.rows = {5, 0, 40};
  options.n = 64;
  options.k = 72;
  options.activation = GemmActivation::kSwiGlu;
  options.bias = true;
  options.iters = 1;
  options.warmup = 0;
  options.samples = 4;
  return options;
}

TEST(TuneGemm, MeasuresEveryTileShape) {
  const absl::StatusOr<GemmTuneResult> result = TuneGemm(SmallProduct());
  if (absl::IsUnavailable(result.status())) GTEST_SKIP() << result.status();
  ASSERT_TRUE(result.ok()) << result.status();
  ASSERT_EQ(result->trials.size(), EnumTable(GemmTiles{}).size());
  const absl::StatusOr<std::string> gpu = CurrentGpuName();
  ASSERT_TRUE(gpu.ok()) << gpu.status();
  EXPECT_EQ(result->key, GemmTuningKeyOf(*gpu, SmallProduct().Config()));
  EXPECT_EQ(result->key.rows, (TuningRange{9, 16}));
  EXPECT_EQ(result->built_in, GemmTiles::kFew32);
  double least = 0;
  double tuned = 0;
  for (size_t i = 0; i < result->trials.size(); ++i) {
    const GemmTrial& trial = result->trials[i];
    EXPECT_EQ(trial.tiles, EnumTable(GemmTiles{})[i].value);
    EXPECT_GT(trial.us, 0);
    least = i == 0 ? trial.us : std::min(least, trial.us);
    if (trial.tiles == result->tuned) tuned = trial.us;
  }
  EXPECT_EQ(tuned, least);
  EXPECT_EQ(result->comparison.pairs, result->tuned == result->built_in ? 0 : 10);
}

TEST(TuneGemm, NeedsRows) {
  GemmOptions options = SmallProduct();
  options.rows = {0, 0};
  EXPECT_EQ(TuneGemm(options).status(),
            absl::InvalidArgumentError("no expert has rows: there is nothing to measure"));
}

TEST(TuneGemm, TableVerdictAndEntry) {
  GemmTuneResult result;
  result.built_in = result.tuned = GemmTiles::kFew16;
  result.trials = {{GemmTiles::kWide, 50}, {GemmTiles::kFew16, 40}};
  EXPECT_EQ(GemmTuneTable(result),
            "#    tiles        time      built-in\n"
            "#                 (us)           (%)\n"
            "      wide        50.0         125.0\n"
            "     few16        40.0         100.0\n");
  EXPECT_EQ(GemmVerdict(result), "# nothing is faster than the built-in choice, few16\n");
  result.tuned = GemmTiles::kWide;
  result.key.n = 64;
  result.comparison = {.default_us = 50, .tuned_us = 40, .pairs = 10, .won = 9, .faster = true};
  EXPECT_EQ(GemmVerdict(result),
            "# wide takes 40.0 us, the built-in choice few16 50.0 us\n"
            "#   (medians; faster in 9 of 10 pairs): taken\n");
  const GemmTuningEntry entry = EntryOf(result, SmallProduct());
  EXPECT_EQ(entry.key, result.key);
  EXPECT_EQ(entry.tiles, GemmTiles::kWide);
  EXPECT_EQ(
      entry.note,
      "3 experts, 45 rows, N 64, K 72, bf16, activation swiglu, bias: 40.0 us, few16 50.0 us; "
      "faster in 9 of 10 pairs");
  result.comparison.faster = false;
  EXPECT_THAT(GemmVerdict(result), HasSubstr("not beyond noise, the built-in choice stays\n"));
}

}  // namespace
}  // namespace octet
