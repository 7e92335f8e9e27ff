// The flags, figures, table and JSON of `octet perf`. (What the program does:
// octet_measure_test.py.)
#include "tools/measure/step/perf.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/strings/str_split.h"
#include "tools/commands/perf_flags.h"
#include "tools/report/perf_report.h"
#include "tools/support/text_table.h"

namespace octet {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::SizeIs;
using ::testing::StartsWith;

TEST(Sizes, StepsAndFactors) {
  const auto sizes = [](int begin, int end, int step, double factor) {
    const absl::StatusOr<std::vector<int>> sizes = Sizes(begin, end, step, factor);
    EXPECT_TRUE(sizes.ok()) << sizes.status();
    return sizes.ok() ? *sizes : std::vector<int>();
  };
  EXPECT_THAT(sizes(1, 8, 0, 2), ElementsAre(1, 2, 4, 8));
  EXPECT_THAT(sizes(3, 20, 0, 2), ElementsAre(3, 6, 12));
  EXPECT_THAT(sizes(1, 5, 0, 1.5), ElementsAre(1, 2, 3, 4));
  EXPECT_THAT(sizes(0, 10, 5, 2), ElementsAre(0, 5, 10));
  EXPECT_THAT(sizes(7, 7, 0, 1), ElementsAre(7));
  EXPECT_THAT(sizes(0, 0, 0, 2), ElementsAre(0));
  EXPECT_THAT(sizes(0, 3, 9, 2), ElementsAre(0));
}

TEST(Sizes, MustComeToAnEnd) {
  const auto refusal = [](int begin, int end, int step, double factor) {
    return std::string(Sizes(begin, end, step, factor).status().message());
  };
  EXPECT_EQ(refusal(8, 4, 0, 2), "--end=4 is less than --begin=8");
  EXPECT_EQ(refusal(1, 4, 0, 1), "from 1 tokens --factor=1 never comes to 4");
  EXPECT_THAT(refusal(0, 4, 0, 2), HasSubstr("never comes to 4"));
  EXPECT_THAT(refusal(1, 65536, 1, 2), HasSubstr("more than 1000 rows"));
}

class PerfFlagsTest : public testing::Test {
 protected:
  static absl::StatusOr<PerfSpec> Parse(const std::vector<std::string>& args) {
    PerfFlags flags;
    CommandLine line({}, kNcclTestsLetters);
    AddPerfFlags(line, flags);
    if (absl::Status status = line.Parse(args); !status.ok()) return status;
    return ResolvePerf(line, flags, 8);
  }
};

TEST_F(PerfFlagsTest, AsNcclTestsWouldBeCalled) {
  const absl::StatusOr<PerfSpec> perf = Parse({"-b",
                                               "1K",
                                               "-e",
                                               "4k",
                                               "-f",
                                               "2",
                                               "-g",
                                               "4",
                                               "-n",
                                               "7",
                                               "-w0",
                                               "-c",
                                               "0",
                                               "-d",
                                               "fp16",
                                               "-T",
                                               "1.5",
                                               "-J",
                                               "/tmp/octet_perf_test.json",
                                               "--topk=6"});
  ASSERT_TRUE(perf.ok()) << perf.status();
  ASSERT_THAT(perf->shapes, SizeIs(3));
  EXPECT_EQ(perf->check_steps, 0);
  EXPECT_EQ(perf->json, "/tmp/octet_perf_test.json");
  for (int i = 0; i < 3; ++i) {
    const RunSpec& each = perf->shapes[static_cast<size_t>(i)];
    const int tokens = 1024 << i;
    EXPECT_THAT(each.workload.tokens, ElementsAre(tokens, tokens, tokens, tokens));
    EXPECT_EQ(each.workload.config.max_tokens_per_rank, tokens);
    EXPECT_EQ(each.workload.config.dtype, DType::kFloat16);
    EXPECT_EQ(each.workload.config.topk, 6);
    EXPECT_EQ(each.iters, 7);
    EXPECT_EQ(each.warmup, 0);
    EXPECT_EQ(each.timeout, absl::Seconds(1.5));
    EXPECT_EQ(each.json, "");
  }
}

TEST_F(PerfFlagsTest, Defaults) {
  const absl::StatusOr<PerfSpec> perf = Parse({});
  ASSERT_TRUE(perf.ok()) << perf.status();
  ASSERT_THAT(perf->shapes, SizeIs(1));
  EXPECT_EQ(perf->shapes[0].workload.tokens, std::vector<int>(8, 128));
  EXPECT_EQ(perf->check_steps, 1);
  EXPECT_THAT(perf->strategies, ElementsAre("auto"));
}

TEST_F(PerfFlagsTest, SeveralStrategies) {
  const absl::StatusOr<PerfSpec> perf = Parse({"--strategy=direct,nccl", "-b2", "-e4", "-i2"});
  ASSERT_TRUE(perf.ok()) << perf.status();
  EXPECT_THAT(perf->strategies, ElementsAre("direct", "nccl"));
  EXPECT_THAT(perf->shapes, SizeIs(2));
}

TEST_F(PerfFlagsTest, Graph) {
  const absl::StatusOr<PerfSpec> perf = Parse({"--graph", "-b2"});
  ASSERT_TRUE(perf.ok()) << perf.status();
  EXPECT_TRUE(perf->graph);
  EXPECT_FALSE(perf->shapes[0].graph);  // a row of its own
}

// Two ranks, `us` on the slower one in each of two steps.
std::vector<StepResult> Steps(double us, int64_t wrong) {
  std::vector<StepResult> steps(2);
  for (size_t i = 0; i < 2; ++i) {
    const double factor = i == 0 ? 1 : 3;
    for (int r = 0; r < 2; ++r) {
      RankStepResult rank;
      rank.logical_bytes = 4'000'000;
      rank.dispatch_logical_bytes = 2'000'000;
      rank.dispatch_wire_bytes = r == 0 ? 1'000'000 : 3'000'000;
      rank.wire_bytes = rank.dispatch_wire_bytes + 1'000'000;
      rank.all_us = us * factor / (r + 1);
      rank.call_us = {us * factor / (r + 1), 2 * us * factor / (2 - r)};
      rank.verification.wrong_rows = r == 1 ? wrong : 0;
      rank.verification.wrong_tokens = r == 0 ? 10 * wrong : 0;
      rank.verification.bitwise = wrong == 0;
      steps[i].ranks.push_back(rank);
    }
  }
  return steps;
}

TEST(PerfFigures, SlowestRankAndBusiestRank) {
  const auto figures = PerfFiguresOf(Steps(100, 1), Steps(10, 2));
  EXPECT_THAT(figures[0].us, ElementsAre(10, 30));
  EXPECT_THAT(figures[1].us, ElementsAre(20, 60));
  EXPECT_THAT(figures[2].us, ElementsAre(100, 300));
  // 2 MB in 10 and 30 µs are 200 and 66.7 GB/s; 3 MB of the busier sender 300 and 100.
  EXPECT_NEAR(figures[0].logical_gbps, 400.0 / 3, 1e-9);
  EXPECT_NEAR(figures[0].wire_gbps, 200, 1e-9);
  EXPECT_NEAR(figures[1].wire_gbps, 1e3 / 30, 1e-9);
  EXPECT_NEAR(figures[2].wire_gbps, 4e3 * 2 / 3 / 100, 1e-9);
  EXPECT_EQ(figures[0].wrong, 4);
  EXPECT_EQ(figures[1].wrong, 40);
  EXPECT_EQ(figures[2].wrong, 22);
}

PerfRow Row(int tokens, int64_t wrong) {
  PerfRow row;
  row.tokens = tokens;
  row.strategy = "direct";
  row.options.workload.config.strategy = Strategy::kDirect;
  row.options.workload.config.hidden = 7168;
  row.options.workload.config.topk = 8;
  row.options.workload.config.num_experts = 256;
  row.options.workload.num_ranks = 2;
  row.config.tuning = {.blocks = 264,
                       .row_parts = 2,
                       .send_waves = 3,
                       .combine_send_waves = 5,
                       .row_copies = RowCopies::kBulk};
  row.config.dispatch_format = DispatchFormat::kQuantizedFp8;
  row.config.scale_format = ScaleFormat::kUe8m0;
  row.config.output = Output::kRankMajor;
  row.kinds = PerfFiguresOf(Steps(100, wrong), Steps(10, wrong));
  row.verified_steps = 4;
  return row;
}

Topology Machine() {
  Topology topology;
  topology.platform = "nvidia";
  topology.gpus.resize(2);
  topology.gpus[0].name = "GPU";
  return topology;
}

TEST(PerfTable, LinesUpWithItsHead) {
  PerfSpec perf;
  perf.shapes.emplace_back();
  perf.shapes[0] = Row(128, 0).options;
  perf.shapes[0].iters = 20;
  perf.check_steps = 1;
  const std::string head = PerfHead(Machine(), perf);
  const Ceilings ceilings = {.all_to_all_gbps = 400};
  const std::string rows = PerfLines(Row(128, 0), ceilings);
  EXPECT_EQ(
      rows,
      "      128           direct    264 dispatch      20.0       30.0  70.7    133.3    200.0"
      "  50.0      0\n"
      "      128           direct    264  combine      40.0       60.0  70.7     66.7     33.3"
      "   8.3      0\n"
      "      128           direct    264     both     200.0      300.0  70.7     26.7     26.7"
      "   6.7      0\n");
  std::vector<std::string> lines = absl::StrSplit(head, '\n', absl::SkipEmpty());
  for (const std::string& each : lines) {
    EXPECT_THAT(each, StartsWith("#"));
    EXPECT_LE(each.size(), kTextWidth);
  }
  const std::string line = rows.substr(0, rows.find('\n'));
  EXPECT_EQ(lines.back().size(), line.size());
  EXPECT_THAT(lines[lines.size() - 2], SizeIs(line.size()));
  EXPECT_EQ(line.size(), kTextWidth);
  EXPECT_THAT(head, HasSubstr("\n# experts 256, topk 8, hidden 7168, bf16; "));
  EXPECT_THAT(head, Not(HasSubstr("emulated")));
  EXPECT_THAT(head, HasSubstr("the last 1 verified to the bit\n#\n"));
  EXPECT_THAT(head, Not(HasSubstr("nothing verified")));
  perf.shapes[0].workload.config = Row(1, 0).config;
  perf.shapes[0].workload.config.high_throughput.host_totals = true;
  EXPECT_THAT(
      PerfHead(Machine(), perf),
      HasSubstr("\n# format quantized_fp8 (scales ue8m0 of 128 columns), received rank_major, "
                "row_copies bulk,\n# host_totals\n#\n"));
}

TEST(PerfTable, OfEmulatedGpusSaysWhatItsTimesAreWorth) {
  PerfSpec perf;
  perf.shapes.emplace_back();
  Topology emulated = Machine();
  emulated.platform = "emulation";
  EXPECT_THAT(PerfHead(emulated, perf),
              HasSubstr("\n# emulated GPUs: times say nothing about the speed of real ones\n"));
}

constexpr size_t kColumns = 11;

std::vector<std::string> FirstLineOf(const PerfRow& row) {
  const std::string lines = PerfLines(row, Ceilings());
  return absl::StrSplit(lines.substr(0, lines.find('\n')), ' ', absl::SkipEmpty());
}

TEST(PerfTable, WideCellsDoNotRunTogether) {
  PerfRow row = Row(123456789, 123456789);
  row.strategy = "a_strategy_with_a_long_name";
  row.config.tuning.blocks = 123456789;
  EXPECT_THAT(FirstLineOf(row), SizeIs(kColumns));
}

TEST(PerfTable, WithoutChecksAndWithoutLinks) {
  PerfRow row = Row(1, 0);
  row.verified_steps = 0;
  const std::vector<std::string> cells = FirstLineOf(row);
  ASSERT_THAT(cells, SizeIs(kColumns));
  EXPECT_EQ(cells[9], "-");
  EXPECT_EQ(cells[10], "N/A");
  EXPECT_THAT(PerfFoot({row}, Ceilings()), HasSubstr("# Wrong rows          : N/A\n"));
}

TEST(PerfTable, Foot) {
  const std::string foot = PerfFoot({Row(1, 0), Row(2, 1)}, Ceilings());
  EXPECT_THAT(foot, HasSubstr("# Wrong rows          : 44 FAILED, 8 steps verified\n"));
  for (const absl::string_view line : absl::StrSplit(foot, '\n')) {
    EXPECT_LE(line.size(), kTextWidth) << line;
  }
  EXPECT_THAT(foot, HasSubstr("# Avg wire bandwidth  : dispatch 200.0, combine 33.3, both 26.7 "
                              "GB/s (direct)\n"));
}

TEST(PerfTable, AutosChoiceIsNotTakenForTheSameByName) {
  PerfRow chosen = Row(1, 0);
  chosen.options.workload.config.strategy = Strategy::kAuto;
  EXPECT_THAT(PerfLines(chosen, Ceilings()), HasSubstr("          direct*    264 "));
  const std::string foot = PerfFoot({chosen, Row(1, 0)}, Ceilings());
  EXPECT_THAT(foot, HasSubstr("GB/s (direct*)\n"));
  EXPECT_THAT(foot, HasSubstr("GB/s (direct)\n"));
  EXPECT_EQ(
      nlohmann::json::parse(PerfJson(Machine(), {chosen}, Ceilings()))["rows"][0]["auto_strategy"],
      true);
}

TEST(PerfTable, ReplaysAreNotTakenForCalls) {
  PerfRow replayed = Row(1, 0);
  replayed.options.graph = true;
  EXPECT_THAT(PerfLines(replayed, Ceilings()), HasSubstr("          direct+    264 "));
  const std::string foot = PerfFoot({replayed, Row(1, 0)}, Ceilings());
  EXPECT_THAT(foot, HasSubstr("GB/s (direct+)\n"));
  EXPECT_THAT(foot, HasSubstr("GB/s (direct)\n"));
  EXPECT_THAT(foot, HasSubstr("+: replays"));
  const nlohmann::json rows =
      nlohmann::json::parse(PerfJson(Machine(), {replayed, Row(1, 0)}, Ceilings()))["rows"];
  EXPECT_EQ(rows[0]["graph"], true);
  EXPECT_EQ(rows[1]["graph"], false);
}

TEST(PerfCeilings, OfASingleRankAreNotZeros) {
  const Ceilings alone = {.empty_launch_us = 5, .node_barrier_us = 1.5};
  const std::string foot = PerfFoot({Row(1, 0)}, alone);
  EXPECT_THAT(foot, HasSubstr("# ceilings of this run: a single rank has no links; barrier of the "
                              "GPU 1.50 us"));
  EXPECT_THAT(foot, Not(HasSubstr("0.000 GB/s per GPU")));
  const nlohmann::json json =
      nlohmann::json::parse(PerfJson(Machine(), {Row(1, 0)}, alone))["ceilings"];
  for (const char* name : {"all_to_all_gbps", "loads_gbps", "bulk_gbps", "copy_engine_gbps",
                           "pair_gbps", "flag_round_trip_us", "launch_skew_us"}) {
    EXPECT_TRUE(json[name].is_null()) << name;
  }
  EXPECT_EQ(json["empty_launch_us"], 5);
  const Ceilings two = {.all_to_all_gbps = 400, .launch_skew_us = 0};
  EXPECT_EQ(
      nlohmann::json::parse(PerfJson(Machine(), {Row(1, 0)}, two))["ceilings"]["launch_skew_us"],
      0);
}

TEST(PerfJson, HasRealTypesAndEveryStep) {
  const nlohmann::json json = nlohmann::json::parse(
      PerfJson(Machine(), {Row(128, 1)}, {.all_to_all_gbps = 400, .empty_launch_us = 5}));
  EXPECT_EQ(json["schema"], 1);
  EXPECT_EQ(json["ceilings"]["empty_launch_us"], 5);
  const nlohmann::json& row = json["rows"][0];
  EXPECT_TRUE(row["tokens"].is_number_integer());
  EXPECT_TRUE(row["fuse_expert"].is_boolean());
  EXPECT_EQ(row["strategy"], "direct");
  EXPECT_EQ(row["blocks"], 264);
  EXPECT_EQ(row["send_waves"], 3);
  EXPECT_EQ(row["combine_send_waves"], 5);
  EXPECT_EQ(row["row_parts"], 2);
  EXPECT_EQ(row["row_copies"], "bulk");
  EXPECT_EQ(row["format"], "quantized_fp8");
  EXPECT_EQ(row["scales"], "ue8m0");
  EXPECT_EQ(row["received"], "rank_major");
  EXPECT_EQ(row["duplicates"], "fill");
  EXPECT_EQ(row["combine_order"], "auto");
  EXPECT_EQ(row["auto_strategy"], false);
  EXPECT_EQ(row["routing"], "uniform");
  EXPECT_EQ(row["combine"]["steps_us"], nlohmann::json({20, 60}));
  EXPECT_EQ(row["combine"]["us"]["median"], 40);
  EXPECT_EQ(row["dispatch"]["ceiling_ratio"], 0.5);
  EXPECT_EQ(row["dispatch"]["wrong"], 2);
  EXPECT_TRUE(nlohmann::json::parse(
                  PerfJson(Machine(), {Row(1, 0)}, Ceilings()))["rows"][0]["both"]["ceiling_ratio"]
                  .is_null());
}

}  // namespace
}  // namespace octet
