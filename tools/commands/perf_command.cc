#include <cstdio>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "octet/node.h"
#include "octet/topology.h"
#include "runtime/base/status_macros.h"
#include "runtime/failure/failure.h"
#include "tools/commands/commands.h"
#include "tools/commands/perf_flags.h"
#include "tools/commands/run_flags.h"
#include "tools/contenders/contender.h"
#include "tools/measure/fused/fused_run.h"
#include "tools/measure/probe/ceilings.h"
#include "tools/measure/step/perf.h"
#include "tools/report/fused_report.h"
#include "tools/report/nodes_report.h"
#include "tools/report/perf_report.h"
#include "tools/support/atomic_file.h"
#include "tools/support/domain.h"
#include "tools/support/exit_code.h"
#include "tools/support/launch.h"
#include "tools/support/progress.h"
#include "tools/support/text_table.h"
#include "tools/workload/workload.h"

namespace octet {
namespace {

constexpr absl::string_view kName = "perf";

int Fail(int exit_code, const absl::Status& status) {
  PrintError(kName, status);
  return exit_code;
}

using Contenders = std::vector<std::unique_ptr<Contender>>;

void SayLeftOut(const Domain& domain, absl::string_view name, const absl::Status& why) {
  if (!IsFirst(domain)) return;
  absl::PrintF("%s", Comment(absl::StrCat(name, " is left out: ", why.message())));
}

// Returns kUnavailable with what keeps the contender from running here.
absl::Status CheckAvailable(const Domain& domain, const Contender& contender) {
  if (domain.several_nodes() && !contender.is_strategy()) {
    return absl::UnavailableError("it is for one node");
  }
  return contender.Available();
}

// Returns the contenders of these names; nullptr stands for ExpertParallel's choice. Contenders
// that this build or this machine lacks are reported and left out.
absl::StatusOr<std::vector<Contender*>> ChosenContenders(const Domain& domain,
                                                         const Contenders& contenders,
                                                         const std::vector<std::string>& names) {
  std::vector<Contender*> found;
  for (const std::string& name : names) {
    if (name == "auto") {
      found.push_back(nullptr);
    } else if (name == "all") {
      for (const std::unique_ptr<Contender>& each : contenders) found.push_back(each.get());
    } else {
      const absl::StatusOr<Contender*> contender = FindContender(contenders, name);
      if (absl::IsUnavailable(contender.status())) {
        SayLeftOut(domain, name, contender.status());
        continue;
      }
      if (!contender.ok()) {
        return absl::InvalidArgumentError(
            absl::StrCat(contender.status().message(), ", auto, all"));
      }
      found.push_back(*contender);
    }
  }
  std::vector<Contender*> chosen;
  for (Contender* const contender : found) {
    const absl::Status available =
        contender == nullptr ? absl::OkStatus() : CheckAvailable(domain, *contender);
    if (available.ok()) {
      chosen.push_back(contender);
    } else {
      SayLeftOut(domain, contender->name(), available);
    }
  }
  return chosen;
}

// Writes each row to the table and, with all rows before it, to the JSON file, so that an
// interrupted run keeps its measurements. Only the first of several nodes writes.
class PerfOutput {
 public:
  PerfOutput(Domain& domain, const PerfSpec& options, const Ceilings& ceilings, Json facts)
      : domain_(domain),
        topology_(domain.node().topology()),
        options_(options),
        ceilings_(ceilings),
        facts_(std::move(facts)) {}

  void Begin() const { Print(PerfHead(topology_, options_)); }
  void Note(absl::string_view text) const { Print(Comment(text)); }
  void Add(PerfRow row) {
    rows_.push_back(std::move(row));
    Print(PerfLines(rows_.back(), ceilings_));
    if (IsFirst(domain_) && WouldReplace(options_.json)) {
      Save().IgnoreError();  // End reports errors
    }
  }
  // Collective.
  absl::Status End() const {
    Print(PerfFoot(rows_, ceilings_));
    return domain_.Together(IsFirst(domain_) ? AsUsageError(Save()) : absl::OkStatus());
  }

  absl::Span<const PerfRow> rows() const { return rows_; }

 private:
  void Print(absl::string_view text) const {
    if (!IsFirst(domain_)) return;
    absl::PrintF("%s", text);
    std::fflush(stdout);
  }
  absl::Status Save() const {
    if (options_.json.empty()) return absl::OkStatus();
    return WriteFileAtomically(options_.json, {PerfJson(topology_, rows_, ceilings_, facts_)});
  }

  Domain& domain_;
  const Topology& topology_;
  const PerfSpec& options_;
  const Ceilings& ceilings_;
  const Json facts_;
  std::vector<PerfRow> rows_;
};

// Measures one row after the other. A row that does not fit into memory, or that its strategy does
// not support, is reported and left out; any other error ends the table. Returns the first error;
// an unsupported row is an error only if no row is supported.
absl::Status MeasureRows(Domain& domain, const PerfSpec& perf,
                         const std::vector<Contender*>& contenders, PerfOutput& output) {
  absl::Status first_error;
  absl::Status first_refusal;
  // Returns whether the row was measured. An error ends the table.
  const auto measure = [&](const RunSpec& options, Contender* contender) -> absl::StatusOr<bool> {
    std::optional<Progress> progress(std::in_place, IsFirst(domain));
    absl::StatusOr<PerfRow> row =
        MeasurePerf(domain, contender, options, perf.check_steps, *progress);
    progress.reset();  // removes its line from the terminal
    if (row.ok()) {
      output.Add(*std::move(row));
      return true;
    }
    absl::Status error = WithMessage(
        row.status(), absl::StrCat(contender == nullptr ? "auto" : contender->name(), ", ",
                                   options.workload.config.max_tokens_per_rank, " tokens",
                                   options.graph ? ", graph" : "", ": ", row.status().message()));
    const bool refused = absl::IsInvalidArgument(error) && contenders.size() > 1;
    absl::Status& first = refused ? first_refusal : first_error;
    if (first.ok()) first = error;
    if (!refused && !absl::IsResourceExhausted(error)) return error;
    output.Note(error.message());
    return false;
  };
  for (const RunSpec& options : perf.shapes) {
    for (Contender* const contender : contenders) {
      OCTET_ASSIGN_OR_RETURN(const bool measured, measure(options, contender));
      const bool has_graph = contender == nullptr || contender->is_strategy();
      if (!perf.graph || !measured || !has_graph) continue;
      RunSpec graph = options;
      graph.graph = true;
      OCTET_RETURN_IF_ERROR(measure(graph, contender).status());
    }
  }
  return output.rows().empty() && first_error.ok() ? first_refusal : first_error;
}

// Measures the calls of RoutedExperts, one shape after the other. A shape that does not fit into
// memory is reported and left out; any other error ends the table.
int RunFused(Node& node, const Topology& topology, const PerfSpec& perf) {
  const absl::StatusOr<Ceilings> ceilings = MeasureCeilings(node);
  if (!ceilings.ok()) return Fail(ExitCodeOf(ceilings.status()), ceilings.status());
  const auto print = [](absl::string_view text) {
    absl::PrintF("%s", text);
    std::fflush(stdout);
  };
  print(absl::StrCat(FusedHead(kName, topology, perf.fused.front()), FusedColumns()));
  std::vector<FusedReport> reports;
  absl::Status first_error;
  for (const FusedRunOptions& options : perf.fused) {
    std::optional<Progress> progress(std::in_place);
    absl::StatusOr<FusedReport> report = MeasureFused(node, options, *progress);
    progress.reset();  // removes its line from the terminal
    if (report.ok()) {
      reports.push_back(*std::move(report));
      print(FusedLines(reports.back()));
      continue;
    }
    const absl::Status error =
        WithMessage(report.status(), absl::StrCat(options.run.workload.config.max_tokens_per_rank,
                                                  " tokens: ", report.status().message()));
    if (first_error.ok()) first_error = error;
    if (!absl::IsResourceExhausted(error)) break;
    print(Comment(error.message()));
  }
  print(FusedFoot(reports, *ceilings));
  if (!perf.json.empty()) {
    const absl::Status written =
        WriteFileAtomically(perf.json, {FusedJson(topology, reports, *ceilings)});
    if (!written.ok()) return Fail(kExitUsage, written);
  }
  for (const FusedReport& report : reports) {
    if (report.first_difference.empty()) continue;
    return Fail(kExitWrongResults,
                absl::DataLossError(absl::StrCat(
                    report.tokens, " tokens: wrong results: ", report.first_difference)));
  }
  return first_error.ok() ? kExitOk : Fail(ExitCodeOf(first_error), first_error);
}

// Returns what stands in the way of measuring, before anything is launched.
absl::Status Prepare(const Launch& launch, const absl::StatusOr<PerfSpec>& perf,
                     const absl::StatusOr<Topology>& topology) {
  OCTET_RETURN_IF_ERROR(AsUsageError(perf.status()));
  OCTET_RETURN_IF_ERROR(topology.status());
  OCTET_RETURN_IF_ERROR(topology->CheckRanks(RanksPerNode(perf->shapes.front())));
  if (perf->json.empty() || !launch.first()) return absl::OkStatus();
  return AsUsageError(ProbeWrite(perf->json));
}

int MeasureSteps(Domain& domain, const PerfSpec& perf) {
  const Contenders contenders = MakeContenders(domain.node());
  const absl::StatusOr<std::vector<Contender*>> chosen =
      ChosenContenders(domain, contenders, perf.strategies);
  // Alike on all nodes.
  if (!chosen.ok() || chosen->empty()) {
    const absl::Status none = absl::UnavailableError("none of the strategies exists here");
    return FailOnce(kName, IsFirst(domain), chosen.ok() ? none : chosen.status(),
                    chosen.ok() ? kExitSkipped : kExitUsage);
  }
  if (const absl::Status same =
          domain.Agree("the recorded routing", RecordedDigest(perf.shapes.front().workload));
      !same.ok()) {
    return Fail(ExitCodeOf(same), same);
  }
  const absl::StatusOr<Json> facts = NodesToJson(domain);
  if (!facts.ok()) return Fail(ExitCodeOf(facts.status()), facts.status());
  const absl::StatusOr<Ceilings> ceilings = MeasureCeilings(domain.node());
  if (const absl::Status status = domain.Together(ceilings.status()); !status.ok()) {
    return Fail(ExitCodeOf(status), status);
  }

  PerfOutput output(domain, perf, *ceilings, *facts);
  output.Begin();
  const absl::Status status = MeasureRows(domain, perf, *chosen, output);
  // A World may be broken after an error; what has been measured is written anyway.
  const absl::Status written = output.End();
  if (!written.ok() && (status.ok() || !domain.several_nodes())) {
    return Fail(ExitCodeOf(written), written);
  }
  for (const PerfRow& row : output.rows()) {
    if (row.first_difference.empty()) continue;
    return Fail(kExitWrongResults, absl::DataLossError(absl::StrCat(
                                       row.strategy, ", ", row.tokens,
                                       " tokens: wrong results: ", row.first_difference)));
  }
  if (!status.ok()) return Fail(ExitCodeOf(status), status);
  return kExitOk;
}

absl::StatusOr<PerfSpec> Resolve(const CommandLine& line, const PerfFlags& flags, int num_gpus) {
  OCTET_RETURN_IF_ERROR(CheckOperation(line, flags.fused.operation));
  return ResolvePerf(line, flags, num_gpus);
}

int Run(CommandLine& line, PerfFlags& flags) {
  const absl::StatusOr<Topology> topology = DiscoverGpus(line);
  const absl::StatusOr<PerfSpec> perf = Resolve(line, flags, NumGpus(topology));
  DomainOptions wanted = {.prepared = Prepare(line.launch(), perf, topology)};
  if (perf.ok()) {
    wanted.num_ranks = RanksPerNode(perf->shapes.front());
    wanted.timeout = perf->shapes.front().timeout;
    wanted.transport = perf->shapes.front().rail_transport;
  }
  const absl::StatusOr<std::shared_ptr<Domain>> domain = JoinDomain(line.launch(), wanted);
  if (!domain.ok()) return FailToJoin(kName, line.launch(), domain.status());
  if (!perf->fused.empty()) return RunFused((*domain)->node(), *topology, *perf);
  return MeasureSteps(**domain, *perf);
}

}  // namespace

Command PerfCommand() {
  const Command command = {
      .name = kName,
      .summary = "a table of times and bandwidths over numbers of tokens, as nccl-tests print it",
      .details =
          "Times dispatch, combine and both over numbers of tokens, verifies them against a\n"
          "serial reference in the same run, and compares them with the ceiling of the links.\n"
          "Short flags are those of nccl-tests: octet perf -b 1 -e 128 -f 2 -n 50 -J perf.json\n"
          "The JSON file is updated with each row of the table.\n"
          "--strategy takes a list of strategies and other contenders (nccl, memcpy_peer), each "
          "of\n"
          "which gets a row; all: every contender of this machine. --graph adds a row for each\n"
          "strategy, marked +: the same steps, with dispatch, expert and combine replayed as one\n"
          "graph. A size that does not fit into memory is reported and left out (exit code 3).\n"
          "--operation=dispatch_gemm and gemm_combine time dispatch with the experts' first "
          "product\n"
          "and the second product with combine, of one strategy: the parts alone, the whole call "
          "as\n"
          "separate kernels (none) and in every other --fusion; overlap is 1 - (whole - longer\n"
          "part) / shorter part. With dispatch_gemm the epilogue is swiglu unless given.\n"
          "mpirun -n 2 octet perf --ranks=8 measures steps on two nodes of 8 ranks, and the rails\n"
          "between them; the first node prints.\n"
          "Exit codes: 0 ok, 1 wrong results, 2 usage, 3 device error, 4 deadline, 77 none of the\n"
          "contenders exists here.",
      .letters = kNcclTestsLetters,
      .several_nodes = true,
  };
  return WithFlags<PerfFlags>(command, AddPerfFlags, Run);
}

}  // namespace octet
