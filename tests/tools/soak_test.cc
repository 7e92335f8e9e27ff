// Shapes drawn at random, and what a soak makes of them. (With real failures: octet_cli_test.py.)
#include "tools/measure/step/soak.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "kernels/ep/ep_plan.h"
#include "octet/expert_parallel.h"
#include "tools/commands/command_line.h"
#include "tools/commands/run_flags.h"
#include "tools/measure/step/random_shape.h"
#include "tools/report/report.h"
#include "tools/support/exit_code.h"

namespace octet {
namespace {

using ::testing::HasSubstr;
using ::testing::IsSupersetOf;
using ::testing::StartsWith;

constexpr ShapeLimits kEmulation = {
    .compute_units = 4, .wave_size = 64, .gpu_bytes = 1LL << 30, .step_bytes = 32LL << 20};
constexpr ShapeLimits kH200 = {
    .compute_units = 132, .wave_size = 32, .gpu_bytes = 8LL << 30, .step_bytes = 512LL << 20};

constexpr ShapeLimits kLittleMemory = {
    .compute_units = 1, .wave_size = 64, .gpu_bytes = 64LL << 20, .step_bytes = 512LL << 20};

// A command line of `octet run`, for one shape after the other.
class RunLine {
 public:
  explicit RunLine(int num_nodes = 1) : line_(LaunchOf(num_nodes)) { AddRunFlags(line_, flags_); }

  // Returns what the flags of the shape ask for.
  RunSpec Again(const RunSpec& shape) {
    flags_ = {.run = shape};
    return Parse(line_.Changed());
  }
  RunSpec Parse(const std::vector<std::string>& args) {
    flags_ = {};
    const absl::Status status = line_.Parse(args);
    EXPECT_TRUE(status.ok()) << status;
    const absl::StatusOr<std::vector<RunSpec>> shapes = ResolveRun(line_, flags_, kMaxRanks);
    EXPECT_TRUE(shapes.ok()) << shapes.status() << "\n" << absl::StrJoin(args, " ");
    return shapes.ok() ? shapes->front() : RunSpec();
  }
  // Returns "--name" and the value of every flag.
  std::vector<std::pair<std::string, std::string>> Values(const RunSpec& shape) {
    flags_ = {.run = shape};
    std::vector<std::pair<std::string, std::string>> values;
    for (const CommandLine::Flag& flag : line_.flags()) {
      values.emplace_back("--" + flag.name, flag.value.text());
    }
    return values;
  }

 private:
  static Launch LaunchOf(int num_nodes) {
    Launch launch;
    launch.num_processes = num_nodes;
    return launch;
  }

  RunFlags flags_;
  CommandLine line_;
};

// The values that were drawn, by flag.
using Drawn = std::map<std::string, std::set<std::string>>;

Drawn DrawAndCheck(int draws, const ShapeLimits& limits) {
  Drawn drawn;
  RunLine line;
  const std::vector<int> all_ranks = {1, 2, 3, 4, 5, 7, 8, 16};
  for (int i = 0; i < draws; ++i) {
    const int ranks = all_ranks[static_cast<size_t>(i) % all_ranks.size()];
    const NodesOfRanks node = {.num_nodes = 1, .ranks_per_node = ranks};
    const RunSpec shape = RandomShape(7, static_cast<uint32_t>(i), node, limits);
    const RunSpec options = line.Again(shape);
    if (testing::Test::HasFailure()) break;
    EXPECT_EQ(options.workload.num_ranks, ranks);
    EXPECT_TRUE(options.check);
    const Tuning& tuning = options.workload.config.tuning;
    EXPECT_TRUE(tuning.blocks == 0 || tuning.send_blocks < tuning.blocks);
    EXPECT_LE(tuning.blocks, std::max(2, limits.compute_units));
    EXPECT_LE(tuning.waves_per_block * limits.wave_size, 512);
    const WorkloadSpec& spec = options.workload;
    if (spec.config.max_tokens_per_rank > 1) {
      const size_t row_bytes = options.workload.config.dtype_row_bytes();
      EXPECT_LE(ExpertParallel::HeapBytes(options.workload.config, ranks)->total(),
                static_cast<size_t>(limits.gpu_bytes));
      if (options.workload.config.output == Output::kExpertMajor) {
        const size_t rows = static_cast<size_t>(spec.config.num_experts) *
                            static_cast<size_t>(spec.config.max_tokens_per_rank);
        EXPECT_LE(3 * rows * row_bytes, static_cast<size_t>(limits.gpu_bytes));
      }
      EXPECT_LE(static_cast<size_t>(ranks * spec.config.max_tokens_per_rank * spec.config.topk) *
                    row_bytes,
                static_cast<size_t>(limits.step_bytes));
    }
    for (const auto& [flag, value] : line.Values(shape)) drawn[flag].insert(value);
    const std::string& routing = spec.routing.text;
    drawn["kind"].insert(routing.substr(0, routing.find(':')));
    drawn["variant"].insert(absl::StrCat(EnumName(options.workload.config.strategy), " ",
                                         EnumName(options.workload.config.variant.slots), " ",
                                         EnumName(options.workload.config.variant.flags)));
    if (options.workload.config.strategy == Strategy::kAuto) {
      drawn["chosen"].insert(
          std::string(EnumName(EpPlan::ByRules(options.workload.config, ranks).strategy)));
    }
    if (spec.config.max_tokens_per_rank > 1 && ranks > 1 && !spec.tokens.empty()) {
      const auto [least, most] = std::minmax_element(spec.tokens.begin(), spec.tokens.end());
      drawn["tokens"].insert(*most == 0                                  ? "none"
                             : *least == spec.config.max_tokens_per_rank ? "all"
                             : *least == 0                               ? "some ranks none"
                                                                         : "any");
    }
  }
  return drawn;
}

TEST(RandomShape, EveryShapeIsAcceptedAndEveryValueOccurs) {
  Drawn drawn = DrawAndCheck(5000, kEmulation);
  for (const auto& [flag, values] : DrawAndCheck(5000, kH200)) {
    drawn[flag].insert(values.begin(), values.end());
  }
  DrawAndCheck(1000, kLittleMemory);
  // Every flag is drawn, or never. A step with more rows than --capacity_rows is an error.
  const std::set<std::string> not_drawn = {
      "--workload",       "--soak",      "--check",      "--heap_mb",         "--ceilings",
      "--timeout_ms",     "--dump",      "--json",       "--trace",           "--schedule",
      "--rail_transport", "--rail_rows", "--rail_chunk", "--intranode_order", "--placement",
      "--capacity_rows"};
  for (const auto& [name, value] : RunLine().Values({})) {
    EXPECT_EQ(drawn[name].size() == 1, not_drawn.count(name) == 1) << name;
  }
  EXPECT_EQ(drawn["variant"].size(), SoakVariants().size());
  EXPECT_THAT(drawn["kind"],
              testing::UnorderedElementsAre("uniform", "zipf", "group", "one_expert"));
  EXPECT_THAT(drawn["tokens"],
              testing::UnorderedElementsAre("none", "all", "some ranks none", "any"));
  EXPECT_THAT(drawn["--tokens"], testing::Contains(""));
  EXPECT_THAT(drawn["--dtype"], IsSupersetOf({"bf16", "fp16"}));
  EXPECT_THAT(drawn["--expert"], IsSupersetOf({"id", "rank"}));
  EXPECT_THAT(drawn["--fuse_expert"], IsSupersetOf({"true", "false"}));
  EXPECT_THAT(drawn["chosen"],
              testing::UnorderedElementsAre("direct", "high_throughput", "low_latency"));
  EXPECT_THAT(drawn["--format"], IsSupersetOf({"same", "fp8", "quantized_fp8"}));
  EXPECT_THAT(drawn["--scales"], IsSupersetOf({"float32", "power_of_two", "ue8m0"}));
  EXPECT_THAT(drawn["--received"],
              IsSupersetOf({"packed", "deduplicated", "expert_major", "rank_major"}));
  EXPECT_THAT(drawn["--duplicates"], IsSupersetOf({"fill", "index"}));
  EXPECT_THAT(drawn["--expert_alignment"], IsSupersetOf({"1", "2", "8", "64"}));
  EXPECT_THAT(drawn["--combine_order"], IsSupersetOf({"auto", "flat", "per_rank"}));
  EXPECT_THAT(drawn["--align"], IsSupersetOf({"host", "device"}));
  EXPECT_THAT(drawn["--drop"], IsSupersetOf({"0", "0.01", "0.1", "0.5", "0.9", "1"}));
  EXPECT_THAT(drawn["--warmup"], IsSupersetOf({"0", "1"}));
  EXPECT_THAT(drawn["--iters"], IsSupersetOf({"1", "2", "3", "4"}));
  EXPECT_THAT(drawn["--topk"], IsSupersetOf({"1", "8", "31", "32"}));
  EXPECT_THAT(drawn["--experts"], IsSupersetOf({"1", "3", "256", "2048"}));
  EXPECT_THAT(drawn["--hidden"], IsSupersetOf({"8", "16", "24", "7168", "65536"}));
  EXPECT_THAT(drawn["--max_tokens"], IsSupersetOf({"1", "2", "3"}));
  EXPECT_TRUE(std::any_of(drawn["--max_tokens"].begin(), drawn["--max_tokens"].end(),
                          [](const std::string& text) { return std::stoi(text) > 4096; }));
  EXPECT_THAT(drawn["--blocks"], IsSupersetOf({"0", "2", "3", "4", "130"}));
  EXPECT_THAT(drawn["--send_blocks"], IsSupersetOf({"0", "1", "2", "3"}));
  EXPECT_THAT(drawn["--waves"], IsSupersetOf({"0", "1", "7", "8", "16"}));
  EXPECT_THAT(drawn["--row_parts"], IsSupersetOf({"0", "1", "2", "3", "32"}));
}

TEST(RandomShape, EveryShapeOfSeveralNodesIsAccepted) {
  std::map<std::string, std::set<std::string>> drawn;
  std::map<int, RunLine> lines;
  constexpr NodesOfRanks kNodes[] = {{2, 1}, {2, 4}, {3, 2}, {4, 3}, {16, 8}, {32, 16}};
  for (uint32_t i = 0; i < 3000; ++i) {
    const NodesOfRanks& nodes = kNodes[i % std::size(kNodes)];
    const RunSpec shape = RandomShape(7, i, nodes, i % 2 ? kEmulation : kH200);
    RunLine& line = lines.try_emplace(nodes.num_nodes, nodes.num_nodes).first->second;
    const RunSpec options = line.Again(shape);
    if (testing::Test::HasFailure()) break;
    EXPECT_EQ(options.workload.num_ranks, nodes.num_nodes * nodes.ranks_per_node);
    EXPECT_EQ(options.nodes.ranks_per_node, nodes.ranks_per_node);
    for (const auto& [flag, value] : line.Values(shape)) drawn[flag].insert(value);
  }
  EXPECT_THAT(drawn["--rail_rows"], testing::UnorderedElementsAre("auto", "blocks", "counted"));
  EXPECT_THAT(drawn["--rail_chunk"], IsSupersetOf({"0", "1", "2"}));
  EXPECT_THAT(drawn["--intranode_order"],
              testing::UnorderedElementsAre("auto", "flat", "per_rank"));
  EXPECT_THAT(drawn["--combine_order"], testing::ElementsAre("auto"));
  EXPECT_THAT(drawn["--strategy"],
              testing::UnorderedElementsAre("auto", "direct", "high_throughput", "low_latency"));
  EXPECT_THAT(drawn["--max_tokens"], IsSupersetOf({"1", "2", "3"}));
}

TEST(RandomShape, IsAFunctionOfSeedAndIndex) {
  constexpr NodesOfRanks kNode = {.num_nodes = 1, .ranks_per_node = 8};
  const auto shape = [&](uint64_t seed, uint32_t index) {
    return RunLine().Values(RandomShape(seed, index, kNode, kEmulation));
  };
  EXPECT_EQ(shape(1, 2), shape(1, 2));
  EXPECT_NE(shape(1, 2), shape(1, 3));
  EXPECT_NE(shape(1, 2), shape(2, 2));
}

class SoakTest : public testing::Test {
 protected:
  void SetUp() override {
    absl::StatusOr<Topology> topology = DiscoverTopology();
    if (!topology.ok()) GTEST_SKIP() << topology.status();
    topology_ = *std::move(topology);
    options_.num_ranks = std::min(4, static_cast<int>(topology_.gpus.size()));
    options_.seed = 11;
    options_.duration = absl::Hours(1);
  }

  static absl::StatusOr<RunResult> Execute(Domain& domain, const RunSpec& shape) {
    const Progress quiet(false);
    return ExecuteRun(domain, shape, quiet);
  }

  Topology topology_;
  SoakSpec options_;
};

int64_t RowsOf(const RunResult& result) {
  int64_t rows = 0;
  for (const auto* const steps : {&result.warmup, &result.steps, &result.by_phases}) {
    for (const StepResult& step : *steps) {
      for (const RankStepResult& rank : step.ranks) rows += rank.rows_received;
    }
  }
  return rows;
}

// On a busy machine that may be a single shape, which may have no tokens.
TEST_F(SoakTest, RunsUntilTheTimeIsOver) {
  options_.duration = absl::Seconds(2);
  int64_t rows = 0;
  const SoakResult result = Soak(topology_, options_, [&](Domain& domain, const RunSpec& shape) {
    EXPECT_EQ(domain.num_ranks(), shape.workload.num_ranks);
    absl::StatusOr<RunResult> run = Execute(domain, shape);
    if (run.ok()) rows += RowsOf(*run);
    return run;
  });
  EXPECT_TRUE(result.status.ok()) << result.status << "\n"
                                  << (result.failed.has_value() ? CommandOf(*result.failed) : "");
  EXPECT_FALSE(result.failed.has_value());
  EXPECT_GE(result.elapsed, options_.duration);
  SoakTally sum;
  for (const SoakTally& tally : result.tallies) sum.Add(tally);
  EXPECT_EQ(sum.shapes, result.total.shapes);
  EXPECT_EQ(sum.rows, result.total.rows);
  EXPECT_EQ(sum.rows, rows);
  EXPECT_GT(result.start.host, 0U);
  EXPECT_GT(result.half.host, 0U);
  EXPECT_GT(result.end.host, 0U);
  EXPECT_THAT(SoakTable(topology_, result),
              HasSubstr("equal the reference to the bit; 0 errors\n"));
}

TEST_F(SoakTest, SmallerNodesComeUpAndASeedMeansASequence) {
  constexpr size_t kShapes = 200;
  const auto sequence = [&] {
    std::vector<RunSpec> shapes;
    const SoakResult result =
        Soak(topology_, options_,
             [&](Domain& domain, const RunSpec& shape) -> absl::StatusOr<RunResult> {
               EXPECT_EQ(domain.num_ranks(), shape.workload.num_ranks);
               shapes.push_back(shape);
               if (shapes.size() == kShapes) return absl::CancelledError("enough");
               RunResult nothing;
               nothing.steps.emplace_back();
               return nothing;
             });
    EXPECT_EQ(result.status, absl::CancelledError("enough"));
    return shapes;
  };
  const std::vector<RunSpec> first = sequence();
  const std::vector<RunSpec> second = sequence();
  ASSERT_EQ(first.size(), kShapes);
  ASSERT_EQ(second.size(), kShapes);
  std::set<int> ranks;
  for (size_t i = 0; i < kShapes; ++i) {
    EXPECT_EQ(first[i].workload.seed, second[i].workload.seed);
    EXPECT_EQ(first[i].workload.config.hidden, second[i].workload.config.hidden);
    ranks.insert(first[i].workload.num_ranks);
  }
  if (options_.num_ranks == 4) EXPECT_THAT(ranks, testing::UnorderedElementsAre(1, 2, 3, 4));
}

TEST_F(SoakTest, AWrongResultEndsItWithTheCommandThatRunsTheShape) {
  RunSpec last;
  int shapes = 0;
  const SoakResult result = Soak(
      topology_, options_, [&](Domain& domain, const RunSpec& shape) -> absl::StatusOr<RunResult> {
        last = shape;
        absl::StatusOr<RunResult> done = Execute(domain, shape);
        if (++shapes == 3 && done.ok()) {
          Verification& verification = done->by_phases.back().ranks.back().verification;
          verification.bitwise = false;
          verification.first = "rank 0: planted";
        }
        return done;
      });
  EXPECT_EQ(result.status, absl::DataLossError("wrong results: rank 0: planted"));
  EXPECT_EQ(ExitCodeOf(result.status), kExitWrongResults);
  EXPECT_EQ(result.total.shapes, 2);
  EXPECT_THAT(SoakTable(topology_, result), HasSubstr("then 1 ERROR"));
  ASSERT_TRUE(result.failed.has_value());
  const RunSpec failed = result.failed.value_or(RunSpec());
  const std::string command = CommandOf(failed);
  EXPECT_THAT(SoakJson(topology_, result, command), HasSubstr("\"command\": \"octet run --ranks="));
  EXPECT_THAT(SoakJson(topology_, result, command),
              HasSubstr("\"error\": \"wrong results: rank 0: planted"));
  // The same shape from its command.
  std::vector<std::string> words = absl::StrSplit(command, ' ');
  ASSERT_GT(words.size(), 2U);
  EXPECT_EQ(words[0] + " " + words[1], "octet run");
  words.erase(words.begin(), words.begin() + 2);
  const RunSpec again = RunLine().Parse(words);
  EXPECT_EQ(again.workload.num_ranks, last.workload.num_ranks);
  EXPECT_EQ(again.workload.config.num_experts, last.workload.config.num_experts);
  EXPECT_EQ(again.workload.config.topk, last.workload.config.topk);
  EXPECT_EQ(again.workload.config.hidden, last.workload.config.hidden);
  EXPECT_EQ(again.workload.config.max_tokens_per_rank, last.workload.config.max_tokens_per_rank);
  EXPECT_EQ(again.workload.tokens, last.workload.tokens);
  EXPECT_EQ(again.workload.routing.text, last.workload.routing.text);
  EXPECT_EQ(again.workload.seed, last.workload.seed);
  EXPECT_EQ(again.workload.drop, last.workload.drop);
  EXPECT_TRUE(again.workload.config.variant == last.workload.config.variant);
  EXPECT_EQ(again.iters, last.iters);
}

TEST_F(SoakTest, AnErrorEndsIt) {
  options_.timeout = absl::Milliseconds(1234);
  const SoakResult result =
      Soak(topology_, options_, [&](Domain&, const RunSpec& shape) -> absl::StatusOr<RunResult> {
        EXPECT_EQ(shape.timeout, options_.timeout);
        return absl::DeadlineExceededError("rank 1 waited");
      });
  EXPECT_EQ(result.status, absl::DeadlineExceededError("rank 1 waited"));
  ASSERT_TRUE(result.failed.has_value());
  const RunSpec failed = result.failed.value_or(RunSpec());
  EXPECT_THAT(CommandOf(failed), StartsWith("octet run --ranks="));
  EXPECT_THAT(CommandOf(failed), HasSubstr(" --timeout_ms=1234"));
  EXPECT_EQ(result.total.shapes, 0);
}

SoakResult WithMemory(size_t half, size_t end) {
  SoakResult result;
  result.options.max_growth = 32'000'000;
  result.half.host = half;
  result.end.host = end;
  return result;
}

TEST(SoakGrowth, BeyondTheBoundIsAWrongResult) {
  const absl::Status status = CheckGrowth(WithMemory(406'000'000, 471'000'000));
  EXPECT_EQ(status, absl::DataLossError("memory leaks: the process had 406.0 MB of host memory "
                                        "after half of the time and 471.0 MB at the end, which is "
                                        "more than 32.0 MB more"));
  EXPECT_EQ(ExitCodeOf(status), kExitWrongResults);
  EXPECT_FALSE(CheckGrowth(WithMemory(100'000'000, 132'000'001)).ok());
}

TEST(SoakGrowth, UpToTheBoundLessOrUnmeasuredIsNone) {
  EXPECT_EQ(CheckGrowth(WithMemory(100'000'000, 132'000'000)), absl::OkStatus());
  EXPECT_EQ(CheckGrowth(WithMemory(400'000'000, 300'000'000)), absl::OkStatus());
  EXPECT_EQ(CheckGrowth(WithMemory(0, 300'000'000)), absl::OkStatus());
  SoakResult any = WithMemory(100'000'000, 900'000'000);
  any.options.max_growth.reset();
  EXPECT_EQ(CheckGrowth(any), absl::OkStatus());
}

TEST(SoakGrowth, IsJudgedInSoaksOfHalfAMinuteOrMore) {
  for (const auto& [seconds, judged] : {std::pair("29", false), {"30", true}}) {
    RunFlags flags;
    CommandLine line;
    AddRunFlags(line, flags);
    ASSERT_TRUE(line.Parse({absl::StrCat("--soak=", seconds), "--ranks=1"}).ok());
    const absl::StatusOr<SoakSpec> options = ResolveSoak(line, flags, 1);
    ASSERT_TRUE(options.ok()) << options.status();
    EXPECT_EQ(options->max_growth.has_value(), judged) << seconds;
  }
}

TEST_F(SoakTest, MemoryThatIsKeptIsAnError) {
  options_.duration = absl::Seconds(1);
  options_.max_growth = 8'000'000;
  std::vector<std::string> kept;
  const SoakResult result =
      Soak(topology_, options_, [&](Domain&, const RunSpec&) -> absl::StatusOr<RunResult> {
        absl::SleepFor(absl::Milliseconds(100));
        kept.emplace_back(8'000'000, 'x');
        RunResult nothing;
        nothing.steps.emplace_back();
        return nothing;
      });
  EXPECT_THAT(std::string(result.status.message()), StartsWith("memory leaks"));
  EXPECT_EQ(ExitCodeOf(result.status), kExitWrongResults);
  EXPECT_FALSE(result.failed.has_value());
}

}  // namespace
}  // namespace octet
