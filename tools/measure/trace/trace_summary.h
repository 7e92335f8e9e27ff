// Summarises a trace: where the time went, and which rank waited for which.
#ifndef OCTET_TOOLS_MEASURE_TRACE_TRACE_SUMMARY_H_
#define OCTET_TOOLS_MEASURE_TRACE_TRACE_SUMMARY_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "octet/trace.h"

namespace octet {

// Events of one tag.
struct TraceTagSummary {
  absl::string_view name;
  bool waits = false;
  int64_t events = 0;
  double total_us = 0;  // of all blocks of all ranks
  double median_us = 0;
  double p99_us = 0;
};

// Blocks work in phases; a block's time in a phase is that of its events with the phase's tags.
// Blocks are compared by their times over all steps, divided by the number of steps.
struct TracePhaseSummary {
  absl::string_view name;
  std::vector<TraceTagSummary> tags;  // those that were recorded
  int blocks = 0;                     // of all ranks, that took part
  double total_us = 0;                // of all blocks and steps
  double median_us = 0;               // of a block in a step
  double waiting = 0;                 // share of total_us
  int slowest_rank = 0;               // by the mean of its blocks
  double slowest_rank_us = 0;         // that mean
  int slowest_block_rank = 0;
  int slowest_block = 0;
  double slowest_block_us = 0;
};

struct TraceSummary {
  std::vector<TracePhaseSummary> phases;  // in the order of the tags, those that were recorded
  // [r][p]: how long rank r waited for rank p in a step, the mean over its blocks that ever waited.
  std::vector<std::vector<double>> waited_us;
  // [r]: waits for no particular rank.
  std::vector<double> waited_for_nobody_us;
};

// `slices`: of `steps` steps together, in any order. Slices of unknown tags are ignored.
TraceSummary SummarizeTrace(absl::Span<const TraceSlice> slices, absl::Span<const TraceTag> tags,
                            int num_ranks, int steps);

// How long the kernels of one step took on the slowest rank, from the first event of its dispatch,
// or combine, to the last. This excludes the cost of a launch, and the time before a block's first
// event and after its last. 0: there are no events.
struct KernelTimes {
  double dispatch_us = 0;
  double combine_us = 0;
};
KernelTimes TimeKernels(absl::Span<const TraceSlice> slices, absl::Span<const TraceTag> tags,
                        int num_ranks);

// The parts of the time of one rank's call. A part ends when the rank's blocks have finished one
// kind of work: at the last event of its tag. A receiver's waits are divided into "wait", until all
// ranks have sent, and "link", from then on.
struct BudgetPart {
  std::string name;
  double us = 0;
};
struct LatencyBudget {
  // The first part is "launch": until the first event of the rank's dispatch, or combine. Work that
  // is enqueued between the two calls belongs to combine's.
  std::vector<BudgetPart> dispatch;
  std::vector<BudgetPart> combine;
};

// `slices`: of one step, which took `step_us` on `rank` by events around its launches. The parts of
// both calls add up to that time.
LatencyBudget BudgetOf(absl::Span<const TraceSlice> slices, absl::Span<const TraceTag> tags,
                       int rank, double step_us);

// Returns the median of each part, over steps with the same tags.
LatencyBudget MedianBudget(absl::Span<const LatencyBudget> steps);

// Returns a line that begins with '#' for each call.
std::string BudgetText(const LatencyBudget& budget);

// Returns tables, under lines that begin with '#'.
std::string TraceSummaryText(const TraceSummary& summary);

}  // namespace octet

#endif  // OCTET_TOOLS_MEASURE_TRACE_TRACE_SUMMARY_H_
