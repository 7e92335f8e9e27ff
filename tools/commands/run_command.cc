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
#include "octet/node.h"
#include "octet/peers.h"
#include "octet/topology.h"
#include "runtime/schedule.h"
#include "runtime/status_macros.h"
#include "tools/check/dump.h"
#include "tools/commands/run_options.h"
#include "tools/measure/ceilings.h"
#include "tools/measure/run.h"
#include "tools/measure/soak.h"
#include "tools/report/report.h"
#include "tools/support/atomic_file.h"
#include "tools/support/exit_code.h"
#include "tools/support/progress.h"
#include "tools/support/watched_node.h"

ABSL_DECLARE_FLAG(std::string, schedule);

namespace octet {
namespace {

constexpr absl::string_view kName = "run";

int Fail(int exit_code, const absl::Status& status) {
  PrintError(kName, exit_code == kExitUsage ? status : WithSchedule(status));
  return exit_code;
}

// Runs all shapes on one node and appends their results. The first error ends the run.
absl::Status RunShapes(Node& node, const std::vector<RunOptions>& shapes,
                       std::vector<RunResult>& results) {
  for (const RunOptions& options : shapes) {
    Progress progress;
    absl::StatusOr<RunResult> result = ExecuteRun(node, options, progress);
    if (!result.ok()) {
      return options.name.empty()
                 ? result.status()
                 : absl::Status(result.status().code(),
                                absl::StrCat(options.name, ": ", result.status().message()));
    }
    results.push_back(*std::move(result));
  }
  return absl::OkStatus();
}

absl::Status Measure(Node& node, Ceilings& ceilings) {
  OCTET_ASSIGN_OR_RETURN(ceilings, MeasureCeilings(node));
  return absl::OkStatus();
}

// Checks that results can be written before the steps run.
absl::Status PrepareOutputs(const RunOptions& options) {
  if (!options.dump.empty()) OCTET_RETURN_IF_ERROR(PrepareDump(options.dump));
  for (const std::string& file : {options.json, options.trace}) {
    if (!file.empty()) OCTET_RETURN_IF_ERROR(ProbeWrite(file));
  }
  return absl::OkStatus();
}

int RunSoak(const CommandLine& line, const absl::StatusOr<Topology>& topology, int num_gpus) {
  const absl::StatusOr<SoakOptions> options = ParseSoakOptions(line, num_gpus);
  if (!options.ok()) return Fail(kExitUsage, options.status());
  if (!topology.ok()) return Fail(ExitCodeOf(topology.status()), topology.status());
  if (const absl::Status status = topology->CheckRanks(options->num_ranks); !status.ok()) {
    return Fail(ExitCodeOf(status), status);
  }
  if (!options->json.empty()) {
    if (const absl::Status status = ProbeWrite(options->json); !status.ok()) {
      return Fail(kExitUsage, status);
    }
  }
  const SoakResult result = Soak(
      *topology, *options, [](Node& node, const RunOptions& shape) -> absl::StatusOr<RunResult> {
        const Progress quiet(false);
        return ExecuteRun(node, shape, quiet);
      });
  absl::PrintF("%s", SoakTable(*topology, result));
  std::fflush(stdout);
  if (!options->json.empty()) {
    const absl::Status written = WriteFileAtomically(options->json, {SoakJson(*topology, result)});
    if (!written.ok()) return Fail(kExitUsage, written);
  }
  if (result.status.ok()) return kExitOk;
  if (!result.command.empty()) {
    absl::FPrintF(stderr, "# this shape by itself:\n%s\n", result.command);
  }
  return Fail(ExitCodeOf(result.status), result.status);
}

int Run(const CommandLine& line) {
  if (const std::string schedule = absl::GetFlag(FLAGS_schedule); !schedule.empty()) {
    const absl::Status status = UseSchedule(schedule);
    if (!status.ok()) return Fail(kExitUsage, status);
  }
  const absl::StatusOr<Topology> topology = DiscoverTopology();
  // Errors of the command line are reported first, even if the GPUs cannot be counted.
  const int num_gpus = topology.ok() ? static_cast<int>(topology->gpus.size()) : kMaxRanks;
  if (line.Given("soak")) return RunSoak(line, topology, num_gpus);
  const absl::StatusOr<std::vector<RunOptions>> shapes = ParseRunOptions(line, num_gpus);
  if (!shapes.ok()) return Fail(kExitUsage, shapes.status());
  if (!topology.ok()) return Fail(ExitCodeOf(topology.status()), topology.status());
  const RunOptions& options = shapes->front();
  const int num_ranks = options.workload.num_ranks;
  if (const absl::Status status = topology->CheckRanks(num_ranks); !status.ok()) {
    return Fail(ExitCodeOf(status), status);
  }
  if (const absl::Status status = PrepareOutputs(options); !status.ok()) {
    return Fail(kExitUsage, status);
  }

  const absl::StatusOr<std::shared_ptr<Node>> node =
      CreateWatchedNode({.num_ranks = num_ranks, .timeout = options.timeout});
  if (!node.ok()) return Fail(ExitCodeOf(node.status()), node.status());
  std::vector<RunResult> results;
  absl::Status status = RunShapes(**node, *shapes, results);
  Ceilings ceilings;
  if (status.ok() && options.ceilings) status = Measure(**node, ceilings);
  if (!status.ok()) return Fail(ExitCodeOf(status), status);

  absl::PrintF("%s", shapes->size() == 1 ? RunTable(*topology, results.front())
                                         : WorkloadTable(*topology, results));
  if (options.ceilings) absl::PrintF("%s", CeilingsText(ceilings));
  std::fflush(stdout);
  if (!options.json.empty()) {
    const absl::Status written = WriteFileAtomically(
        options.json, {RunJson(*topology, results, options.ceilings ? &ceilings : nullptr)});
    if (!written.ok()) return Fail(kExitUsage, written);
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
          "4 deadline.",
      .flags = RunFlags(),
      .run = Run,
  };
}

}  // namespace octet
