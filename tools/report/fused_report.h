// The output of `octet perf` and `octet trace` with --operation=dispatch_gemm and gemm_combine:
// what is run, a table, and JSON.
#ifndef OCTET_TOOLS_REPORT_FUSED_REPORT_H_
#define OCTET_TOOLS_REPORT_FUSED_REPORT_H_

#include <string>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "octet/topology.h"
#include "tools/measure/fused/fused_run.h"
#include "tools/measure/probe/ceilings.h"

namespace octet {

// Returns lines that begin with '#': what `command` runs.
std::string FusedHead(absl::string_view command, const Topology& topology,
                      const FusedRunOptions& options);

// Returns lines that begin with '#': the names and units of the columns.
std::string FusedColumns();

// Returns a line for each row, and a comment for each fusion that was left out.
std::string FusedLines(const FusedReport& report);

// Returns lines that begin with '#': ceilings, wrong rows, what the columns mean.
std::string FusedFoot(absl::Span<const FusedReport> reports, const Ceilings& ceilings);

// Returns all reports with each step's time. Members are only ever added to "schema" 1.
std::string FusedJson(const Topology& topology, absl::Span<const FusedReport> reports,
                      const Ceilings& ceilings);

}  // namespace octet

#endif  // OCTET_TOOLS_REPORT_FUSED_REPORT_H_
