#include "tools/commands/run_command.h"

#include <cstdio>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/flags/declare.h"
#include "absl/flags/flag.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "octet/peers.h"
#include "octet/topology.h"
#include "runtime/base/status_macros.h"
#include "runtime/failure/failure.h"
#include "runtime/node/schedule.h"
#include "tools/check/dump.h"
#include "tools/commands/run_options.h"
#include "tools/measure/probe/ceilings.h"
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

ABSL_DECLARE_FLAG(std::string, schedule);

namespace octet {
namespace {

constexpr absl::string_view kName = "run";

int Fail(int exit_code, const absl::Status& status) {
  PrintError(kName, exit_code == kExitUsage ? status : WithSchedule(status));
  return exit_code;
}

// Runs all shapes on the same nodes and appends their results. The first error ends the run.
absl::Status RunShapes(Domain& domain, const std::vector<RunOptions>& shapes,
                       std::vector<RunResult>& results) {
  for (const RunOptions& options : shapes) {
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
absl::Status PrepareOutputs(const Launch& launch, const RunOptions& options) {
  if (!options.dump.empty()) OCTET_RETURN_IF_ERROR(PrepareDump(options.dump));
  if (!launch.first()) return absl::OkStatus();
  for (const std::string& file : {options.json, options.trace}) {
    if (!file.empty()) OCTET_RETURN_IF_ERROR(ProbeWrite(file));
  }
  return absl::OkStatus();
}

// Returns what stands in the way of a soak, before anything is launched.
absl::Status PrepareSoak(const Launch& launch, const absl::StatusOr<SoakOptions>& options,
                         const absl::StatusOr<Topology>& topology) {
  OCTET_RETURN_IF_ERROR(AsUsageError(options.status()));
  if (launch.several() && !CurrentSchedule().empty()) {
    return absl::InvalidArgumentError(absl::StrCat("a schedule is for one node, and ",
                                                   launch.num_processes, " have been started"));
  }
  OCTET_RETURN_IF_ERROR(topology.status());
  OCTET_RETURN_IF_ERROR(topology->CheckRanks(options->num_ranks));
  if (options->json.empty() || !launch.first()) return absl::OkStatus();
  return AsUsageError(ProbeWrite(options->json));
}

absl::Status ReportSoak(const Topology& topology, const SoakResult& result) {
  absl::PrintF("%s", SoakTable(topology, result));
  std::fflush(stdout);
  if (result.options.json.empty()) return absl::OkStatus();
  return AsUsageError(WriteFileAtomically(result.options.json, {SoakJson(topology, result)}));
}

int RunSoak(const CommandLine& line, const absl::Status& scheduled,
            const absl::StatusOr<Topology>& topology, int num_gpus) {
  const absl::StatusOr<SoakOptions> options = ParseSoakOptions(line, num_gpus);
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
      [](Domain& domain, const RunOptions& shape) {
        const Progress quiet(false);
        return ExecuteRun(domain, shape, quiet);
      },
      joined.get());
  const bool first = line.launch().first();
  absl::Status reported = first ? ReportSoak(*topology, result) : absl::OkStatus();
  // A World may be broken after an error.
  if (joined != nullptr && result.status.ok()) reported = joined->Together(reported);
  if (!reported.ok()) return Fail(ExitCodeOf(reported), reported);
  if (result.status.ok()) return kExitOk;
  if (!result.command.empty() && first) {
    absl::FPrintF(stderr, "# this shape by itself:\n%s\n", result.command);
  }
  return Fail(ExitCodeOf(result.status), result.status);
}

// The same for shapes.
absl::Status Prepare(const Launch& launch, const absl::StatusOr<std::vector<RunOptions>>& shapes,
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
  const RunOptions& options = results.front().options;
  if (options.json.empty()) return absl::OkStatus();
  return WriteFileAtomically(options.json, {RunJson(topology, results, ceilings, nodes)});
}

// Runs the shapes and reports their results, if this is the first process.
absl::Status RunAndReport(Domain& domain, const std::vector<RunOptions>& shapes,
                          std::vector<RunResult>& results) {
  const RunOptions& options = shapes.front();
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

int Run(const CommandLine& line) {
  absl::Status scheduled;
  if (const std::string schedule = absl::GetFlag(FLAGS_schedule); !schedule.empty()) {
    scheduled = UseSchedule(schedule);
  }
  if (!scheduled.ok() && !line.launch().several()) return Fail(kExitUsage, scheduled);
  const absl::StatusOr<Topology> topology = DiscoverTopology();
  // Errors of the command line are reported first, even if the GPUs cannot be counted.
  const int num_gpus = topology.ok() ? static_cast<int>(topology->gpus.size()) : kMaxRanks;
  if (line.Given("soak")) return RunSoak(line, scheduled, topology, num_gpus);
  const absl::StatusOr<std::vector<RunOptions>> shapes = ParseRunOptions(line, num_gpus);
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
  return {
      .name = kName,
      .summary = "dispatch, experts and combine: verified to the bit and timed",
      .details =
          "Makes a workload, runs dispatch, pointwise stand-ins for experts and combine on all\n"
          "ranks, verifies every step against a serial reference, and prints times and bandwidths\n"
          "of each rank and of all. Exit codes: 0 ok, 1 wrong results, 2 usage, 3 device error,\n"
          "4 deadline.\n"
          "mpirun -n 2 octet run --ranks=8 runs on two nodes of 8 ranks; the first one prints.",
      .flags = RunFlags(),
      .run = Run,
      .several_nodes = true,
  };
}

}  // namespace octet
