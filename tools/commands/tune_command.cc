#include <cstdio>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/time.h"
#include "kernels/ep/strategy_registry.h"
#include "kernels/tuning/tuning.h"
#include "octet/enum_names.h"
#include "octet/node.h"
#include "octet/topology.h"
#include "runtime/base/status_macros.h"
#include "tools/commands/commands.h"
#include "tools/commands/gemm_flags.h"
#include "tools/commands/operation_flags.h"
#include "tools/commands/perf_flags.h"
#include "tools/commands/run_flags.h"
#include "tools/measure/fused/fused_run.h"
#include "tools/measure/tune/fused_tune.h"
#include "tools/measure/tune/gemm_tune.h"
#include "tools/measure/tune/tune.h"
#include "tools/report/fused_report.h"
#include "tools/report/report.h"
#include "tools/support/atomic_file.h"
#include "tools/support/exit_code.h"
#include "tools/support/progress.h"
#include "tools/support/text_table.h"
#include "tools/support/watched_node.h"

namespace octet {
namespace {

constexpr absl::string_view kName = "tune";
constexpr absl::string_view kDefaultOutput = "octet_tuning.json";

struct TuneFlags {
  PerfFlags perf;
  GemmFlags gemm;
  std::string output;
  double budget_seconds = 30;
};

// Of the flags that describe a call, only those that are fields of an entry: an entry holds for all
// such calls.
void AddTuneFlags(CommandLine& line, TuneFlags& flags) {
  RunSpec& run = flags.perf.run;
  AddOperationFlag(line, flags.perf.fused.operation);
  line.Add("output", flags.output, absl::StrCat("file to write; empty: ", kDefaultOutput));
  line.Add("budget", flags.budget_seconds,
           "the most seconds of the search for one number of tokens and one strategy");
  AddSizeFlags(line, flags.perf);
  AddTimeoutFlag(line, flags.perf);
  AddStrategiesFlag(line, flags.perf);
  AddFlags(line, run, {"format", "received"});
  AddGemmDtypeFlag(line, flags.gemm, run);
  AddFlags(line, run, kStepFlags);
  AddGemmRowsFlags(line, flags.gemm, run);
  AddProductFlags(line, flags.gemm);
  AddFlags(line, run, {"scales"});
  AddFusedFlags(line, flags.perf.fused);
}
constexpr absl::string_view kOfGemmAlone[] = {"scales", "tokens", "max_tokens"};

int Fail(int exit_code, const absl::Status& status) {
  PrintError(kName, status);
  return exit_code;
}

// Returns the table in the file, to which results are added; an empty one if there is no file.
absl::StatusOr<TuningTable> ReadOutput(const std::string& path) {
  OCTET_RETURN_IF_ERROR(CheckCanWrite(path));
  absl::StatusOr<TuningTable> table = TuningTable::Read(path);
  if (absl::IsNotFound(table.status())) return TuningTable();
  return table;
}

void Say(const Progress& progress, const std::string& text) {
  progress.Clear();
  absl::PrintF("%s", text);
  std::fflush(stdout);
}

// Tunes one shape with one strategy and stores the result in `table`.
absl::StatusOr<TuneResult> TuneStrategy(Node& node, const RunSpec& options, absl::Duration budget,
                                        TuningTable& table) {
  const int tokens = options.workload.config.max_tokens_per_rank;
  const Strategy strategy = options.workload.config.strategy;
  absl::PrintF("# %d tokens on every rank, %s: candidates\n%s", tokens, EnumName(strategy),
               TuneHead(strategy));
  const Progress progress;
  double built_in_us = 0;
  const auto report = [&](const TuneTrial& trial) {
    if (built_in_us == 0) built_in_us = trial.us;
    Say(progress, TuneLine(strategy, trial, built_in_us));
  };
  OCTET_ASSIGN_OR_RETURN(TuneResult result, TuneShape(node, options, budget, report, progress));
  Say(progress, absl::StrCat(TuneVerdict(result, tokens), "#\n"));
  if (result.comparison.faster) {
    table.Set(EntryOf(result, options));
  } else {
    table.Remove(result.key);
  }
  return result;
}

// Tunes one shape with each strategy that supports it, and chooses the fastest. Strategies whose
// memory does not fit are left out.
absl::Status TuneAuto(Node& node, const RunSpec& options, absl::Duration budget,
                      TuningTable& table) {
  std::vector<TuneResult> results;
  RunSpec named = options;
  for (const Strategy strategy : AllStrategies()) {
    named.workload.config.strategy = strategy;
    absl::Status status = Validate(named.workload.config, node.num_ranks());
    if (status.ok()) {
      absl::StatusOr<TuneResult> result = TuneStrategy(node, named, budget, table);
      status = result.status();
      if (result.ok()) results.push_back(*std::move(result));
    }
    if (status.ok()) continue;
    if (!absl::IsInvalidArgument(status) && !absl::IsResourceExhausted(status)) return status;
    absl::PrintF("%s#\n",
                 Comment(absl::StrCat(EnumName(strategy), " is left out: ", status.message())));
  }
  if (results.empty()) {
    return absl::ResourceExhaustedError("none of the strategies can be measured here");
  }
  const Progress progress;
  OCTET_ASSIGN_OR_RETURN(const StrategyResult best,
                         CompareStrategies(node, options, results, progress));
  Say(progress,
      absl::StrCat(StrategyVerdict(best, options.workload.config.max_tokens_per_rank), "#\n"));
  if (best.comparison.faster) {
    table.Set(EntryOf(best, options));
  } else {
    table.Remove(best.key);
  }
  return absl::OkStatus();
}

// Tunes all shapes; stores results in `table` and, after each shape, in the file.
absl::Status TuneAll(Node& node, const std::vector<RunSpec>& shapes, absl::Duration budget,
                     const std::string& path, TuningTable& table) {
  for (const RunSpec& options : shapes) {
    if (options.workload.config.strategy == Strategy::kAuto) {
      OCTET_RETURN_IF_ERROR(TuneAuto(node, options, budget, table));
    } else {
      OCTET_RETURN_IF_ERROR(TuneStrategy(node, options, budget, table).status());
    }
    OCTET_RETURN_IF_ERROR(WriteFileAtomically(path, {table.ToJson()}));
  }
  return absl::OkStatus();
}

// Tunes one call with a product and stores the result in `table`.
absl::Status TuneOneFused(Node& node, const FusedRunOptions& options, TuningTable& table) {
  absl::PrintF("%s%s", FusedHead(kName, node.topology(), options),
               FusedTuneHead(options.operation));
  const Progress progress;
  const auto report = [&](const FusedTrial& trial) {
    Say(progress, FusedTuneLine(options.operation, trial));
  };
  OCTET_ASSIGN_OR_RETURN(const FusedTuneResult result, TuneFused(node, options, report, progress));
  Say(progress, absl::StrCat(FusedVerdict(result), "#\n"));
  if (result.comparison.faster) {
    table.Set(EntryOf(result, options));
  } else {
    table.Remove(result.key);
  }
  return absl::OkStatus();
}

// Likewise for calls with products.
absl::Status TuneAllFused(Node& node, const std::vector<FusedRunOptions>& shapes,
                          const std::string& path, TuningTable& table) {
  for (const FusedRunOptions& options : shapes) {
    OCTET_RETURN_IF_ERROR(TuneOneFused(node, options, table));
    OCTET_RETURN_IF_ERROR(WriteFileAtomically(path, {table.ToJson()}));
  }
  return absl::OkStatus();
}

void SayWritten(const std::string& path, const TuningTable& table) {
  const size_t entries =
      table.entries().size() + table.gemm_entries().size() + table.fused_entries().size();
  absl::PrintF(
      "%s", Comment(absl::StrFormat(
                "%s has %d %s; OCTET_TUNING=%s makes octet and the library use %s", path, entries,
                entries == 1 ? "entry" : "entries", path, entries == 1 ? "it" : "them")));
}

int RunGemm(const CommandLine& line, const absl::StatusOr<Topology>& topology,
            const TuneFlags& flags) {
  const absl::StatusOr<GemmOptions> options = ResolveGemm(line, flags.gemm, flags.perf.run);
  if (!options.ok()) return Fail(kExitUsage, options.status());
  const std::string& path = flags.output;
  absl::StatusOr<TuningTable> table = ReadOutput(path);
  if (!table.ok()) return Fail(kExitUsage, table.status());
  if (!topology.ok()) return Fail(ExitCodeOf(topology.status()), topology.status());
  if (const absl::Status status = ProbeWrite(path); !status.ok()) return Fail(kExitUsage, status);
  const absl::StatusOr<GemmTuneResult> result = TuneGemm(*options);
  if (!result.ok()) return Fail(ExitCodeOf(result.status()), result.status());
  absl::PrintF("# octet tune: a grouped product on %s (%s)\n%s%s%s%s#\n", GpuName(*topology),
               topology->platform, EmulationNote(*topology), Comment(ProductText(*options)),
               GemmTuneTable(*result), GemmVerdict(*result));
  if (result->comparison.faster) {
    table->Set(EntryOf(*result, *options));
  } else {
    table->Remove(result->key);
  }
  if (const absl::Status status = WriteFileAtomically(path, {table->ToJson()}); !status.ok()) {
    return Fail(ExitCodeOf(status), status);
  }
  SayWritten(path, *table);
  return kExitOk;
}

// Returns the calls with products to tune: those of `perf`, by a strategy that fuses products.
absl::StatusOr<std::vector<FusedRunOptions>> FusedShapes(const CommandLine& line,
                                                         const PerfSpec& perf) {
  std::vector<FusedRunOptions> shapes = perf.fused;
  for (FusedRunOptions& options : shapes) {
    EpConfig& config = options.run.workload.config;
    constexpr auto kFuses = &StrategyInfo::fuses_products;
    if (!line.Given("strategy")) config.strategy = FirstWith(kFuses);
    if (!Has(config.strategy, kFuses)) {
      return absl::InvalidArgumentError(absl::StrCat("--operation=", EnumName(options.operation),
                                                     " tunes calls of ", NamesWith(kFuses),
                                                     ", not ", EnumName(config.strategy)));
    }
    options.check_steps = 1;
  }
  return shapes;
}

absl::StatusOr<PerfSpec> Resolve(const CommandLine& line, TuneFlags& flags, int num_gpus) {
  OCTET_RETURN_IF_ERROR(RefuseFp8(flags.gemm));
  flags.perf.epilogue = flags.gemm.epilogue;
  return ResolvePerf(line, flags.perf, num_gpus);
}

int RunStep(const CommandLine& line, const absl::StatusOr<Topology>& topology, TuneFlags& flags) {
  const absl::StatusOr<PerfSpec> options = Resolve(line, flags, NumGpus(topology));
  if (!options.ok()) return Fail(kExitUsage, options.status());
  const absl::StatusOr<std::vector<FusedRunOptions>> fused = FusedShapes(line, *options);
  if (!fused.ok()) return Fail(kExitUsage, fused.status());
  if (!fused->empty()) {  // whose few ways are all measured
    const absl::Status no_budget = line.Refuse({"budget"}, "goes with --operation=step only");
    if (!no_budget.ok()) return Fail(kExitUsage, no_budget);
  }
  std::vector<RunSpec> shapes = options->shapes;
  const absl::StatusOr<Strategy> strategy =
      options->strategies.size() == 1 ? ParseEnum<Strategy>("--strategy", options->strategies[0])
                                      : absl::InvalidArgumentError("--strategy takes one strategy");
  if (!strategy.ok()) return Fail(kExitUsage, strategy.status());
  for (RunSpec& shape : shapes) shape.workload.config.strategy = *strategy;
  const absl::Duration budget = absl::Seconds(flags.budget_seconds);
  if (budget <= absl::ZeroDuration()) {
    return Fail(kExitUsage, absl::InvalidArgumentError("--budget must be more than 0"));
  }
  const std::string& path = flags.output;
  absl::StatusOr<TuningTable> table = ReadOutput(path);
  if (!table.ok()) return Fail(kExitUsage, table.status());
  if (!topology.ok()) return Fail(ExitCodeOf(topology.status()), topology.status());
  const int num_ranks = shapes.front().workload.num_ranks;
  if (const absl::Status status = topology->CheckRanks(num_ranks); !status.ok()) {
    return Fail(ExitCodeOf(status), status);
  }
  if (const absl::Status status = ProbeWrite(path); !status.ok()) return Fail(kExitUsage, status);
  const absl::StatusOr<std::shared_ptr<Node>> node =
      CreateWatchedNode({.num_ranks = num_ranks, .timeout = shapes.front().timeout});
  if (!node.ok()) return Fail(ExitCodeOf(node.status()), node.status());
  if (fused->empty()) {  // others have heads of their own
    absl::PrintF("# octet tune: %d ranks on %s (%s)\n%s#\n", num_ranks, GpuName(*topology),
                 topology->platform, EmulationNote(*topology));
  }
  const absl::Status status = fused->empty() ? TuneAll(**node, shapes, budget, path, *table)
                                             : TuneAllFused(**node, *fused, path, *table);
  if (!status.ok()) return Fail(ExitCodeOf(status), status);
  SayWritten(path, *table);
  return kExitOk;
}

int Run(CommandLine& line, TuneFlags& flags) {
  const Operation operation = flags.perf.fused.operation;
  if (flags.output.empty()) flags.output = std::string(kDefaultOutput);
  const absl::StatusOr<Topology> topology = DiscoverGpus(line);
  if (const absl::Status status = CheckOperation(line, operation, kOfGemmAlone); !status.ok()) {
    return Fail(kExitUsage, status);
  }
  return operation == Operation::kGemm ? RunGemm(line, topology, flags)
                                       : RunStep(line, topology, flags);
}

}  // namespace

Command TuneCommand() {
  const Command command = {
      .name = kName,
      .summary =
          "looks for faster launch shapes, strategies and tile shapes; writes them to a file",
      .details =
          "For each number of tokens, varies the fields of the strategy's tuning (blocks, waves,\n"
          "which of them send, parts and copies of rows) one at a time and keeps what is faster.\n"
          "The winner is measured again in turns with the built-in choice, and written only if it\n"
          "is faster beyond noise. --strategy=auto tunes each strategy, and finds in the same way\n"
          "which of them auto should choose. With OCTET_TUNING=FILE octet and the library use the\n"
          "result for similar calls on such GPUs: M * K and the bytes of a row between the same\n"
          "powers of two, and the same --format and --received. Entries for other calls stay in\n"
          "the file.\n"
          "--operation=gemm measures every tile shape of a grouped product on the first GPU, as\n"
          "octet gemm does, and compares and keeps the fastest likewise. It is used for products\n"
          "of the same N, K, dtype and activation, with as many rows per expert up to the next\n"
          "power of two.\n"
          "--operation=dispatch_gemm and gemm_combine look for the fastest way to make a call of\n"
          "high_throughput with the experts' product: separate kernels, or one with other tiles,\n"
          "shares of the blocks and parts of rows. It is used by --fusion=auto.\n"
          "Exit codes: 0 ok, 1 wrong results, 2 usage, 3 device error, 4 deadline.",
      .letters = kNcclTestsLetters,
  };
  return WithFlags<TuneFlags>(command, AddTuneFlags, Run);
}

}  // namespace octet
