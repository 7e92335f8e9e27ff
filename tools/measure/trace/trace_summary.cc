#include "tools/measure/trace/trace_summary.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <map>
#include <set>
#include <tuple>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "runtime/device/trace_event.h"
#include "tools/support/statistics.h"
#include "tools/support/text_table.h"

namespace octet {
namespace {

using Block = std::pair<int, int>;  // rank, block

TracePhaseSummary SummarizePhase(const TracePhase& tag_phase, absl::Span<const TraceSlice> slices,
                                 absl::Span<const TraceTag> tags, int num_ranks, int steps) {
  TracePhaseSummary phase;
  phase.name = tag_phase.name;
  std::vector<std::vector<double>> durations(tags.size());
  std::map<Block, double> blocks;
  double waiting_us = 0;
  for (const TraceSlice& slice : slices) {
    if (slice.tag >= tags.size() || tags[slice.tag].phase != tag_phase) continue;
    durations[slice.tag].push_back(slice.duration_us);
    blocks[{slice.rank, slice.block}] += slice.duration_us / steps;
    phase.total_us += slice.duration_us;
    if (tags[slice.tag].waits) waiting_us += slice.duration_us;
  }
  for (size_t tag = 0; tag < tags.size(); ++tag) {
    if (durations[tag].empty()) continue;
    TraceTagSummary& line = phase.tags.emplace_back();
    line.name = tags[tag].name;
    line.waits = tags[tag].waits;
    line.events = static_cast<int64_t>(durations[tag].size());
    const Statistics statistics = Summarize(std::move(durations[tag]));
    line.total_us = statistics.mean * static_cast<double>(line.events);
    line.median_us = statistics.median;
    line.p99_us = statistics.p99;
  }
  phase.blocks = static_cast<int>(blocks.size());
  phase.waiting = phase.total_us > 0 ? waiting_us / phase.total_us : 0;
  std::vector<std::vector<double>> of_ranks(static_cast<size_t>(num_ranks));
  std::vector<double> of_blocks;
  for (const auto& [block, us] : blocks) {
    of_blocks.push_back(us);
    of_ranks[static_cast<size_t>(block.first)].push_back(us);
    if (us > phase.slowest_block_us) {
      phase.slowest_block_us = us;
      std::tie(phase.slowest_block_rank, phase.slowest_block) = block;
    }
  }
  phase.median_us = Summarize(std::move(of_blocks)).median;
  for (int rank = 0; rank < num_ranks; ++rank) {
    const double mean = Summarize(std::move(of_ranks[static_cast<size_t>(rank)])).mean;
    if (mean > phase.slowest_rank_us) {
      phase.slowest_rank_us = mean;
      phase.slowest_rank = rank;
    }
  }
  return phase;
}

bool WaitsForRows(const TraceTag& tag) {
  return tag.waits && tag.phase.half == TraceHalf::kReceive;
}

// The last ends of a tag's events, of one rank and of all.
struct Ends {
  double rank = 0;
  double all = 0;
};

std::vector<Ends> LastEnds(absl::Span<const TraceSlice> slices, size_t num_tags, int rank) {
  std::vector<Ends> ends(num_tags);
  for (const TraceSlice& slice : slices) {
    if (slice.tag >= num_tags) continue;
    Ends& of_tag = ends[slice.tag];
    const double end = slice.start_us + slice.duration_us;
    of_tag.all = std::max(of_tag.all, end);
    if (slice.rank == rank) of_tag.rank = std::max(of_tag.rank, end);
  }
  return ends;
}

// Returns the parts of one call, from its first event at `now`; sets `now` to the end of its last.
std::vector<BudgetPart> CallBudget(absl::Span<const Ends> ends, absl::Span<const TraceTag> tags,
                                   TraceCall call, double launch_us, double& now) {
  std::vector<BudgetPart> parts = {{"launch", launch_us}};
  const auto until = [&](absl::string_view name, double end) {
    end = std::max(now, end);
    parts.push_back({std::string(name), end - std::exchange(now, end)});
  };
  double sent = 0;
  double arrived = 0;
  for (size_t tag = 0; tag < tags.size(); ++tag) {
    if (tags[tag].phase.call != call) continue;
    if (WaitsForRows(tags[tag])) {
      arrived = std::max(arrived, ends[tag].rank);
    } else if (tags[tag].phase.half == TraceHalf::kSend) {
      sent = std::max(sent, ends[tag].all);
    }
  }
  bool waited = false;
  for (size_t tag = 0; tag < tags.size(); ++tag) {
    if (tags[tag].phase.call != call) continue;
    if (!WaitsForRows(tags[tag])) {
      until(tags[tag].name, ends[tag].rank);
    } else if (!std::exchange(waited, true)) {
      until("wait", std::min(sent, arrived));
      until("link", arrived);
    }
  }
  return parts;
}

// Returns tables with a row for each rank, a column for each peer, and one for waits for no
// particular rank; each table has as many columns as fit into a line.
std::string WaitsText(const TraceSummary& summary) {
  constexpr size_t kNameWidth = 5;
  constexpr size_t kWidth = 9;
  constexpr size_t kAtOnce = (kTextWidth - kNameWidth) / kWidth;
  const size_t columns = summary.waited_us.size() + 1;
  std::string text;
  for (size_t first = 0; first < columns; first += kAtOnce) {
    const size_t end = std::min(first + kAtOnce, columns);
    absl::StrAppend(&text, first > 0 ? "#\n" : "", "#    ");
    for (size_t peer = first; peer < end; ++peer) {
      absl::StrAppendFormat(&text, "%9s", peer + 1 < columns ? absl::StrCat(peer) : "-");
    }
    absl::StrAppend(&text, "\n");
    for (size_t rank = 0; rank + 1 < columns; ++rank) {
      absl::StrAppendFormat(&text, "%5d", rank);
      for (size_t peer = first; peer < end; ++peer) {
        absl::StrAppendFormat(&text, " %8.2f",
                              peer + 1 < columns ? summary.waited_us[rank][peer]
                                                 : summary.waited_for_nobody_us[rank]);
      }
      absl::StrAppend(&text, "\n");
    }
  }
  return text;
}

}  // namespace

TraceSummary SummarizeTrace(absl::Span<const TraceSlice> slices, absl::Span<const TraceTag> tags,
                            int num_ranks, int steps) {
  TraceSummary summary;
  std::vector<TracePhase> phases;
  for (const TraceTag& tag : tags) {
    if (!absl::c_linear_search(phases, tag.phase)) phases.push_back(tag.phase);
  }
  for (const TracePhase& each : phases) {
    TracePhaseSummary phase = SummarizePhase(each, slices, tags, num_ranks, steps);
    if (!phase.tags.empty()) summary.phases.push_back(std::move(phase));
  }
  const auto ranks = static_cast<size_t>(num_ranks);
  summary.waited_us.assign(ranks, std::vector<double>(ranks));
  summary.waited_for_nobody_us.resize(ranks);
  std::vector<std::set<int>> waiters(ranks);  // blocks
  for (const TraceSlice& slice : slices) {
    if (slice.tag >= tags.size() || !tags[slice.tag].waits) continue;
    const auto rank = static_cast<size_t>(slice.rank);
    waiters[rank].insert(slice.block);
    const bool known = tags[slice.tag].detail.is_peer && slice.detail < ranks;
    (known ? summary.waited_us[rank][slice.detail] : summary.waited_for_nobody_us[rank]) +=
        slice.duration_us;
  }
  for (size_t rank = 0; rank < ranks; ++rank) {
    const double shares = static_cast<double>(std::max<size_t>(waiters[rank].size(), 1)) * steps;
    for (double& us : summary.waited_us[rank]) us /= shares;
    summary.waited_for_nobody_us[rank] /= shares;
  }
  return summary;
}

KernelTimes TimeKernels(absl::Span<const TraceSlice> slices, absl::Span<const TraceTag> tags,
                        int num_ranks) {
  struct Span {
    double start = std::numeric_limits<double>::infinity();
    double end = -std::numeric_limits<double>::infinity();
  };
  const auto slowest = [&](TraceCall call) {
    std::vector<Span> spans(static_cast<size_t>(num_ranks));
    for (const TraceSlice& slice : slices) {
      if (slice.tag >= tags.size() || tags[slice.tag].phase.call != call) continue;
      Span& span = spans[static_cast<size_t>(slice.rank)];
      span.start = std::min(span.start, slice.start_us);
      span.end = std::max(span.end, slice.start_us + slice.duration_us);
    }
    double us = 0;
    for (const Span& span : spans) us = std::max(us, span.end - span.start);
    return us;
  };
  return {.dispatch_us = slowest(TraceCall::kDispatch), .combine_us = slowest(TraceCall::kCombine)};
}

LatencyBudget BudgetOf(absl::Span<const TraceSlice> slices, absl::Span<const TraceTag> tags,
                       int rank, double step_us) {
  double dispatch_start = std::numeric_limits<double>::infinity();
  double combine_start = std::numeric_limits<double>::infinity();
  double end = 0;
  for (const TraceSlice& slice : slices) {
    if (slice.tag >= tags.size() || slice.rank != rank) continue;
    const TraceCall call = tags[slice.tag].phase.call;
    if (call == TraceCall::kOther) continue;
    double& start = call == TraceCall::kCombine ? combine_start : dispatch_start;
    start = std::min(start, slice.start_us);
    end = std::max(end, slice.start_us + slice.duration_us);
  }
  if (std::isinf(dispatch_start) || std::isinf(combine_start)) return {};
  const std::vector<Ends> ends = LastEnds(slices, tags.size(), rank);
  LatencyBudget budget;
  double now = dispatch_start;
  const double launch_us = step_us - (end - dispatch_start);
  budget.dispatch = CallBudget(ends, tags, TraceCall::kDispatch, launch_us, now);
  const double gap_us = combine_start - std::exchange(now, combine_start);
  budget.combine = CallBudget(ends, tags, TraceCall::kCombine, gap_us, now);
  return budget;
}

LatencyBudget MedianBudget(absl::Span<const LatencyBudget> steps) {
  LatencyBudget median;
  for (const auto call : {&LatencyBudget::dispatch, &LatencyBudget::combine}) {
    std::vector<std::vector<double>> us;  // of each part
    for (const LatencyBudget& step : steps) {
      const std::vector<BudgetPart>& parts = step.*call;
      if (parts.empty()) continue;
      if (us.empty()) {
        median.*call = parts;
        us.resize(parts.size());
      }
      for (size_t i = 0; i < parts.size(); ++i) us[i].push_back(parts[i].us);
    }
    for (size_t i = 0; i < us.size(); ++i) {
      (median.*call)[i].us = Summarize(std::move(us[i])).median;
    }
  }
  return median;
}

std::string BudgetText(const LatencyBudget& budget) {
  constexpr size_t kIndent = 14;  // behind the name
  std::string text;
  for (const auto& [name, parts] :
       {std::pair("dispatch", &budget.dispatch), std::pair("combine", &budget.combine)}) {
    if (parts->empty()) continue;
    double all = 0;
    std::string line = absl::StrFormat("  %-9s", name);
    for (const BudgetPart& part : *parts) {
      all += part.us;
      absl::StrAppendFormat(&line, " %s %.1f |", part.name, part.us);
    }
    absl::StrAppend(&text, Comment(absl::StrFormat("%s together %.1f", line, all), kIndent));
  }
  return text;
}

std::string TraceSummaryText(const TraceSummary& summary) {
  constexpr double kPercent = 100;
  // Names come first and are aligned to the left.
  const auto line = [](absl::string_view name, const std::array<std::string, 7>& cells) {
    std::string text = absl::StrFormat("%-22s %6s %10s %8s %8s %8s  %-12s %s", name, cells[0],
                                       cells[1], cells[2], cells[3], cells[4], cells[5], cells[6]);
    return absl::StrCat(absl::StripTrailingAsciiWhitespace(text), "\n");
  };
  const auto us = [](double value) { return absl::StrFormat("%.*f", value < 1e4 ? 2 : 1, value); };
  std::string text = absl::StrCat(
      line("# phase, tag",
           {"events", "total", "median", "p99", "waiting", "slowest rank", "slowest block"}),
      line("#", {"", "(us)", "(us)", "(us)", "(%)", "(us a block)", "(us)"}));
  for (const TracePhaseSummary& phase : summary.phases) {
    absl::StrAppend(
        &text,
        line(phase.name, {"", absl::StrFormat("%.1f", phase.total_us), us(phase.median_us), "",
                          absl::StrFormat("%.1f", phase.waiting * kPercent),
                          absl::StrFormat("%d (%.1f)", phase.slowest_rank, phase.slowest_rank_us),
                          absl::StrFormat("%d/%d (%.1f)", phase.slowest_block_rank,
                                          phase.slowest_block, phase.slowest_block_us)}));
    for (const TraceTagSummary& tag : phase.tags) {
      const double waiting =
          phase.total_us > 0 && tag.waits ? tag.total_us / phase.total_us * kPercent : 0.0;
      absl::StrAppend(&text,
                      line(absl::StrCat("  ", tag.name),
                           {absl::StrCat(tag.events), absl::StrFormat("%.1f", tag.total_us),
                            us(tag.median_us), us(tag.p99_us), absl::StrFormat("%.1f", waiting)}));
    }
  }
  absl::StrAppend(&text, Comment("slowest block: rank/block"), "#\n",
                  Comment("how long each rank (row) waited for each rank (column) in a step: us, "
                          "mean of the rank's blocks; -: for no particular rank"),
                  WaitsText(summary));
  return text;
}

}  // namespace octet
