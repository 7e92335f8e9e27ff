// What a run tells its reader: a table for people, JSON for programs.
#ifndef OCTET_TOOLS_REPORT_REPORT_H_
#define OCTET_TOOLS_REPORT_REPORT_H_

#include <string>
#include <vector>

#include "absl/types/span.h"
#include "octet/topology.h"
#include "tools/measure/ceilings.h"
#include "tools/measure/run.h"
#include "tools/measure/soak.h"

namespace octet {

// What is run, as lines that begin with '#'. `config`: with every choice made.
std::string RunHead(absl::string_view command, const Topology& topology, const RunOptions& options,
                    const EpConfig& config);

// What is sent and received, as a line that begins with '#'; empty where it is nothing special.
std::string FormatsLine(const RunOptions& options, const EpConfig& config);

// For the head of every table with times: a line that says so where GPUs are emulated; else empty.
std::string EmulationNote(const Topology& topology);

// Two tables with a line for each rank and one for all, under lines that begin with '#': steps in
// one piece, and by phases.
std::string RunTable(const Topology& topology, const RunResult& result);

// A line for each shape of a workload, and the geometric mean of its benchmarks.
std::string WorkloadTable(const Topology& topology, absl::Span<const RunResult> results);

// The ceilings measured beside a run, as lines that begin with '#'.
std::string CeilingsText(const Ceilings& ceilings);

// Everything in the tables and the figures of each step. Members are only ever added to "schema" 1.
// `ceilings` may be nullptr.
std::string RunJson(const Topology& topology, absl::Span<const RunResult> results,
                    const Ceilings* ceilings);

// What a soak has run, by strategy, and the memory in use.
std::string SoakTable(const Topology& topology, const SoakResult& result);
std::string SoakJson(const Topology& topology, const SoakResult& result);

// Of the first GPU.
std::string GpuName(const Topology& topology);

// GB/s with enough digits for links and for emulations of them.
std::string Bandwidth(double gbps);

// The first difference from the reference in any step, in words; empty if there is none.
std::string FirstDifference(const RunResult& result);

}  // namespace octet

#endif  // OCTET_TOOLS_REPORT_REPORT_H_
