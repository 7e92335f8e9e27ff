#include "tools/measure/trace/fused_trace.h"

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <limits>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "kernels/fused/fused_trace.h"
#include "runtime/platform/gemm_call.h"
#include "tools/measure/trace/trace_summary.h"
#include "tools/support/text_table.h"

namespace octet {
namespace {

struct Interval {
  double begin;
  double end;
};

// The times when at least one of some intervals is under way, in ascending order.
std::vector<Interval> Union(std::vector<Interval> intervals) {
  absl::c_sort(intervals, [](const Interval& a, const Interval& b) { return a.begin < b.begin; });
  std::vector<Interval> all;
  for (const Interval& each : intervals) {
    if (!all.empty() && each.begin <= all.back().end) {
      all.back().end = std::max(all.back().end, each.end);
    } else {
      all.push_back(each);
    }
  }
  return all;
}

double Length(absl::Span<const Interval> intervals) {
  double length = 0;
  for (const Interval& each : intervals) length += each.end - each.begin;
  return length;
}

// `a`, `b`: unions.
double Common(absl::Span<const Interval> a, absl::Span<const Interval> b) {
  double common = 0;
  for (size_t i = 0, j = 0; i < a.size() && j < b.size();) {
    common += std::max(0.0, std::min(a[i].end, b[j].end) - std::max(a[i].begin, b[j].begin));
    a[i].end < b[j].end ? ++i : ++j;
  }
  return common;
}

bool MovesRows(const TraceTag& tag) { return tag.phase.half != TraceHalf::kOther && !tag.waits; }

bool Multiplies(const TraceTag& tag) { return tag.phase.name == "gemm" && tag.name == "multiply"; }

bool Intersects(absl::Span<const Interval> of_union, const Interval& interval) {
  const auto next = absl::c_find_if(
      of_union, [&interval](const Interval& each) { return each.end > interval.begin; });
  return next != of_union.end() && next->begin < interval.end;
}

}  // namespace

std::vector<TraceSlice> SlicesOfCall(const FusedTrace& trace) {
  const bool combines = trace.options.operation == FusedCall::kGemmCombine;
  std::vector<TraceSlice> slices;
  absl::c_copy_if(trace.slices, std::back_inserter(slices), [&](const TraceSlice& slice) {
    return !combines || trace.tags[slice.tag].phase.call != TraceCall::kDispatch;
  });
  double first = std::numeric_limits<double>::infinity();
  for (const TraceSlice& slice : slices) first = std::min(first, slice.start_us);
  for (TraceSlice& slice : slices) slice.start_us -= first;
  return slices;
}

std::vector<FusedOverlap> OverlapOf(absl::Span<const TraceSlice> slices,
                                    absl::Span<const TraceTag> tags, int num_ranks) {
  std::vector<FusedOverlap> overlaps(static_cast<size_t>(num_ranks));
  for (int rank = 0; rank < num_ranks; ++rank) {
    std::vector<Interval> moves;
    std::vector<Interval> tiles;
    for (const TraceSlice& slice : slices) {
      if (slice.rank != rank || slice.tag >= tags.size()) continue;
      const Interval interval = {slice.start_us, slice.start_us + slice.duration_us};
      if (MovesRows(tags[slice.tag])) moves.push_back(interval);
      if (Multiplies(tags[slice.tag])) tiles.push_back(interval);
    }
    const std::vector<Interval> moving = Union(std::move(moves));
    FusedOverlap& overlap = overlaps[static_cast<size_t>(rank)];
    overlap.tiles = static_cast<int64_t>(tiles.size());
    overlap.tiles_beside = absl::c_count_if(
        tiles, [&moving](const Interval& tile) { return Intersects(moving, tile); });
    const std::vector<Interval> multiplying = Union(std::move(tiles));
    overlap.rows_us = Length(moving);
    overlap.multiply_us = Length(multiplying);
    overlap.both_us = Common(moving, multiplying);
  }
  return overlaps;
}

std::string FusedTraceText(const FusedTrace& trace, absl::Span<const TraceSlice> slices) {
  const int num_ranks = trace.options.run.workload.num_ranks;
  // What loads works beside what multiplies in the same block: its time would count twice.
  constexpr int kLoadTrack = fused::kFirstProductTrack + static_cast<int>(device::GemmTrack::kLoad);
  std::vector<TraceSlice> without_loads;
  absl::c_copy_if(slices, std::back_inserter(without_loads),
                  [](const TraceSlice& slice) { return slice.track != kLoadTrack; });
  std::string text = TraceSummaryText(SummarizeTrace(without_loads, trace.tags, num_ranks, 1));
  const TextTable table({{"rank", "", 6},
                         {"rows", "(us)", 10},
                         {"multiply", "(us)", 10},
                         {"both", "(us)", 10},
                         {"tiles", "", 8},
                         {"beside", "", 8}});
  absl::StrAppend(
      &text, "#\n",
      Comment("when at least one block of a rank moved rows, multiplied, and both at the same "
              "time; tiles, and those multiplied while rows were moved"),
      table.Head());
  const std::vector<FusedOverlap> overlaps = OverlapOf(slices, trace.tags, num_ranks);
  for (size_t rank = 0; rank < overlaps.size(); ++rank) {
    const FusedOverlap& overlap = overlaps[rank];
    text += table.Row({absl::StrCat(rank), absl::StrFormat("%.1f", overlap.rows_us),
                       absl::StrFormat("%.1f", overlap.multiply_us),
                       absl::StrFormat("%.1f", overlap.both_us), absl::StrCat(overlap.tiles),
                       absl::StrCat(overlap.tiles_beside)});
  }
  return text;
}

}  // namespace octet
