#include "tools/commands/perf_options.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <optional>
#include <utility>

#include "absl/flags/declare.h"
#include "absl/flags/flag.h"
#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/time/time.h"
#include "kernels/ep/strategy_registry.h"
#include "octet/ep_config.h"
#include "runtime/base/status_macros.h"
#include "tools/commands/fused_options.h"
#include "tools/commands/operation.h"
#include "tools/support/atomic_file.h"

ABSL_FLAG(std::string, begin, "128", "tokens of every rank in the first row; 4K is 4096");
ABSL_FLAG(std::string, end, "", "the most tokens of every rank; empty: --begin");
ABSL_FLAG(std::string, step, "0", "tokens added from row to row, instead of --factor");
ABSL_FLAG(double, factor, 2.0, "factor between the tokens of successive rows");
ABSL_FLAG(int32_t, check_steps, 1,
          "the number of last steps of each kind that are verified to the bit; 0: none");
ABSL_FLAG(bool, graph, false,
          "a second row for each strategy, marked +: the calls are captured into a graph once and\n"
          "then replayed; other contenders have none, since their calls wait on the host");
ABSL_FLAG(double, timeout, 0.0,
          "the deadline of a wait on a GPU, in seconds; 0: OCTET_TIMEOUT_MS, else 10");
ABSL_DECLARE_FLAG(std::string, strategy);

namespace octet {
namespace {

constexpr auto kSizeFlags = std::to_array<absl::string_view>({"begin", "end", "step", "factor"});
constexpr auto kStepPerfFlags =
    JoinFlags(std::to_array<absl::string_view>({"operation"}), kSizeFlags,
              std::to_array<absl::string_view>({"check_steps", "graph", "timeout", "json"}),
              kStepFlags, kStrategyFlags, kNodesFlags, kLaunchFlags, kFormatFlags);
constexpr auto kPerfFlags = JoinFlags(kStepPerfFlags, kFusedFlags);

constexpr std::array<ShortFlag, 11> kPerfShortFlags = {{{'b', "begin"},
                                                        {'e', "end"},
                                                        {'i', "step"},
                                                        {'f', "factor"},
                                                        {'n', "iters"},
                                                        {'w', "warmup"},
                                                        {'c', "check_steps"},
                                                        {'d', "dtype"},
                                                        {'g', "ranks"},
                                                        {'T', "timeout"},
                                                        {'J', "json"}}};

constexpr size_t kMostSizes = 1000;

// Parses a number of tokens; the suffixes K and M multiply it by 1024 and its square, as in
// nccl-tests.
absl::StatusOr<int> ParseSize(absl::string_view flag, absl::string_view text) {
  absl::string_view digits = text;
  int64_t unit = 1;
  for (const absl::string_view suffix : {"K", "M"}) {
    if (!absl::EndsWithIgnoreCase(digits, suffix)) continue;
    digits.remove_suffix(1);
    unit = suffix == "K" ? 1024 : 1024 * 1024;
    break;
  }
  int64_t number = 0;
  if (!absl::SimpleAtoi(digits, &number) || number < 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("--", flag, "=", text, " is not a number of tokens (128, 4K)"));
  }
  if (number > kMaxTokensPerRank / unit) {
    return absl::InvalidArgumentError(absl::StrCat("--", flag, "=", text, " is more than the ",
                                                   kMaxTokensPerRank, " tokens of a rank at most"));
  }
  return static_cast<int>(number * unit);
}

// Returns the tokens of each row, from the flags or from a recorded routing.
absl::StatusOr<std::vector<int>> ParseSizes(const CommandLine& line, const RunOptions& common) {
  if (common.workload.recorded != nullptr) {
    for (const absl::string_view flag : kSizeFlags) {
      if (line.Given(flag)) {
        return absl::InvalidArgumentError(absl::StrCat(
            "--", flag, " does not go with --routing=file, which contains the tokens"));
      }
    }
    return std::vector<int>{common.workload.recorded->num_tokens(0)};
  }
  OCTET_ASSIGN_OR_RETURN(const int begin, ParseSize("begin", absl::GetFlag(FLAGS_begin)));
  const std::string end_text = absl::GetFlag(FLAGS_end);
  OCTET_ASSIGN_OR_RETURN(const int end, end_text.empty() ? begin : ParseSize("end", end_text));
  OCTET_ASSIGN_OR_RETURN(const int step, ParseSize("step", absl::GetFlag(FLAGS_step)));
  if (step > 0 && line.Given("factor")) {
    return absl::InvalidArgumentError("--step and --factor exclude each other");
  }
  return Sizes(begin, end, step, absl::GetFlag(FLAGS_factor));
}

// Returns what --operation asks for, but for the shapes; nothing if that is steps.
absl::StatusOr<std::optional<FusedRunOptions>> ParsePerfOperation(const CommandLine& line) {
  OCTET_ASSIGN_OR_RETURN(
      const Operation operation,
      ParseOperation(
          line,
          {{Operation::kStep, kStepPerfFlags},
           {Operation::kDispatchGemm, FlagsOfFused(Operation::kDispatchGemm, kStepPerfFlags)},
           {Operation::kGemmCombine, FlagsOfFused(Operation::kGemmCombine, kStepPerfFlags)}}));
  if (operation == Operation::kStep) return std::nullopt;
  return ParseFusedOptions(line, operation);
}

// Refuses what several nodes do not have.
absl::Status CheckForSeveralNodes(const PerfOptions& perf, const RunOptions& common, bool fused) {
  const int num_nodes = common.nodes.num_nodes;
  if (fused) {
    return absl::InvalidArgumentError(
        absl::StrCat("--operation=step is the only one for several nodes, and ", num_nodes,
                     " have been started"));
  }
  if (!perf.graph) return absl::OkStatus();
  Strategy only = Strategy::kAuto;
  for (const StrategyInfo* info : StrategyInfos()) {
    if (perf.strategies == std::vector<std::string>{std::string(info->name)}) only = info->strategy;
  }
  return CheckGraphOverNodes(common.rail_rows, only);
}

}  // namespace

absl::Span<const absl::string_view> PerfFlags() { return kPerfFlags; }
absl::Span<const ShortFlag> PerfShortFlags() { return kPerfShortFlags; }

absl::StatusOr<std::vector<int>> Sizes(int begin, int end, int step, double factor) {
  if (end < begin) {
    return absl::InvalidArgumentError(absl::StrCat("--end=", end, " is less than --begin=", begin));
  }
  if (begin < end && step == 0 && (!(factor > 1) || begin == 0)) {
    return absl::InvalidArgumentError(
        absl::StrCat("from ", begin, " tokens --factor=", factor, " never comes to ", end));
  }
  std::vector<int> sizes;
  for (int size = begin;;) {
    sizes.push_back(size);
    // A small number times a small factor may round to the same number.
    const double next = step > 0 ? static_cast<double>(size) + step
                                 : std::max(std::floor(size * factor), size + 1.0);
    if (begin == end || next > end) return sizes;
    size = static_cast<int>(next);
    if (sizes.size() == kMostSizes) {
      return absl::InvalidArgumentError(absl::StrCat(
          "--begin, --end, --step and --factor ask for more than ", kMostSizes, " rows"));
    }
  }
}

absl::StatusOr<PerfOptions> ParsePerfOptions(const CommandLine& line, int num_gpus) {
  PerfOptions perf;
  OCTET_ASSIGN_OR_RETURN(RunOptions common, ParseShapeOptions(line, num_gpus));
  perf.json = std::exchange(common.json, "");
  perf.check_steps = absl::GetFlag(FLAGS_check_steps);
  if (perf.check_steps < 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("--check_steps=", perf.check_steps, " is not from 0 up"));
  }
  const double timeout = absl::GetFlag(FLAGS_timeout);
  constexpr double kMostSeconds = 1e6;
  if (!(timeout >= 0 && timeout <= kMostSeconds)) {
    return absl::InvalidArgumentError(
        absl::StrCat("--timeout=", timeout, " is not from 0 to ", kMostSeconds));
  }
  common.timeout = absl::Seconds(timeout);
  OCTET_ASSIGN_OR_RETURN(const std::vector<int> sizes, ParseSizes(line, common));
  perf.graph = absl::GetFlag(FLAGS_graph);
  if (perf.graph && (common.cached || common.workload.config.high_throughput.host_totals)) {
    return absl::InvalidArgumentError(
        "--graph goes with neither --cached nor --host_totals: a graph has one layout, and the "
        "host would wait for calls that are only captured");
  }
  OCTET_ASSIGN_OR_RETURN(std::optional<FusedRunOptions> fused, ParsePerfOperation(line));
  perf.strategies = absl::StrSplit(absl::GetFlag(FLAGS_strategy), ',');
  if (common.nodes.num_nodes > 1) {
    OCTET_RETURN_IF_ERROR(CheckForSeveralNodes(perf, common, fused.has_value()));
  }
  // With one strategy, the options are checked against it.
  if (const auto only = ParseEnum<Strategy>("strategy", absl::GetFlag(FLAGS_strategy)); only.ok()) {
    common.workload.config.strategy = *only;
  }
  if (fused.has_value()) {
    OCTET_ASSIGN_OR_RETURN(common.workload.config.strategy,
                           ParseEnum<Strategy>("strategy", absl::GetFlag(FLAGS_strategy)));
  }
  for (const int tokens : sizes) {
    RunOptions& options = perf.shapes.emplace_back(common);
    WorkloadSpec& spec = options.workload;
    spec.config.max_tokens_per_rank = std::max(1, tokens);
    if (spec.recorded == nullptr) {
      spec.tokens.assign(static_cast<size_t>(spec.num_ranks), tokens);
    }
    OCTET_RETURN_IF_ERROR(CompleteOptions(options));
    if (!fused.has_value()) continue;
    fused->run = options;
    fused->check_steps = perf.check_steps;
    perf.fused.push_back(*fused);
  }
  if (!perf.json.empty() && line.launch().first()) {
    OCTET_RETURN_IF_ERROR(CheckCanWrite(perf.json));
  }
  return perf;
}

}  // namespace octet
