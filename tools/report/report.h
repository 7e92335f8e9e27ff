// The output of a run: a table for people, JSON for programs.
#ifndef OCTET_TOOLS_REPORT_REPORT_H_
#define OCTET_TOOLS_REPORT_REPORT_H_

#include <string>
#include <vector>

#include "absl/types/span.h"
#include "octet/topology.h"
#include "tools/measure/probe/ceilings.h"
#include "tools/measure/step/run.h"
#include "tools/measure/step/soak.h"
#include "tools/report/json_parts.h"

namespace octet {

// Returns lines that begin with '#': what is run. `config`: with every choice made.
std::string RunHead(absl::string_view command, const Topology& topology, const RunSpec& options,
                    const EpConfig& config);

// Returns a line that begins with '#': what is sent and received; empty for the default formats.
std::string FormatsLine(const RunSpec& options, const EpConfig& config);

// Returns "8 ranks" or "2 nodes of 8 ranks".
std::string RanksText(const RunSpec& options);

// Returns a line that begins with '#': how rows cross between nodes; empty for one node.
std::string NodesLine(const RunSpec& options, const EpConfig& config);

// Returns a line for the head of every table with times if GPUs are emulated; else empty.
std::string EmulationNote(const Topology& topology);

// Returns two tables with a line for each rank and one for all, under lines that begin with '#':
// fused steps, and steps by phases.
std::string RunTable(const Topology& topology, const RunResult& result);

// Returns a line for each shape of a workload, and the geometric mean of its benchmarks.
std::string WorkloadTable(const Topology& topology, absl::Span<const RunResult> results);

// Returns the ceilings measured beside a run, as lines that begin with '#'.
std::string CeilingsText(const Ceilings& ceilings);

// Returns everything in the tables and the figures of each step. Members are only ever added to
// "schema" 1. `ceilings` may be nullptr. `nodes`: NodesToJson (nodes_report.h), or null.
std::string RunJson(const Topology& topology, absl::Span<const RunResult> results,
                    const Ceilings* ceilings, const Json& nodes = {});

// Returns what a soak has run, by strategy, and the memory in use.
std::string SoakTable(const Topology& topology, const SoakResult& result);
// `command`: runs the shape that failed by itself; empty if none did.
std::string SoakJson(const Topology& topology, const SoakResult& result, absl::string_view command);

// Returns the name of the first GPU.
std::string GpuName(const Topology& topology);

// Formats GB/s with enough digits for links and for emulations of them.
std::string Bandwidth(double gbps);

}  // namespace octet

#endif  // OCTET_TOOLS_REPORT_REPORT_H_
