// How fast rails carry what a step sends over them, and nothing else: the ceiling of calls over
// several nodes.
#ifndef OCTET_TOOLS_MEASURE_PROBE_RAIL_TEST_H_
#define OCTET_TOOLS_MEASURE_PROBE_RAIL_TEST_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "kernels/ep/nodes_of_ranks.h"
#include "kernels/oracle/reference.h"
#include "octet/ep_config.h"
#include "octet/expert_parallel.h"
#include "tools/step/run_spec.h"
#include "tools/support/domain.h"

namespace octet {

// Rows that the rail of each rank of this node carries: [local rank][node].
struct RailRowCounts {
  std::vector<std::vector<int64_t>> sent;
  std::vector<std::vector<int64_t>> received;
};

// Returns the rows of a dispatch in which every rank of all nodes sends inputs[rank]. `config`:
// with all choices made. A combine carries the same rows the other way.
RailRowCounts CountRailRows(const EpConfig& config, const NodesOfRanks& nodes, RailRows rows,
                            absl::Span<const RankInput> inputs, int node);

// One exchange of such rows, in both directions at once.
struct RailFigures {
  std::vector<double> us;  // of each exchange: the slowest rank of all nodes
  int64_t bytes = 0;       // of the busiest rank: sent or received, whichever is more
  double gbps = 0;         // the median
};

// How exchanges are timed: as the steps that they are compared with.
struct RailTiming {
  int iters = 1;
  Align align = Align::kHost;
  bool graph = false;  // replays of one that has been captured
};

// Collective. Checks what comes byte for byte, then times exchanges, each from a barrier of all
// nodes. kDataLoss if something else has come.
absl::StatusOr<RailFigures> MeasureRail(Domain& domain, const RailRowCounts& rows,
                                        int64_t row_bytes, const RailTiming& timing);

}  // namespace octet

#endif  // OCTET_TOOLS_MEASURE_PROBE_RAIL_TEST_H_
