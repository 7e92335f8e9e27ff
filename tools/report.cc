#include "tools/report.h"

#include <cmath>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/time/time.h"
#include "kernels/dtype.h"
#include "runtime/schedule.h"

namespace octet {
namespace {

constexpr double kBytesPerMegabyte = 1e6;

std::string ScheduleLine() {
  const std::string schedule = CurrentSchedule();
  return schedule.empty() ? "" : absl::StrCat("# schedule ", schedule, "; times are virtual\n");
}

std::string ChosenStrategy(const RunOptions& options, const EpConfig& config) {
  return absl::StrCat(StrategyName(config.strategy),
                      options.config.strategy == Strategy::kAuto ? " (auto)" : "");
}

std::string Bitwise(const RunResult& result, const Verification& verification) {
  if (!result.options.check) return "-";
  return verification.bitwise ? "yes" : "NO";
}

std::string MaxError(const RunResult& result, const Verification& verification) {
  return result.options.check ? absl::StrFormat("%.3g", verification.max_error) : "-";
}

// Numbers of tokens and rows are means; they are whole wherever steps do not differ.
std::string Count(double count) {
  return count == std::floor(count) ? absl::StrFormat("%.0f", count)
                                    : absl::StrFormat("%.1f", count);
}

struct Column {
  std::string name;
  std::string unit;
  int width;
};

const std::vector<Column>& Columns() {
  static const auto* const kColumns = new std::vector<Column>{
      {"", "rank", 5},         {"", "tokens", 7},        {"rows", "sent", 8},
      {"rows", "received", 9}, {"dispatch", "send", 10}, {"dispatch", "receive", 10},
      {"", "expert", 9},       {"combine", "send", 10},  {"combine", "receive", 10},
      {"all", "median", 10},   {"all", "min", 10},       {"all", "p99", 10},
      {"logical", "GB/s", 8},  {"wire", "GB/s", 8},      {"max", "error", 10},
      {"", "bitwise", 8}};
  return *kColumns;
}

// A blank parts what is wider than its column from its neighbour.
std::string Row(const std::vector<std::string>& cells) {
  std::string row;
  for (size_t i = 0; i < cells.size(); ++i) {
    absl::StrAppendFormat(&row, " %*s", Columns()[i].width - 1, cells[i]);
  }
  return row + "\n";
}

std::vector<std::string> Cells(const RunResult& result, const std::string& name,
                               const SummaryLine& line) {
  std::vector<std::string> cells = {name, Count(line.num_tokens), Count(line.rows_sent),
                                    Count(line.rows_received)};
  for (const double us : line.phase_us) cells.push_back(absl::StrFormat("%.1f", us));
  for (const double us : {line.all_us.median, line.all_us.min, line.all_us.p99}) {
    cells.push_back(absl::StrFormat("%.1f", us));
  }
  for (const double gbps : {line.logical_gbps, line.wire_gbps}) {
    cells.push_back(Bandwidth(gbps));
  }
  cells.push_back(MaxError(result, line.verification));
  cells.push_back(Bitwise(result, line.verification));
  return cells;
}

}  // namespace

std::string GpuName(const Topology& topology) {
  return topology.gpus.empty() ? "no GPU" : topology.gpus.front().name;
}

std::string Bandwidth(double gbps) {
  return gbps < 10 ? absl::StrFormat("%.3f", gbps) : absl::StrFormat("%.1f", gbps);
}

std::string RunHead(absl::string_view command, const Topology& topology, const RunOptions& options,
                    const EpConfig& config) {
  const WorkloadSpec& spec = options.workload;
  const Tuning& tuning = config.tuning;
  std::string head = absl::StrFormat(
      "# octet %s: %d ranks on %s (%s), strategy %s, slots %s, flags %s, combine %s\n", command,
      spec.num_ranks, GpuName(topology), topology.platform, ChosenStrategy(options, config),
      SlotsName(config.slots), FlagsName(config.flags), CombineOrderName(config.combine_order));
  absl::StrAppendFormat(
      &head, "# experts %d, topk %d, hidden %d, max_tokens %d, %s; routing %s, drop %g, seed %d\n",
      spec.num_experts, spec.topk, spec.hidden, spec.max_tokens, DTypeName(spec.dtype),
      spec.routing.text, spec.drop, spec.seed);
  // Blocks have their roles, or the waves of each block.
  const std::string senders =
      tuning.send_blocks > 0
          ? absl::StrFormat(", %d of them send, %d waves each", tuning.send_blocks,
                            tuning.waves_per_block)
          : absl::StrFormat(", %d waves each (%d send, %d in combine)", tuning.waves_per_block,
                            tuning.send_waves, tuning.combine_send_waves);
  absl::StrAppendFormat(
      &head,
      "# expert %s (%s); %d blocks%s, rows in %d parts; %d steps after %d of warm-up, from a "
      "barrier of the %s\n",
      ExpertKindName(options.expert), options.fuse_expert ? "fused into combine" : "its own kernel",
      tuning.blocks, senders, tuning.row_parts, options.iters, options.warmup,
      options.align == Align::kHost ? "threads" : "GPUs");
  return absl::StrCat(head, FormatsLine(options, config), ScheduleLine());
}

std::string FormatsLine(const RunOptions& options, const EpConfig& config) {
  std::vector<std::string> parts;
  if (config.dispatch_format != DispatchFormat::kSame) {
    parts.push_back(absl::StrCat("format ", DispatchFormatName(config.dispatch_format), " (scales ",
                                 ScalesName(config.scale_format), " of ", config.scale_group,
                                 " columns)"));
  }
  if (config.output != Output::kPackedExperts) {
    parts.push_back(absl::StrCat("received ", OutputName(config.output)));
  }
  if (config.duplicates != Duplicates::kFill) {
    parts.push_back(absl::StrCat("duplicates ", DuplicatesName(config.duplicates)));
  }
  if (config.expert_alignment != 1) {
    parts.push_back(absl::StrCat("expert_alignment ", config.expert_alignment));
  }
  if (config.combine_method == CombineMethod::kPull) parts.emplace_back("combine pull");
  if (config.tuning.row_copies == RowCopies::kBulk) parts.emplace_back("row_copies bulk");
  if (config.host_totals) parts.emplace_back("host_totals");
  if (options.cached) parts.emplace_back("cached");
  if (config.failure_policy == FailurePolicy::kMask) parts.emplace_back("failure_policy mask");
  if (config.statistics) parts.emplace_back("statistics");
  return parts.empty() ? "" : absl::StrCat("# ", absl::StrJoin(parts, ", "), "\n");
}

std::string FirstDifference(const RunResult& result) {
  return Summarize(result).total.verification.first;
}

std::string RunTable(const Topology& topology, const RunResult& result) {
  const RunSummary summary = Summarize(result);
  std::string table = RunHead("run", topology, result.options, result.config) + "#\n";
  std::vector<std::string> names;
  std::vector<std::string> units;
  for (const Column& column : Columns()) {
    names.push_back(column.name);
    units.push_back(column.unit);
  }
  for (const std::vector<std::string>& heading : {names, units}) {
    std::string row = Row(heading);
    row[0] = '#';
    table += row;
  }
  for (size_t r = 0; r < summary.ranks.size(); ++r) {
    table += Row(Cells(result, absl::StrCat(r), summary.ranks[r]));
  }
  table += Row(Cells(result, "all", summary.total));
  absl::StrAppendFormat(&table,
                        "#\n# host, from the barrier to the last rank's completion: median %.1f, "
                        "min %.1f, p99 %.1f us\n",
                        summary.wall_us.median, summary.wall_us.min, summary.wall_us.p99);
  absl::StrAppendFormat(&table, "# symmetric heap on each GPU: %.1f MB\n",
                        static_cast<double>(result.heap_bytes) / kBytesPerMegabyte);
  table +=
      "# Times are us of device events: all: dispatch, expert and combine, of the timed steps; of "
      "'all' ranks: the slowest of each step.\n"
      "# The phases come from as many other steps, with a launch for each phase: their sum is not "
      "'all'.\n"
      "# logical: payload of the rows that a rank receives, each token once, and of the same rows "
      "on their way back; wire: what crosses links, metadata and flags included; of 'all' ranks: "
      "the busiest.\n";
  if (result.options.check) {
    absl::StrAppend(
        &table, "# ", summary.total.verification.bitwise ? "All" : "NOT all", " of ",
        result.warmup.size() + result.steps.size() + result.by_phases.size() + result.traced.size(),
        " steps equal the reference to the bit; ",
        summary.total.verification.within_tolerance ? "all" : "NOT all",
        " are within 5e-3 + 1e-2 |ref|.\n");
  } else {
    table += "# Nothing was verified (--check=false).\n";
  }
  return table;
}

std::string CeilingsText(const Ceilings& ceilings) {
  if (ceilings.all_to_all_gbps == 0) {
    return absl::StrFormat(
        "# ceilings of this run: a single rank has no links; barrier of the GPU %.2f us, of the "
        "host threads %.2f us; empty launch %.1f us\n",
        ceilings.node_barrier_us, ceilings.host_barrier_us, ceilings.empty_launch_us);
  }
  std::string text = absl::StrFormat(
      "# ceilings of this run: all-to-all stores %s GB/s per GPU; loads %s, bulk copies %s, copy "
      "engines %s; one pair, stores %s\n",
      Bandwidth(ceilings.all_to_all_gbps), Bandwidth(ceilings.loads_gbps),
      Bandwidth(ceilings.bulk_gbps), Bandwidth(ceilings.copy_engine_gbps),
      Bandwidth(ceilings.pair_gbps));
  absl::StrAppendFormat(
      &text,
      "# flag round trip %.2f us; barrier of the GPUs %.2f us, of the host threads %.2f us; empty "
      "launch %.1f us; launch skew %.1f us (clocks to within %.1f us)\n",
      ceilings.flag_round_trip_us, ceilings.node_barrier_us, ceilings.host_barrier_us,
      ceilings.empty_launch_us, ceilings.launch_skew_us, ceilings.clock_round_trip_us / 2);
  return text;
}

std::string WorkloadTable(const Topology& topology, absl::Span<const RunResult> results) {
  std::string table;
  std::set<std::string> strategies;
  for (const RunResult& result : results) {
    strategies.insert(ChosenStrategy(result.options, result.config));
  }
  absl::StrAppendFormat(&table, "# octet run: %d ranks on %s (%s), strategy %s, %s\n",
                        results.front().options.workload.num_ranks, GpuName(topology),
                        topology.platform, absl::StrJoin(strategies, ", "),
                        DTypeName(results.front().config.dtype));
  table += ScheduleLine();
  absl::StrAppendFormat(&table, "#%19s%8s%7s%8s%10s%10s%10s%10s%8s%8s%10s%8s\n", "E/K/H/M", "seed",
                        "kind", "tokens", "median", "min", "p99", "host", "logical", "wire", "max",
                        "bitwise");
  absl::StrAppendFormat(&table, "#%19s%8s%7s%8s%10s%10s%10s%10s%8s%8s%10s\n", "", "", "", "", "us",
                        "us", "us", "us", "GB/s", "GB/s", "error");
  double log_sum = 0;
  int benchmarks = 0;
  for (const RunResult& result : results) {
    const RunSummary summary = Summarize(result);
    const SummaryLine& total = summary.total;
    absl::StrAppendFormat(
        &table, "%20s%8d%7s%8s%10.1f%10.1f%10.1f%10.1f%8s%8s%10s%8s\n", result.options.name,
        result.options.workload.seed, result.options.benchmark ? "bench" : "test",
        Count(total.num_tokens), total.all_us.median, total.all_us.min, total.all_us.p99,
        summary.wall_us.median, Bandwidth(total.logical_gbps), Bandwidth(total.wire_gbps),
        MaxError(result, total.verification), Bitwise(result, total.verification));
    if (!result.options.benchmark || total.all_us.median <= 0) continue;
    log_sum += std::log(total.all_us.median);
    ++benchmarks;
  }
  if (benchmarks > 0) {
    absl::StrAppendFormat(&table, "# geometric mean of the benchmarks' medians: %.1f us\n",
                          std::exp(log_sum / benchmarks));
  }
  return table;
}

std::string SoakTable(const Topology& topology, const SoakResult& result) {
  const SoakOptions& options = result.options;
  std::string table = absl::StrFormat(
      "# octet run --soak=%d: random shapes on %d ranks or fewer of %s (%s), seed %d\n#\n",
      absl::ToInt64Seconds(options.duration), options.num_ranks, GpuName(topology),
      topology.platform, options.seed);
  absl::StrAppendFormat(&table, "#%15s%8s%7s%9s%12s%12s%14s%14s\n", "strategy", "slots", "flags",
                        "shapes", "fused steps", "by phases", "rows", "wire MB");
  const auto add = [&table](absl::string_view strategy, absl::string_view slots,
                            absl::string_view flags, const SoakTally& tally) {
    absl::StrAppendFormat(&table, "%16s%8s%7s%9d%12d%12d%14d%14.1f\n", strategy, slots, flags,
                          tally.shapes, tally.fused_steps, tally.phased_steps, tally.rows,
                          static_cast<double>(tally.wire_bytes) / kBytesPerMegabyte);
  };
  for (size_t i = 0; i < result.tallies.size(); ++i) {
    const StrategyVariant& variant = StrategyVariants()[i];
    add(StrategyName(variant.strategy), SlotsName(variant.slots), FlagsName(variant.flags),
        result.tallies[i]);
  }
  add("all", "", "", result.total);
  absl::StrAppend(&table, "#\n# MB in use         host (resident)        GPUs\n");
  for (const auto& [when, memory] : {std::pair("after the first shape", result.start),
                                     {"after half of the time", result.half},
                                     {"at the end", result.end}}) {
    if (memory.host == 0) continue;  // it failed before
    absl::StrAppendFormat(&table, "# %-22s%12.1f%12.1f\n", when,
                          static_cast<double>(memory.host) / kBytesPerMegabyte,
                          static_cast<double>(memory.gpus) / kBytesPerMegabyte);
  }
  absl::StrAppendFormat(
      &table, "# %d shapes, %d nodes, %.1f s: %d steps equal the reference to the bit; %s\n",
      result.total.shapes, result.nodes, absl::ToDoubleSeconds(result.elapsed),
      result.total.fused_steps + result.total.phased_steps,
      result.status.ok() ? "0 errors" : "then 1 ERROR");
  return table;
}

}  // namespace octet
