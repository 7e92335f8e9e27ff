// Runs one shape from the inputs to the results: warm-up, timed steps, steps by phases, dump,
// trace.
#ifndef OCTET_TOOLS_MEASURE_STEP_RUN_H_
#define OCTET_TOOLS_MEASURE_STEP_RUN_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "octet/ep_config.h"
#include "tools/measure/step/step_runner.h"
#include "tools/step/run_spec.h"
#include "tools/support/domain.h"
#include "tools/support/progress.h"
#include "tools/support/statistics.h"

namespace octet {

struct RunResult {
  RunSpec options;
  EpConfig config;                 // with every choice made
  size_t heap_bytes = 0;           // used on every GPU
  std::vector<StepResult> warmup;  // fused
  std::vector<StepResult> steps;   // fused: the timed ones
  // As many, with a launch for each phase; with several nodes, by calls (StepForm::kCalls).
  std::vector<StepResult> by_phases;
  std::vector<StepResult> traced;  // with recording kernels; empty without --trace
  uint64_t trace_events_dropped = 0;
};

// The report about one rank, or about all of them.
struct SummaryLine {
  double num_tokens = 0;  // means over the timed steps
  double rows_sent = 0;
  double rows_received = 0;
  double rail_rows = 0;
  Statistics all_us;                             // of the timed steps
  std::array<double, kNumPhases> phase_us = {};  // medians of the steps by phases
  std::array<double, kNumCalls> call_us = {};    // or by calls
  double logical_gbps = 0;  // medians over the timed steps; of the busiest rank in the total
  double wire_gbps = 0;
  double rail_gbps = 0;
  Verification verification;  // of all steps
};

struct RunSummary {
  std::vector<SummaryLine> ranks;
  SummaryLine total;   // sums of tokens and rows; times of the slowest rank of each step
  Statistics wall_us;  // of the timed steps, on the host
};

RunSummary Summarize(const RunResult& result);

// Returns the first difference from the reference in any step, in words; empty if there is none.
std::string FirstDifference(const RunResult& result);

// Collective. Runs the shape. The nodes must be those of the options. The result is the same on all
// of them.
absl::StatusOr<RunResult> ExecuteRun(Domain& domain, const RunSpec& options,
                                     const Progress& progress);

}  // namespace octet

#endif  // OCTET_TOOLS_MEASURE_STEP_RUN_H_
