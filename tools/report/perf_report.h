// The output of `octet perf`: a table like those of nccl-tests, and JSON.
#ifndef OCTET_TOOLS_REPORT_PERF_REPORT_H_
#define OCTET_TOOLS_REPORT_PERF_REPORT_H_

#include <string>
#include <vector>

#include "absl/types/span.h"
#include "octet/topology.h"
#include "tools/measure/probe/ceilings.h"
#include "tools/measure/step/perf.h"
#include "tools/measure/step/perf_spec.h"
#include "tools/report/json_parts.h"

namespace octet {

// Returns lines that begin with '#': what is run, and the names and units of the columns.
std::string PerfHead(const Topology& topology, const PerfSpec& options);

// Returns one line for each kind.
std::string PerfLines(const PerfRow& row, const Ceilings& ceilings);

// Returns lines that begin with '#': ceilings, wrong rows, averages, what the columns mean.
std::string PerfFoot(absl::Span<const PerfRow> rows, const Ceilings& ceilings);

// Returns all rows with each step's time. Members are only ever added to "schema" 1. `nodes`:
// NodesToJson (nodes_report.h), or null.
std::string PerfJson(const Topology& topology, absl::Span<const PerfRow> rows,
                     const Ceilings& ceilings, const Json& nodes = {});

}  // namespace octet

#endif  // OCTET_TOOLS_REPORT_PERF_REPORT_H_
