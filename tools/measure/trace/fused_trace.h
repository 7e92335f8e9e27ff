// What the slices of a traced call with a product show.
#ifndef OCTET_TOOLS_MEASURE_TRACE_FUSED_TRACE_H_
#define OCTET_TOOLS_MEASURE_TRACE_FUSED_TRACE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "octet/trace.h"
#include "tools/measure/fused/fused_run.h"

namespace octet {

// What one rank's blocks did at the same time. A rank multiplies, or moves rows, while at least one
// of its blocks that record does; waiting is neither.
struct FusedOverlap {
  double rows_us = 0;      // sends, fills, reduces
  double multiply_us = 0;  // multiplies
  double both_us = 0;
  int64_t tiles = 0;         // that were multiplied
  int64_t tiles_beside = 0;  // while rows were moved, at least for a part of their time
};

// Returns the slices of the call alone, which the dispatch before a GemmCombine is not part of, and
// of its earliest slice on: at 0.
std::vector<TraceSlice> SlicesOfCall(const FusedTrace& trace);

// By rank. `slices`: in any order.
std::vector<FusedOverlap> OverlapOf(absl::Span<const TraceSlice> slices,
                                    absl::Span<const TraceTag> tags, int num_ranks);

// Returns tables, under lines that begin with '#'. `slices`: SlicesOfCall.
std::string FusedTraceText(const FusedTrace& trace, absl::Span<const TraceSlice> slices);

}  // namespace octet

#endif  // OCTET_TOOLS_MEASURE_TRACE_FUSED_TRACE_H_
