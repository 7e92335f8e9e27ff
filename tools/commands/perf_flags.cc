#include "tools/commands/perf_flags.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <optional>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/time.h"
#include "kernels/ep/strategy_registry.h"
#include "octet/ep_config.h"
#include "runtime/base/status_macros.h"
#include "tools/commands/run_flags.h"
#include "tools/support/atomic_file.h"

namespace octet {
namespace {

constexpr auto kSizeFlags = std::to_array<absl::string_view>({"begin", "end", "step", "factor"});

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

FlagValue Size(int& value) {
  return Bound(value, ParseSize, [](int of) { return of; });
}

absl::StatusOr<std::optional<int>> ParseSizeOrNone(absl::string_view flag, absl::string_view text) {
  if (text.empty()) return std::nullopt;
  return ParseSize(flag, text);
}

absl::StatusOr<absl::Duration> ReadSeconds(absl::string_view flag, absl::string_view text) {
  OCTET_ASSIGN_OR_RETURN(const double seconds, Number(flag, text));
  constexpr double kMost = 1e6;
  if (seconds >= 0 && seconds <= kMost) return absl::Seconds(seconds);
  return absl::InvalidArgumentError(
      absl::StrCat("--", flag, "=", seconds, " is not from 0 to ", kMost));
}

// Returns the tokens of each row, from the flags or from a recorded routing.
absl::StatusOr<std::vector<int>> SizesOf(const CommandLine& line, const PerfFlags& flags,
                                         const WorkloadSpec& workload) {
  if (workload.recorded != nullptr) {
    OCTET_RETURN_IF_ERROR(
        line.Refuse(kSizeFlags, "does not go with --routing=file, which contains the tokens"));
    return std::vector<int>{workload.recorded->num_tokens(0)};
  }
  if (flags.step > 0 && line.Given("factor")) {
    return absl::InvalidArgumentError("--step and --factor exclude each other");
  }
  return Sizes(flags.begin, flags.end.value_or(flags.begin), flags.step, flags.factor);
}

// Refuses what several nodes do not have.
absl::Status CheckForSeveralNodes(const PerfSpec& perf, const RunSpec& common, bool fused) {
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

void AddSizeFlags(CommandLine& line, PerfFlags& flags) {
  line.Add("begin", Size(flags.begin), "tokens of every rank in the first row; 4K is 4096");
  line.Add("end",
           Bound(flags.end, ParseSizeOrNone,
                 [](std::optional<int> of) { return of ? absl::StrCat(*of) : ""; }),
           "the most tokens of every rank; empty: --begin");
  line.Add("step", Size(flags.step), "tokens added from row to row, instead of --factor");
  line.Add("factor", flags.factor, "factor between the tokens of successive rows");
}

void AddTimeoutFlag(CommandLine& line, PerfFlags& flags) {
  line.Add("timeout", Bound(flags.run.timeout, ReadSeconds, absl::ToDoubleSeconds),
           "the deadline of a wait on a GPU, in seconds; 0: OCTET_TIMEOUT_MS, else 10");
}

void AddStrategiesFlag(CommandLine& line, PerfFlags& flags) {
  line.Add("strategy", flags.strategies,
           absl::StrCat(EnumNames<Strategy>(),
                        "; auto: the fastest for such calls.\n"
                        "perf also takes a list, other contenders (nccl, memcpy_peer) and all"));
}

void AddPerfFlags(CommandLine& line, PerfFlags& flags) {
  RunSpec& run = flags.run;
  AddOperationFlag(line, flags.fused.operation, /*without_gemm=*/true);
  AddSizeFlags(line, flags);
  line.Add("check_steps", flags.check_steps,
           "the number of last steps of each kind that are verified to the bit; 0: none");
  line.Add("graph", flags.graph,
           "a second row for each strategy, marked +: the calls are captured into a graph once\n"
           "and then replayed; other contenders have none, since their calls wait on the host");
  AddTimeoutFlag(line, flags);
  AddFlags(line, run, {"json"});
  AddFlags(line, run, kStepFlags);
  AddFlags(line, run, {"placement"});
  AddStrategiesFlag(line, flags);
  AddFlags(line, run, kVariantFlags);
  AddFlags(line, run, kNodesFlags);
  AddFlags(line, run, kLaunchFlags);
  AddFlags(line, run, kFormatFlags);
  AddFusedFlags(line, flags.fused);
  AddFusionFlag(line, flags.fused);
  line.Add("ablation", flags.fused.ablation,
           "--operation=dispatch_gemm: tiles as they are, without copies of rows (1-stage), sent\n"
           "by-token, with tiles that wait for all rows of their expert (by-expert), and with all\n"
           "three (plain), instead of --fusion");
  line.Add("epilogue", flags.epilogue,
           "none or swiglu, which is the default of --operation=dispatch_gemm");
}

absl::StatusOr<PerfSpec> ResolvePerf(const CommandLine& line, const PerfFlags& flags,
                                     int num_gpus) {
  PerfSpec perf = {.shapes = {},
                   .strategies = flags.strategies,
                   .check_steps = flags.check_steps,
                   .graph = flags.graph,
                   .json = flags.run.json,
                   .fused = {}};
  RunSpec common = flags.run;
  common.json.clear();
  OCTET_RETURN_IF_ERROR(ResolveRanks(line, num_gpus, common));
  OCTET_RETURN_IF_ERROR(ResolveChoices(line, common.workload));
  OCTET_RETURN_IF_ERROR(ResolvePlacement(common));
  if (perf.check_steps < 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("--check_steps=", perf.check_steps, " is not from 0 up"));
  }
  OCTET_ASSIGN_OR_RETURN(const std::vector<int> sizes, SizesOf(line, flags, common.workload));
  if (perf.graph && (common.cached || common.workload.config.high_throughput.host_totals)) {
    return absl::InvalidArgumentError(
        "--graph goes with neither --cached nor --host_totals: a graph has one layout, and the "
        "host would wait for calls that are only captured");
  }
  std::optional<FusedRunOptions> fused;
  if (flags.fused.operation != Operation::kStep) {
    OCTET_ASSIGN_OR_RETURN(fused, ResolveFused(line, flags.fused, flags.epilogue));
  }
  if (common.nodes.num_nodes > 1) {
    OCTET_RETURN_IF_ERROR(CheckForSeveralNodes(perf, common, fused.has_value()));
  }
  // With one strategy, the options are checked against it.
  const auto only = ParseEnum<Strategy>("--strategy", absl::StrJoin(perf.strategies, ","));
  if (only.ok()) common.workload.config.strategy = *only;
  if (fused.has_value() && !only.ok()) return only.status();
  for (const int tokens : sizes) {
    RunSpec& shape = perf.shapes.emplace_back(common);
    WorkloadSpec& spec = shape.workload;
    spec.config.max_tokens_per_rank = std::max(1, tokens);
    if (spec.recorded == nullptr) {
      spec.tokens.assign(static_cast<size_t>(spec.num_ranks), tokens);
    }
    OCTET_RETURN_IF_ERROR(CompleteSpec(shape));
    if (!fused.has_value()) continue;
    fused->run = shape;
    fused->check_steps = perf.check_steps;
    perf.fused.push_back(*fused);
  }
  if (!perf.json.empty() && line.launch().first()) {
    OCTET_RETURN_IF_ERROR(CheckCanWrite(perf.json));
  }
  return perf;
}

}  // namespace octet
