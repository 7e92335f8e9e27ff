// Runs steps whose kernels record events, and the same steps without recording.
#ifndef OCTET_TOOLS_MEASURE_TRACE_TRACED_RUN_H_
#define OCTET_TOOLS_MEASURE_TRACE_TRACED_RUN_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "octet/ep_config.h"
#include "octet/expert_parallel.h"
#include "octet/node.h"
#include "octet/symmetric_heap.h"
#include "octet/trace.h"
#include "tools/measure/step/step_runner.h"
#include "tools/measure/trace/trace_summary.h"
#include "tools/step/run_spec.h"
#include "tools/support/progress.h"

namespace octet {

// The objects that a traced step needs. The node must outlive them.
struct TracedSteps {
  std::unique_ptr<TraceCollector> collector;
  std::unique_ptr<SymmetricHeap> heap;  // if the options ask for one
  std::unique_ptr<ExpertParallel> ep;
  std::unique_ptr<StepRunner> runner;

  // `config`: with every choice made, so that launches equal those of the steps that are not
  // traced. `more_blocks`: blocks for other recordings, after those of the launches.
  static absl::StatusOr<TracedSteps> Create(Node& node, const EpConfig& config,
                                            const RunSpec& options, int more_blocks = 0);

  // Writes the slices as a file for Perfetto.
  static absl::Status Write(const Node& node, absl::Span<const TraceSlice> slices,
                            absl::Span<const TraceTag> tags, const std::string& path);
};

struct TraceResult {
  RunSpec options;
  EpConfig config;                // with every choice made
  std::vector<StepResult> plain;  // as many as traced ones, in turn with them
  std::vector<StepResult> traced;
  TraceSummary summary;                                    // of all traced steps
  std::vector<KernelTimes> kernels;                        // of each traced step
  LatencyBudget budget;                                    // of its slowest rank, medians
  uint64_t events_dropped = 0;                             // of all traced steps
  std::vector<TraceCollector::ClockOffset> clock_offsets;  // by rank
};

// Warms up, runs options.iters steps of each kind, and writes the last traced one to options.trace.
absl::StatusOr<TraceResult> ExecuteTrace(Node& node, const RunSpec& options,
                                         const Progress& progress);

}  // namespace octet

#endif  // OCTET_TOOLS_MEASURE_TRACE_TRACED_RUN_H_
