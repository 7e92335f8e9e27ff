// What a trace says in a few lines: where the time went, and who waited for whom.
#ifndef OCTET_TOOLS_MEASURE_TRACE_SUMMARY_H_
#define OCTET_TOOLS_MEASURE_TRACE_SUMMARY_H_

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

// A phase is worked at by blocks; a block's time in it is that of its events of the phase's tags.
// Blocks are compared by their times over all steps, divided by the steps.
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
  // [r][p]: how long rank r waited for rank p in a step, on the mean of its blocks that ever
  // waited.
  std::vector<std::vector<double>> waited_us;
  // [r]: for nobody in particular.
  std::vector<double> waited_for_nobody_us;
};

// `slices`: of `steps` steps together, in any order. Slices of unknown tags are left out.
TraceSummary SummarizeTrace(absl::Span<const TraceSlice> slices, absl::Span<const TraceTag> tags,
                            int num_ranks, int steps);

// How long the kernels of one step took, from the first event of a rank's dispatch, or combine, to
// its last: of the slowest rank. What a launch costs is not in it, nor what comes before a block's
// first event and after its last. 0: there are no events.
struct KernelTimes {
  double dispatch_us = 0;
  double combine_us = 0;
};
KernelTimes TimeKernels(absl::Span<const TraceSlice> slices, absl::Span<const TraceTag> tags,
                        int num_ranks);

// Where the time of one rank's call goes, cut at the moments at which its blocks were done with one
// kind of work after the other: each part lasts until the last event of its tag. The times that a
// receiver waits are one part until all ranks have sent, "wait", and one from there, "link".
struct BudgetPart {
  std::string name;
  double us = 0;
};
struct LatencyBudget {
  // The first part is "launch": until the first event of the rank's dispatch, or combine. What is
  // enqueued between the two calls is in combine's.
  std::vector<BudgetPart> dispatch;
  std::vector<BudgetPart> combine;
};

// `slices`: of one step that took `rank` `step_us` by events around its launches. The parts of both
// calls are that time together.
LatencyBudget BudgetOf(absl::Span<const TraceSlice> slices, absl::Span<const TraceTag> tags,
                       int rank, double step_us);

// The median of each part, of steps with the same tags.
LatencyBudget MedianBudget(absl::Span<const LatencyBudget> steps);

// A line for each call, "#" before it.
std::string BudgetText(const LatencyBudget& budget);

// As tables, under lines that begin with '#'.
std::string TraceSummaryText(const TraceSummary& summary);

}  // namespace octet

#endif  // OCTET_TOOLS_MEASURE_TRACE_SUMMARY_H_
