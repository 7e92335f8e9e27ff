#include <cstdio>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "octet/topology.h"
#include "runtime/base/status_macros.h"
#include "runtime/failure/failure.h"
#include "runtime/node/schedule.h"
#include "tools/commands/commands.h"
#include "tools/commands/run_flags.h"
#include "tools/measure/probe/ceilings.h"
#include "tools/measure/step/dump.h"
#include "tools/measure/step/run.h"
#include "tools/measure/step/soak.h"
#include "tools/report/nodes_report.h"
#include "tools/report/report.h"
#include "tools/support/atomic_file.h"
#include "tools/support/domain.h"
#include "tools/support/exit_code.h"
#include "tools/support/launch.h"
#include "tools/support/progress.h"
#include "tools/workload/workload.h"

namespace octet {
namespace {

constexpr absl::string_view kName = "run";

int Fail(int exit_code, const absl::Status& status) {
  PrintError(kName, exit_code == kExitUsage ? status : WithSchedule(status));
  return exit_code;
}

// Runs all shapes on the same nodes and appends their results. The first error ends the run.
absl::Status RunShapes(Domain& domain, const std::vector<RunSpec>& shapes,
                       std::vector<RunResult>& results) {
  for (const RunSpec& options : shapes) {
    const Progress progress(IsFirst(domain));
    absl::StatusOr<RunResult> result = ExecuteRun(domain, options, progress);
    if (!result.ok()) {
      return options.name.empty()
                 ? result.status()
                 : WithMessage(result.status(),
                               absl::StrCat(options.name, ": ", result.status().message()));
    }
    results.push_back(*std::move(result));
  }
  return absl::OkStatus();
}

// Checks that results can be written before the steps run. `launch`: every process dumps what its
// ranks have, and the first one writes the rest.
absl::Status PrepareOutputs(const Launch& launch, const RunSpec& options) {
  if (!options.dump.empty()) OCTET_RETURN_IF_ERROR(PrepareDump(options.dump));
  if (!launch.first()) return absl::OkStatus();
  for (const std::string& file : {options.json, options.trace}) {
    if (!file.empty()) OCTET_RETURN_IF_ERROR(ProbeWrite(file));
  }
  return absl::OkStatus();
}

// Returns what stands in the way of a soak, before anything is launched.
absl::Status PrepareSoak(const Launch& launch, const absl::StatusOr<SoakSpec>& options,
                         const absl::StatusOr<Topology>& topology) {
  OCTET_RETURN_IF_ERROR(AsUsageError(options.status()));
  if (launch.several() && !CurrentSchedule().empty()) {
    return absl::InvalidArgumentError(absl::StrCat("a schedule is for one node, and ",
                                                   launch.num_processes,
                                                   " have been started; run it without mpirun"));
  }
  OCTET_RETURN_IF_ERROR(topology.status());
  OCTET_RETURN_IF_ERROR(topology->CheckRanks(options->num_ranks));
  if (options->json.empty() || !launch.first()) return absl::OkStatus();
  return AsUsageError(ProbeWrite(options->json));
}

absl::Status ReportSoak(const Topology& topology, const SoakResult& result,
                        const std::string& command) {
  absl::PrintF("%s", SoakTable(topology, result));
  std::fflush(stdout);
  if (result.options.json.empty()) return absl::OkStatus();
  return AsUsageError(
      WriteFileAtomically(result.options.json, {SoakJson(topology, result, command)}));
}

int RunSoak(const CommandLine& line, const RunFlags& flags, const absl::Status& scheduled,
            const absl::StatusOr<Topology>& topology) {
  const absl::StatusOr<SoakSpec> options = ResolveSoak(line, flags, NumGpus(topology));
  DomainOptions wanted;
  wanted.prepared = scheduled.ok() ? PrepareSoak(line.launch(), options, topology) : scheduled;
  if (options.ok()) {
    wanted.num_ranks = options->num_ranks;
    wanted.timeout = options->timeout;
    wanted.transport = options->rail_transport;
  }
  std::shared_ptr<Domain> joined;  // a soak on one node makes many nodes
  if (line.launch().several()) {
    absl::StatusOr<std::shared_ptr<Domain>> domain = JoinDomain(line.launch(), wanted);
    if (!domain.ok()) return FailToJoin(kName, line.launch(), domain.status());
    joined = *std::move(domain);
  } else if (!wanted.prepared.ok()) {
    return Fail(ExitCodeOf(wanted.prepared), wanted.prepared);
  }
  const SoakResult result = Soak(
      *topology, *options,
      [](Domain& domain, const RunSpec& shape) {
        const Progress quiet(false);
        return ExecuteRun(domain, shape, quiet);
      },
      joined.get());
  const bool first = line.launch().first();
  const std::string command = result.failed.has_value() ? CommandOf(*result.failed) : "";
  absl::Status reported = first ? ReportSoak(*topology, result, command) : absl::OkStatus();
  // A World may be broken after an error.
  if (joined != nullptr && result.status.ok()) reported = joined->Together(reported);
  if (!reported.ok()) return Fail(ExitCodeOf(reported), reported);
  if (result.status.ok()) return kExitOk;
  if (!command.empty() && first) {
    absl::FPrintF(stderr, "# this shape by itself:\n%s\n", command);
  }
  return Fail(ExitCodeOf(result.status), result.status);
}

// The same for shapes.
absl::Status Prepare(const Launch& launch, const absl::StatusOr<std::vector<RunSpec>>& shapes,
                     const absl::StatusOr<Topology>& topology) {
  OCTET_RETURN_IF_ERROR(AsUsageError(shapes.status()));
  OCTET_RETURN_IF_ERROR(topology.status());
  OCTET_RETURN_IF_ERROR(topology->CheckRanks(RanksPerNode(shapes->front())));
  return AsUsageError(PrepareOutputs(launch, shapes->front()));
}

// Prints the results, and writes them to the file if that is wanted.
absl::Status Report(const Topology& topology, const std::vector<RunResult>& results,
                    const Ceilings* ceilings, const Json& nodes) {
  absl::PrintF("%s", results.size() == 1 ? RunTable(topology, results.front())
                                         : WorkloadTable(topology, results));
  if (ceilings != nullptr) absl::PrintF("%s", CeilingsText(*ceilings));
  std::fflush(stdout);
  const RunSpec& options = results.front().options;
  if (options.json.empty()) return absl::OkStatus();
  return WriteFileAtomically(options.json, {RunJson(topology, results, ceilings, nodes)});
}

// Runs the shapes and reports their results, if this is the first process.
absl::Status RunAndReport(Domain& domain, const std::vector<RunSpec>& shapes,
                          std::vector<RunResult>& results) {
  const RunSpec& options = shapes.front();
  OCTET_RETURN_IF_ERROR(domain.Agree("the recorded routing", RecordedDigest(options.workload)));
  OCTET_ASSIGN_OR_RETURN(const Json facts, NodesToJson(domain));
  OCTET_RETURN_IF_ERROR(RunShapes(domain, shapes, results));
  Ceilings ceilings;
  if (options.ceilings) {
    const absl::StatusOr<Ceilings> measured = MeasureCeilings(domain.node());
    OCTET_RETURN_IF_ERROR(domain.Together(measured.status()));
    ceilings = *measured;
  }
  absl::Status reported;
  if (IsFirst(domain)) {
    reported = AsUsageError(
        Report(domain.node().topology(), results, options.ceilings ? &ceilings : nullptr, facts));
  }
  return domain.Together(reported);
}

int Run(CommandLine& line, RunFlags& flags) {
  const absl::Status scheduled =
      flags.schedule.empty() ? absl::OkStatus() : UseSchedule(flags.schedule);
  if (!scheduled.ok() && !line.launch().several()) return Fail(kExitUsage, scheduled);
  const absl::StatusOr<Topology> topology = DiscoverGpus(line);
  if (line.Given("soak")) return RunSoak(line, flags, scheduled, topology);
  const absl::StatusOr<std::vector<RunSpec>> shapes = ResolveRun(line, flags, NumGpus(topology));
  DomainOptions wanted;
  wanted.prepared = scheduled.ok() ? Prepare(line.launch(), shapes, topology) : scheduled;
  if (shapes.ok()) {
    wanted.num_ranks = RanksPerNode(shapes->front());
    wanted.timeout = shapes->front().timeout;
    wanted.transport = shapes->front().rail_transport;
  }
  const absl::StatusOr<std::shared_ptr<Domain>> domain = JoinDomain(line.launch(), wanted);
  if (!domain.ok()) return FailToJoin(kName, line.launch(), domain.status());

  std::vector<RunResult> results;
  if (const absl::Status status = RunAndReport(**domain, *shapes, results); !status.ok()) {
    return Fail(ExitCodeOf(status), status);
  }
  if (results.back().trace_events_dropped > 0) {
    absl::FPrintF(stderr, "octet run: %d events did not fit into the trace\n",
                  results.back().trace_events_dropped);
  }
  for (const RunResult& result : results) {
    const std::string difference = FirstDifference(result);
    if (difference.empty()) continue;
    return Fail(kExitWrongResults,
                absl::DataLossError(absl::StrCat("wrong results: ", difference)));
  }
  return kExitOk;
}

}  // namespace

Command RunCommand() {
  const Command command = {
      .name = kName,
      .summary = "dispatch, experts and combine: verified to the bit and timed",
      .details =
          "Makes a workload, runs dispatch, pointwise stand-ins for experts and combine on all\n"
          "ranks, verifies every step against a serial reference, and prints times and bandwidths\n"
          "of each rank and of all. Exit codes: 0 ok, 1 wrong results, 2 usage, 3 device error,\n"
          "4 deadline.\n"
          "mpirun -n 2 octet run --ranks=8 runs on two nodes of 8 ranks; the first one prints.",
      .several_nodes = true,
  };
  return WithFlags<RunFlags>(command, AddRunFlags, Run);
}

}  // namespace octet
