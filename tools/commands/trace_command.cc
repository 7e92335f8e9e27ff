#include <algorithm>
#include <cstdio>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "kernels/fused/fused_trace.h"
#include "octet/enum_names.h"
#include "octet/node.h"
#include "octet/topology.h"
#include "octet/trace.h"
#include "runtime/base/status_macros.h"
#include "tools/commands/commands.h"
#include "tools/commands/gemm_flags.h"
#include "tools/commands/operation_flags.h"
#include "tools/commands/run_flags.h"
#include "tools/measure/fused/fused_run.h"
#include "tools/measure/step/overlap_run.h"
#include "tools/measure/trace/fused_trace.h"
#include "tools/measure/trace/gemm_trace.h"
#include "tools/measure/trace/trace_summary.h"
#include "tools/measure/trace/traced_run.h"
#include "tools/measure/tune/gemm_tune.h"
#include "tools/report/fused_report.h"
#include "tools/report/report.h"
#include "tools/support/atomic_file.h"
#include "tools/support/exit_code.h"
#include "tools/support/progress.h"
#include "tools/support/statistics.h"
#include "tools/support/text_table.h"
#include "tools/support/watched_node.h"

namespace octet {
namespace {

constexpr absl::string_view kName = "trace";
constexpr double kMostOverlapUs = 1e6;

struct TraceFlags {
  RunSpec run;
  double overlap_us = 0;
  GemmFlags gemm;
  FusedFlags fused = {.fusion = {"tiles"}};
};

void AddTraceFlags(CommandLine& line, TraceFlags& flags) {
  AddOperationFlag(line, flags.fused.operation);
  line.Add("output", flags.run.trace,
           "file to write; empty: octet_trace.json, or octet_trace_gemm.json and the like with an\n"
           "operation or overlap_us");
  line.Add("overlap_us", flags.overlap_us,
           "instead of the summary, measures how much of dispatch and combine a kernel hides that\n"
           "computes during the sends for this many microseconds; 0: no kernel");
  AddFlags(line, flags.run, {"max_tokens", "tokens", "check", "timeout_ms"});
  AddGemmDtypeFlag(line, flags.gemm, flags.run);
  AddFlags(line, flags.run, kStepFlags);
  AddFlags(line, flags.run, {"strategy"});
  AddFlags(line, flags.run, kVariantFlags);
  AddFlags(line, flags.run, kLaunchFlags);
  AddFlags(line, flags.run, kFormatFlags);
  AddGemmRowsFlags(line, flags.gemm, flags.run);
  AddProductFlags(line, flags.gemm);
  AddTilesFlag(line, flags.gemm);
  AddFusedFlags(line, flags.fused);
  AddFusionFlag(line, flags.fused);
}

int Fail(int exit_code, const absl::Status& status) {
  PrintError(kName, status);
  return exit_code;
}

double MedianUs(const std::vector<KernelTimes>& steps, double KernelTimes::* call) {
  std::vector<double> us;
  for (const KernelTimes& step : steps) us.push_back(step.*call);
  return Summarize(std::move(us)).median;
}

// `traced_us`, `plain_us`: medians of `iters` each.
std::string CostText(absl::string_view what, double traced_us, double plain_us, size_t iters) {
  constexpr double kPercent = 100;
  return Comment(
      absl::StrFormat("tracing costs %+.1f%%: a %s takes %.1f us with it and %.1f us "
                      "without (medians of %d each, in turns)",
                      (traced_us / plain_us - 1) * kPercent, what, traced_us, plain_us, iters));
}

std::string DroppedText(uint64_t events) {
  if (events == 0) return "";
  return Comment(absl::StrCat(events, " events did not fit and are missing."));
}

// Returns everything but the tables of the summary.
std::string Foot(const TraceResult& result) {
  double round_trip_ns = 0;
  for (const TraceCollector::ClockOffset& offset : result.clock_offsets) {
    round_trip_ns = std::max(round_trip_ns, offset.round_trip_ns);
  }
  std::string foot = absl::StrCat(
      "#\n", CostText("step", MedianUs(result.traced), MedianUs(result.plain), result.plain.size()),
      Comment(absl::StrFormat("kernels, from the first event of the slowest rank to its last: "
                              "dispatch %.1f us, combine %.1f us (medians)",
                              MedianUs(result.kernels, &KernelTimes::dispatch_us),
                              MedianUs(result.kernels, &KernelTimes::combine_us))));
  const std::string budget = BudgetText(result.budget);
  if (!budget.empty()) {
    absl::StrAppend(&foot,
                    Comment("budget of the slowest rank, us (medians): each part until the last "
                            "event of its kind"),
                    budget);
  }
  absl::StrAppend(
      &foot,
      Comment("One wave of each block records: the first; with high_throughput, in odd blocks, the "
              "first that only receives. A wait for several is put down to who was missing last."),
      Comment(absl::StrFormat(
          "GPUs have clocks of their own: in %s they are brought to one to within %.2f us.",
          result.options.trace, round_trip_ns / 2e3)),
      DroppedText(result.events_dropped));
  return foot;
}

// The printed text, and the first wrong result of the steps; empty if all are right.
struct Outcome {
  std::string text = {};
  std::string difference = {};
};

absl::StatusOr<Outcome> Trace(Node& node, const RunSpec& options, const Progress& progress) {
  OCTET_ASSIGN_OR_RETURN(const TraceResult result, ExecuteTrace(node, options, progress));
  Outcome outcome = {
      .text = absl::StrCat(RunHead(kName, node.topology(), result.options, result.config), "#\n",
                           TraceSummaryText(result.summary), Foot(result)),
      .difference = FirstDifferenceOf(result.plain)};
  if (outcome.difference.empty()) outcome.difference = FirstDifferenceOf(result.traced);
  return outcome;
}

absl::StatusOr<Outcome> Overlap(Node& node, const RunSpec& options, double compute_us,
                                const Progress& progress) {
  OCTET_ASSIGN_OR_RETURN(const OverlapResult result,
                         ExecuteOverlap(node, options, compute_us, progress));
  Outcome outcome = {
      .text = absl::StrCat(RunHead(kName, node.topology(), result.options, result.config), "#\n",
                           OverlapText(result))};
  for (const std::vector<StepResult>* steps :
       {&result.alone, &result.in_turn, &result.overlapped, &result.traced}) {
    if (outcome.difference.empty()) outcome.difference = FirstDifferenceOf(*steps);
  }
  return outcome;
}

// Each kind of trace has a default of its own, so that one does not overwrite another.
std::string DefaultOutput(const TraceFlags& flags) {
  const Operation operation = flags.fused.operation;
  if (operation != Operation::kStep) {
    return absl::StrCat("octet_trace_", EnumName(operation), ".json");
  }
  return flags.overlap_us > 0 ? "octet_trace_overlap.json" : "octet_trace.json";
}

std::string WrittenText(absl::string_view path) {
  return Comment(absl::StrCat(path, " is the trace; open it at ui.perfetto.dev"));
}

std::string GemmText(const Topology& topology, const GemmOptions& options,
                     const GemmTraceResult& result) {
  return absl::StrCat(
      absl::StrFormat("# octet trace: a grouped product on %s (%s)\n", GpuName(topology),
                      topology.platform),
      EmulationNote(topology),
      Comment(absl::StrCat(ProductText(options), "; tiles ", std::string(EnumName(result.tiles)),
                           ", ", result.summary.blocks, " blocks")),
      "#\n", GemmTraceText(result.summary, options.Flops()),
      CostText("product", result.traced_us.median, result.plain_us.median,
               static_cast<size_t>(options.iters)),
      Comment("One thread of each block records what multiplies, and one what loads, if it is "
              "another: the first."),
      DroppedText(result.events_dropped));
}

int RunGemm(const CommandLine& line, const TraceFlags& flags) {
  const absl::StatusOr<GemmOptions> options = ResolveGemm(line, flags.gemm, flags.run);
  if (!options.ok()) return Fail(kExitUsage, options.status());
  if (options->tiles.size() != 1) {
    return Fail(kExitUsage, absl::InvalidArgumentError("--tiles takes one tile shape"));
  }
  if (options->Flops() == 0) {
    return Fail(kExitUsage, absl::InvalidArgumentError("no expert has rows: nothing to trace"));
  }
  const std::string& path = flags.run.trace;
  if (const absl::Status status = CheckCanWrite(path); !status.ok()) {
    return Fail(kExitUsage, status);
  }
  const absl::StatusOr<std::shared_ptr<Node>> node = CreateWatchedNode({.num_ranks = 1});
  if (!node.ok()) return Fail(ExitCodeOf(node.status()), node.status());
  if (const absl::Status status = ProbeWrite(path); !status.ok()) return Fail(kExitUsage, status);
  const absl::StatusOr<GemmTraceResult> result = TraceGemm(**node, *options, path);
  if (!result.ok()) return Fail(ExitCodeOf(result.status()), result.status());
  absl::PrintF("%s%s", GemmText((*node)->topology(), *options, *result), WrittenText(path));
  std::fflush(stdout);
  if (result->check.wrong == 0) return kExitOk;
  return Fail(kExitWrongResults,
              absl::DataLossError(absl::StrCat("wrong results: ", result->check.first_wrong)));
}

std::string FusedText(const Topology& topology, const FusedTrace& trace,
                      absl::Span<const TraceSlice> slices) {
  return absl::StrCat(
      FusedHead(kName, topology, trace.options),
      Comment(absl::StrCat("strategy ", EnumName(trace.config.strategy), ", fusion ", trace.what)),
      "#\n", FusedTraceText(trace, slices),
      CostText("call", Summarize(trace.traced_us).median, Summarize(trace.plain_us).median,
               trace.plain_us.size()),
      Comment("One wave of each block records what moves rows, one thread what multiplies and one "
              "what loads tiles."),
      DroppedText(trace.events_dropped));
}

// Traces calls with a product on `node`, and writes the last one to options.run.trace.
absl::StatusOr<Outcome> TraceFusedCalls(Node& node, const FusedRunOptions& options,
                                        const Progress& progress) {
  OCTET_ASSIGN_OR_RETURN(const FusedTrace trace, TraceFused(node, options, progress));
  const std::vector<TraceSlice> slices = SlicesOfCall(trace);
  std::vector<std::string> gpu_names;
  for (const GpuInfo& gpu : node.topology().gpus) gpu_names.push_back(gpu.name);
  OCTET_RETURN_IF_ERROR(WriteFileAtomically(
      options.run.trace,
      {TraceJson(slices, trace.tags, {.gpus = gpu_names, .tracks = fused::FusedTrackNames()})}));
  return Outcome{.text = FusedText(node.topology(), trace, slices),
                 .difference = trace.first_difference};
}

// The calls that a command line asks for: steps, or with products. Chooses the strategy that the
// way of making the call needs, unless one is given.
absl::StatusOr<std::optional<FusedRunOptions>> FusedOf(const CommandLine& line, TraceFlags& flags) {
  if (flags.fused.operation == Operation::kStep) return std::nullopt;
  OCTET_ASSIGN_OR_RETURN(FusedRunOptions fused,
                         ResolveFused(line, flags.fused, flags.gemm.epilogue));
  if (fused.ways.size() != 1) {
    return absl::InvalidArgumentError("--fusion takes one way of making the call: tiles, ...");
  }
  const Fusion fusion = fused.ways.front().choice.fusion;
  if (!line.Given("strategy") && (fusion == Fusion::kTiles || fusion == Fusion::kSerial)) {
    flags.run.workload.config.strategy = Strategy::kHighThroughput;
  }
  return fused;
}

absl::Status ResolveStep(const CommandLine& line, int num_gpus, TraceFlags& flags) {
  OCTET_RETURN_IF_ERROR(RefuseFp8(flags.gemm));
  OCTET_RETURN_IF_ERROR(ResolveShape(line, num_gpus, flags.run));
  if (!(flags.overlap_us >= 0 && flags.overlap_us <= kMostOverlapUs)) {
    return absl::InvalidArgumentError(absl::StrCat("--overlap_us is ", flags.overlap_us,
                                                   "; it must be from 0 to ", kMostOverlapUs));
  }
  return CheckCanWrite(flags.run.trace);
}

int RunStep(const CommandLine& line, const absl::StatusOr<Topology>& topology, TraceFlags& flags) {
  if (const absl::Status status = ResolveStep(line, NumGpus(topology), flags); !status.ok()) {
    return Fail(kExitUsage, status);
  }
  absl::StatusOr<std::optional<FusedRunOptions>> fused = FusedOf(line, flags);
  if (!fused.ok()) return Fail(kExitUsage, fused.status());
  const RunSpec& options = flags.run;
  const double compute_us = flags.overlap_us;
  if (!topology.ok()) return Fail(ExitCodeOf(topology.status()), topology.status());
  const int num_ranks = options.workload.num_ranks;
  if (const absl::Status status = topology->CheckRanks(num_ranks); !status.ok()) {
    return Fail(ExitCodeOf(status), status);
  }
  if (const absl::Status status = ProbeWrite(options.trace); !status.ok()) {
    return Fail(kExitUsage, status);
  }
  const absl::StatusOr<std::shared_ptr<Node>> node =
      CreateWatchedNode({.num_ranks = num_ranks, .timeout = options.timeout});
  if (!node.ok()) return Fail(ExitCodeOf(node.status()), node.status());
  std::optional<Progress> progress(std::in_place);
  const auto trace = [&]() -> absl::StatusOr<Outcome> {
    if (fused->has_value()) {
      (*fused)->run = options;
      (*fused)->check_steps = options.check ? 1 : 0;
      return TraceFusedCalls(**node, **fused, *progress);
    }
    if (compute_us > 0) return Overlap(**node, options, compute_us, *progress);
    return Trace(**node, options, *progress);
  };
  const absl::StatusOr<Outcome> outcome = trace();
  progress.reset();
  if (!outcome.ok()) return Fail(ExitCodeOf(outcome.status()), outcome.status());
  absl::PrintF("%s%s", outcome->text, WrittenText(options.trace));
  std::fflush(stdout);
  if (outcome->difference.empty()) return kExitOk;
  return Fail(kExitWrongResults,
              absl::DataLossError(absl::StrCat("wrong results: ", outcome->difference)));
}

int Run(CommandLine& line, TraceFlags& flags) {
  const Operation operation = flags.fused.operation;
  if (flags.run.trace.empty()) flags.run.trace = DefaultOutput(flags);
  const absl::StatusOr<Topology> topology = DiscoverGpus(line);
  if (const absl::Status status = CheckOperation(line, operation); !status.ok()) {
    return Fail(kExitUsage, status);
  }
  return operation == Operation::kGemm ? RunGemm(line, flags) : RunStep(line, topology, flags);
}

}  // namespace

Command TraceCommand() {
  const Command command = {
      .name = kName,
      .summary = "traces the kernels: a file for Perfetto, and which rank waits for which",
      .details =
          "Runs steps whose kernels record what their blocks do, in turns with the same steps\n"
          "without recording. Writes the last one for ui.perfetto.dev and prints where the time\n"
          "went, how much of it was spent waiting, which rank waited for which, and what the\n"
          "recording cost. With --overlap_us: compares steps in two phases, with a kernel of the\n"
          "caller during each send, with steps that run the kernel in turn, and writes one\n"
          "overlapped step.\n"
          "--operation=gemm traces a grouped product on the first GPU, which the flags of octet\n"
          "gemm describe: the file has a slice for each tile of each block, and shares of the\n"
          "blocks' time are printed. The last product is checked against float64.\n"
          "--operation=dispatch_gemm and gemm_combine trace calls with the experts' product, in\n"
          "the way that --fusion names: tiles unless it is given. Tiles and serial take\n"
          "high_throughput unless --strategy is given. The file has the tiles of each block "
          "beside\n"
          "the rows that it moves; the last traced call is compared with separate calls.\n"
          "Exit codes: 0 ok, 1 wrong results, 2 usage, 3 device error, 4 deadline.",
  };
  return WithFlags<TraceFlags>(command, AddTraceFlags, Run);
}

}  // namespace octet
