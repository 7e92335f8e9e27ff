// Measures steps whose sends run concurrently with a kernel of the caller, and the same work in
// sequence.
#ifndef OCTET_TOOLS_MEASURE_STEP_OVERLAP_RUN_H_
#define OCTET_TOOLS_MEASURE_STEP_OVERLAP_RUN_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "octet/ep_config.h"
#include "octet/node.h"
#include "tools/measure/step/step_runner.h"
#include "tools/step/run_spec.h"
#include "tools/support/progress.h"

namespace octet {

struct OverlapResult {
  RunSpec options;
  EpConfig config;  // with every choice made
  int compute_blocks = 0;
  double compute_us = 0;               // of the kernel by itself
  std::vector<StepResult> alone;       // Dispatch, Combine
  std::vector<StepResult> in_turn;     // Dispatch, kernel, Combine, kernel
  std::vector<StepResult> overlapped;  // DispatchSend beside kernel, DispatchReceive; combine too
  std::vector<StepResult> traced;      // one overlapped step, the one in the file
};

// Warms up and runs options.iters steps of each kind in turn, with a kernel that computes for
// `compute_us`. Writes one more overlapped step, traced, to options.trace. Calls get half of the
// compute units and the kernel the other half, unless the options say how many blocks a call has.
absl::StatusOr<OverlapResult> ExecuteOverlap(Node& node, const RunSpec& options, double compute_us,
                                             const Progress& progress);

// Returns a table, under lines that begin with '#'.
std::string OverlapText(const OverlapResult& result);

}  // namespace octet

#endif  // OCTET_TOOLS_MEASURE_STEP_OVERLAP_RUN_H_
