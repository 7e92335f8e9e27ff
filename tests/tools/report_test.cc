// Figures, tables and JSON from results made up here.
#include "tools/report/report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "tools/support/statistics.h"
#include "tools/support/text_table.h"

namespace octet {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

TEST(Statistics, OfFewAndMany) {
  EXPECT_EQ(Summarize(std::vector<double>{}).median, 0);
  EXPECT_EQ(Summarize(std::vector<double>{5}).p99, 5);
  EXPECT_EQ(Summarize(std::vector<double>{5}).cv, 0);
  const Statistics even = Summarize(std::vector<double>{4, 1, 3, 2});
  EXPECT_EQ(even.median, 2.5);
  EXPECT_EQ(even.min, 1);
  EXPECT_EQ(even.p99, 4);
  EXPECT_EQ(even.mean, 2.5);
  EXPECT_EQ(even.max, 4);
  EXPECT_DOUBLE_EQ(even.cv, std::sqrt(5.0 / 3) / 2.5);
  EXPECT_EQ(Summarize(std::vector<double>{3, 1, 2}).median, 2);
  std::vector<double> hundred;
  for (int i = 1; i <= 100; ++i) hundred.push_back(i);
  EXPECT_EQ(Summarize(hundred).p99, 99);
}

TEST(Comment, BreaksAtBlanks) {
  EXPECT_EQ(Comment("one"), "# one\n");
  EXPECT_EQ(Comment("one\n\n  two"), "# one\n#\n#   two\n");
  const std::string word(40, 'x');
  EXPECT_EQ(Comment(absl::StrCat(word, " ", word, " ", word), 2),
            absl::StrCat("# ", word, " ", word, "\n#   ", word, "\n"));
  const std::string wide(kTextWidth + 1, 'x');
  EXPECT_EQ(Comment(wide), absl::StrCat("# ", wide, "\n"));
}

// Two ranks, two timed steps of 100 and 200 µs on rank 0, twice that on rank 1.
RunResult Result() {
  RunResult result;
  result.options.workload.num_ranks = 2;
  result.options.workload.seed = 3;
  result.options.iters = 2;
  result.config.num_experts = 8;
  result.config.strategy = Strategy::kDirect;
  for (int i = 1; i <= 2; ++i) {
    StepResult step;
    for (int r = 1; r <= 2; ++r) {
      RankStepResult rank;
      rank.num_tokens = 10 * r;
      rank.rows_sent = 20 * r;
      rank.rows_received = 30 * r;
      rank.logical_bytes = 1'000'000;
      rank.wire_bytes = 2'000'000 * r;
      rank.all_us = 100 * i * r;
      rank.phase_us = {1, 2, 3, 4, 5.0 * r};
      step.ranks.push_back(rank);
    }
    step.all_us = 200 * i;
    step.wall_us = 250 * i;
    result.steps.push_back(step);
    result.by_phases.push_back(step);
  }
  return result;
}

Topology ReportedMachine() {
  Topology topology;
  topology.platform = "emulation";
  topology.gpus.resize(2);
  topology.gpus[0].name = "some \"GPU\"";
  return topology;
}

TEST(Summary, RanksAndTotal) {
  const RunSummary summary = Summarize(Result());
  ASSERT_EQ(summary.ranks.size(), 2U);
  EXPECT_EQ(summary.ranks[0].all_us.median, 150);
  EXPECT_EQ(summary.ranks[1].all_us.median, 300);
  EXPECT_EQ(summary.total.all_us.median, 300);
  EXPECT_EQ(summary.total.all_us.min, 200);
  EXPECT_EQ(summary.total.all_us.p99, 400);
  EXPECT_EQ(summary.wall_us.median, 375);
  EXPECT_EQ(summary.total.num_tokens, 30);
  EXPECT_EQ(summary.total.rows_sent, 60);
  EXPECT_EQ(summary.total.phase_us[4], 10);
  // 1 MB in 100 and 200 µs: 10 and 5 GB/s.
  EXPECT_DOUBLE_EQ(summary.ranks[0].logical_gbps, 7.5);
  // The busiest rank's bytes over the whole step: 4 MB in 200 and 400 µs.
  EXPECT_DOUBLE_EQ(summary.total.wire_gbps, 15);
}

TEST(RunTable, HasALineForEachRankAndAllInTwoTables) {
  RunResult result = Result();
  std::vector<std::vector<std::string>> rows;
  const std::string table = RunTable(ReportedMachine(), result);
  for (const absl::string_view line : absl::StrSplit(table, '\n')) {
    EXPECT_LE(line.size(), kTextWidth) << line;
    if (line.empty() || line[0] == '#') continue;
    rows.push_back(absl::StrSplit(line, ' ', absl::SkipEmpty()));
  }
  ASSERT_EQ(rows.size(), 6U);
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(rows[i].size(), 11U);
    EXPECT_EQ(rows[3 + i].size(), 6U);
  }
  EXPECT_EQ(rows[2][0], "all");
  EXPECT_EQ(rows[2][1], "30");
  EXPECT_EQ(rows[2][4], "300.0");
  EXPECT_EQ(rows[2][10], "yes");
  EXPECT_EQ(rows[5][0], "all");
  EXPECT_EQ(rows[5][5], "10.0");
}

TEST(RunTable, OfEmulatedGpusSaysWhatItsTimesAreWorth) {
  const std::string note = "\n# emulated GPUs: times say nothing about the speed of real ones\n";
  const RunResult result = Result();
  Topology real = ReportedMachine();
  real.platform = "nvidia";
  EXPECT_THAT(RunTable(ReportedMachine(), result), HasSubstr(note));
  EXPECT_THAT(RunTable(real, result), Not(HasSubstr(note)));
  EXPECT_THAT(WorkloadTable(ReportedMachine(), {&result, 1}), HasSubstr(note));
  EXPECT_THAT(WorkloadTable(real, {&result, 1}), Not(HasSubstr(note)));
}

TEST(RunTable, SaysHowRowsTravelAndWhatHeapThatTakes) {
  RunResult result = Result();
  result.heap_bytes = 12'340'000;
  EXPECT_THAT(RunTable(ReportedMachine(), result),
              HasSubstr("# symmetric heap on each GPU: 12.3 MB\n"));
  EXPECT_THAT(RunTable(ReportedMachine(), result), Not(HasSubstr("pull")));
  result.config.combine_method = CombineMethod::kPull;
  result.config.tuning.row_copies = RowCopies::kBulk;
  result.config.high_throughput.host_totals = true;
  EXPECT_THAT(RunTable(ReportedMachine(), result),
              HasSubstr("\n# combine pull, row_copies bulk, host_totals\n"));
}

TEST(RunTable, SaysWhatIsWrong) {
  RunResult result = Result();
  result.by_phases[1].ranks[1].verification = {.bitwise = false,
                                               .within_tolerance = false,
                                               .max_error = 0.5,
                                               .wrong_tokens = 1,
                                               .first = "rank 1: y is wrong"};
  const std::string table = RunTable(ReportedMachine(), result);
  EXPECT_THAT(table, HasSubstr("NO\n"));
  EXPECT_THAT(table, HasSubstr("# NOT all of 4 steps"));
  EXPECT_EQ(FirstDifference(result), "rank 1: y is wrong");
  result.options.check = false;
  EXPECT_THAT(RunTable(ReportedMachine(), result), HasSubstr("Nothing was verified"));
  EXPECT_EQ(FirstDifference(Result()), "");
}

TEST(WorkloadTable, HasTheGeometricMean) {
  std::vector<RunResult> results = {Result(), Result(), Result()};
  results[0].options.name = "a/test";
  for (size_t i = 1; i < 3; ++i) {
    results[i].options.name = "8/2/6144/16";
    results[i].options.benchmark = true;
  }
  for (StepResult& step : results[2].steps) step.all_us *= 4;
  const std::string table = WorkloadTable(ReportedMachine(), results);
  EXPECT_THAT(table, HasSubstr("medians: 600.0 us"));
  for (const absl::string_view line : absl::StrSplit(table, '\n')) {
    EXPECT_LE(line.size(), kTextWidth) << line;
  }
  results.resize(1);
  EXPECT_THAT(WorkloadTable(ReportedMachine(), results), Not(HasSubstr("geometric")));
}

TEST(RunJson, HasRealTypesAndAllSteps) {
  RunResult result = Result();
  result.steps[0].ranks[0].verification.max_error = std::numeric_limits<double>::infinity();
  const nlohmann::json json =
      nlohmann::json::parse(RunJson(ReportedMachine(), {&result, 1}, nullptr));
  EXPECT_EQ(json["schema"], 1);
  EXPECT_EQ(json["platform"]["gpus"].size(), 2U);
  EXPECT_EQ(json["platform"]["gpus"][0]["name"], "some \"GPU\"");
  const nlohmann::json& run = json["runs"][0];
  EXPECT_TRUE(run["config"]["seed"].is_number_integer());
  EXPECT_TRUE(run["config"]["fuse_expert"].is_boolean());
  EXPECT_EQ(run["config"]["strategy"], "direct");
  EXPECT_EQ(run["config"]["format"], "same");
  EXPECT_EQ(run["config"]["received"], "packed");
  EXPECT_EQ(run["config"]["tokens"], nlohmann::json({10, 20}));
  EXPECT_EQ(run["total"]["all_us"]["median"], 300);
  EXPECT_EQ(run["total"]["host_us"]["median"], 375);
  EXPECT_EQ(run["ranks"].size(), 2U);
  EXPECT_EQ(run["steps"][1]["ranks"][1]["all_us"], 400);
  EXPECT_EQ(run["steps_by_phases"][0]["ranks"][1]["combine_receive_us"], 10);
  EXPECT_TRUE(run["ranks"][0]["verification"]["max_error"].is_null());
  EXPECT_FALSE(run.contains("name"));
}

}  // namespace
}  // namespace octet
