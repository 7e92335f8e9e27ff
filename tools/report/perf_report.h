// What `octet perf` tells its reader: nccl-tests' kind of table, and JSON.
#ifndef OCTET_TOOLS_REPORT_PERF_REPORT_H_
#define OCTET_TOOLS_REPORT_PERF_REPORT_H_

#include <string>
#include <vector>

#include "absl/types/span.h"
#include "octet/topology.h"
#include "tools/commands/perf_options.h"
#include "tools/measure/ceilings.h"
#include "tools/measure/perf.h"

namespace octet {

// Lines that begin with '#': what is run, and the names and units of the columns.
std::string PerfHead(const Topology& topology, const PerfOptions& options);

// A line for each kind.
std::string PerfLines(const PerfRow& row, const Ceilings& ceilings);

// Lines that begin with '#': ceilings, wrong rows, averages, what the columns mean.
std::string PerfFoot(absl::Span<const PerfRow> rows, const Ceilings& ceilings);

// All rows with each step's time. Members are only ever added to "schema" 1.
std::string PerfJson(const Topology& topology, absl::Span<const PerfRow> rows,
                     const Ceilings& ceilings);

}  // namespace octet

#endif  // OCTET_TOOLS_REPORT_PERF_REPORT_H_
