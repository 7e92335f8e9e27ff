#include "tools/report/report.h"

#include <cmath>
#include <cstddef>
#include <optional>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/time/time.h"
#include "kernels/nodes/options.h"
#include "octet/dtype.h"
#include "runtime/node/schedule.h"
#include "tools/support/text_table.h"

namespace octet {
namespace {

constexpr double kBytesPerMegabyte = 1e6;

std::string ScheduleLine() {
  const std::string schedule = CurrentSchedule();
  return schedule.empty() ? "" : absl::StrCat("# schedule ", schedule, "; times are virtual\n");
}

std::string ChosenStrategy(const RunSpec& options, const EpConfig& config) {
  return absl::StrCat(EnumName(config.strategy),
                      options.workload.config.strategy == Strategy::kAuto ? " (auto)" : "");
}

std::string Bitwise(const RunResult& result, const Verification& verification) {
  if (!result.options.check) return "-";
  return verification.bitwise ? "yes" : "NO";
}

std::string MaxError(const RunResult& result, const Verification& verification) {
  return result.options.check ? absl::StrFormat("%.3g", verification.max_error) : "-";
}

// Formats a mean number of tokens or rows, which is whole if steps do not differ.
std::string Count(double count) {
  return count == std::floor(count) ? absl::StrFormat("%.0f", count)
                                    : absl::StrFormat("%.1f", count);
}

// Columns of a step in one piece, by rank.
const TextTable& StepTable() {
  static const auto* const kTable = new TextTable({{"rank", "", 6},
                                                   {"tokens", "", 7},
                                                   {"sent", "(rows)", 9},
                                                   {"received", "(rows)", 10},
                                                   {"median", "(us)", 11},
                                                   {"min", "(us)", 11},
                                                   {"p99", "(us)", 11},
                                                   {"logical", "(GB/s)", 9},
                                                   {"wire", "(GB/s)", 9},
                                                   {"max", "error", 9},
                                                   {"bitwise", "", 8}});
  return *kTable;
}

// The same with several nodes, where rows also cross between them.
const TextTable& NodesStepTable() {
  static const auto* const kTable = new TextTable({{"rank", "", 6},
                                                   {"node", "", 5},
                                                   {"tokens", "", 7},
                                                   {"crossed", "(rows)", 8},
                                                   {"received", "(rows)", 9},
                                                   {"median", "(us)", 10},
                                                   {"p99", "(us)", 10},
                                                   {"logical", "(GB/s)", 9},
                                                   {"link", "(GB/s)", 9},
                                                   {"rail", "(GB/s)", 9},
                                                   {"max", "error", 9},
                                                   {"bitwise", "", 8}});
  return *kTable;
}

// Columns of steps by calls, with several nodes.
const TextTable& CallTable() {
  static const auto* const kTable =
      new TextTable({{"rank", "", 6}, {"node", "", 5}, {"dispatch", "", 12}, {"combine", "", 12}});
  return *kTable;
}

// Columns of steps by phases.
const TextTable& PhaseTable() {
  static const auto* const kTable = new TextTable({{"rank", "", 6},
                                                   {"dispatch", "send", 12},
                                                   {"dispatch", "receive", 12},
                                                   {"expert", "", 12},
                                                   {"combine", "send", 12},
                                                   {"combine", "receive", 12}});
  return *kTable;
}

const TextTable& ShapeTable() {
  static const auto* const kTable = new TextTable({{"E/K/H/M", "", 15},
                                                   {"seed", "", 5},
                                                   {"kind", "", 6},
                                                   {"tokens", "", 7},
                                                   {"median", "(us)", 9},
                                                   {"min", "(us)", 9},
                                                   {"p99", "(us)", 9},
                                                   {"host", "(us)", 9},
                                                   {"logical", "(GB/s)", 8},
                                                   {"wire", "(GB/s)", 7},
                                                   {"error", "(max)", 8},
                                                   {"bitwise", "", 8}});
  return *kTable;
}

std::string Us(double us) { return absl::StrFormat("%.1f", us); }

// Returns the node of a rank; "-" for all ranks.
std::string NodeCell(const RunResult& result, std::optional<size_t> rank) {
  if (!rank.has_value()) return "-";
  return absl::StrCat(*rank / static_cast<size_t>(result.options.nodes.ranks_per_node));
}

std::string RankCell(std::optional<size_t> rank) {
  return rank.has_value() ? absl::StrCat(*rank) : "all";
}

// `rank`: none for all ranks.
std::string StepLine(const RunResult& result, std::optional<size_t> rank, const SummaryLine& line) {
  const std::string name = RankCell(rank);
  if (result.options.nodes.num_nodes > 1) {
    return NodesStepTable().Row(
        {name, NodeCell(result, rank), Count(line.num_tokens), Count(line.rail_rows),
         Count(line.rows_received), Us(line.all_us.median), Us(line.all_us.p99),
         Bandwidth(line.logical_gbps), Bandwidth(line.wire_gbps), Bandwidth(line.rail_gbps),
         MaxError(result, line.verification), Bitwise(result, line.verification)});
  }
  return StepTable().Row({name, Count(line.num_tokens), Count(line.rows_sent),
                          Count(line.rows_received), Us(line.all_us.median), Us(line.all_us.min),
                          Us(line.all_us.p99), Bandwidth(line.logical_gbps),
                          Bandwidth(line.wire_gbps), MaxError(result, line.verification),
                          Bitwise(result, line.verification)});
}

std::string PhaseLine(const RunResult& result, std::optional<size_t> rank,
                      const SummaryLine& line) {
  if (result.options.nodes.num_nodes > 1) {
    return CallTable().Row(
        {RankCell(rank), NodeCell(result, rank), Us(line.call_us[0]), Us(line.call_us[1])});
  }
  std::vector<std::string> cells = {RankCell(rank)};
  for (const double us : line.phase_us) cells.push_back(Us(us));
  return PhaseTable().Row(cells);
}

}  // namespace

std::string GpuName(const Topology& topology) {
  return topology.gpus.empty() ? "no GPU" : topology.gpus.front().name;
}

std::string Bandwidth(double gbps) {
  return gbps < 10 ? absl::StrFormat("%.3f", gbps) : absl::StrFormat("%.1f", gbps);
}

std::string RanksText(const RunSpec& options) {
  const NodesOfRanks& nodes = options.nodes;
  return nodes.num_nodes > 1
             ? absl::StrFormat("%d nodes of %d ranks", nodes.num_nodes, nodes.ranks_per_node)
             : absl::StrFormat("%d ranks", options.workload.num_ranks);
}

std::string NodesLine(const RunSpec& options, const EpConfig& config) {
  if (options.nodes.num_nodes == 1) return "";
  const bool blocks = ChosenRows(options.rail_rows, config.strategy) == RailRows::kBlocks;
  const std::string chunks =
      options.rail_chunk > 0 ? absl::StrFormat(", in chunks of %d", options.rail_chunk) : "";
  return Comment(absl::StrFormat("rows cross between nodes as %s%s; within a node combine %s",
                                 blocks ? "blocks of max_tokens" : "many as there are", chunks,
                                 EnumName(options.nodes.intranode_order)));
}

std::string EmulationNote(const Topology& topology) {
  return topology.emulated()
             ? Comment("emulated GPUs: times say nothing about the speed of real ones")
             : "";
}

std::string RunHead(absl::string_view command, const Topology& topology, const RunSpec& options,
                    const EpConfig& config) {
  const WorkloadSpec& spec = options.workload;
  const Tuning& tuning = config.tuning;
  // Roles belong to blocks, or to the waves of each block.
  const std::string senders =
      tuning.send_blocks > 0
          ? absl::StrFormat(", %d of them send, %d waves each", tuning.send_blocks,
                            tuning.waves_per_block)
          : absl::StrFormat(", %d waves each (%d send, %d in combine)", tuning.waves_per_block,
                            tuning.send_waves, tuning.combine_send_waves);
  return absl::StrCat(
      Comment(absl::StrFormat("octet %s: %s on %s (%s)", command, RanksText(options),
                              GpuName(topology), topology.platform)),
      EmulationNote(topology), NodesLine(options, config),
      Comment(absl::StrFormat("strategy %s, slots %s, flags %s, combine %s",
                              ChosenStrategy(options, config), EnumName(config.variant.slots),
                              EnumName(config.variant.flags), EnumName(config.combine_order))),
      Comment(absl::StrFormat(
          "experts %d, topk %d, hidden %d, max_tokens %d, %s; routing %s, drop %g, seed %d",
          spec.config.num_experts, spec.config.topk, spec.config.hidden,
          spec.config.max_tokens_per_rank, EnumName(spec.config.dtype), spec.routing.text,
          spec.drop, spec.seed)),
      Comment(absl::StrFormat("expert %s (%s); %d blocks%s, rows in %d parts",
                              EnumName(options.expert),
                              options.fuse_expert ? "fused into combine" : "its own kernel",
                              tuning.blocks, senders, tuning.row_parts)),
      Comment(absl::StrFormat("%d steps after %d of warm-up, from a barrier of the %s",
                              options.iters, options.warmup,
                              options.align == Align::kHost ? "threads" : "GPUs")),
      FormatsLine(options, config), ScheduleLine());
}

std::string FormatsLine(const RunSpec& options, const EpConfig& config) {
  std::vector<std::string> parts;
  if (!config.placement.empty()) {
    parts.push_back(absl::StrCat("placement ", options.placement, ", ",
                                 config.placement.slots_per_rank(), " slots"));
  }
  if (config.dispatch_format != DispatchFormat::kSame) {
    parts.push_back(absl::StrCat("format ", EnumName(config.dispatch_format), " (scales ",
                                 EnumName(config.scale_format), " of ", config.scale_group,
                                 " columns)"));
  }
  if (config.output != Output::kPackedExperts) {
    parts.push_back(absl::StrCat("received ", EnumName(config.output)));
  }
  if (config.high_throughput.duplicates != Duplicates::kFill) {
    parts.push_back(absl::StrCat("duplicates ", EnumName(config.high_throughput.duplicates)));
  }
  if (config.high_throughput.expert_alignment != 1) {
    parts.push_back(absl::StrCat("expert_alignment ", config.high_throughput.expert_alignment));
  }
  if (config.combine_method == CombineMethod::kPull) parts.emplace_back("combine pull");
  if (config.tuning.row_copies == RowCopies::kBulk) parts.emplace_back("row_copies bulk");
  if (config.high_throughput.host_totals) parts.emplace_back("host_totals");
  if (config.capacity_rows > 0) {
    parts.push_back(absl::StrCat("capacity_rows ", config.capacity_rows));
  }
  if (options.cached) parts.emplace_back("cached");
  if (config.low_latency.failure_policy == FailurePolicy::kMask) {
    parts.emplace_back("failure_policy mask");
  }
  if (config.low_latency.statistics) parts.emplace_back("statistics");
  return parts.empty() ? "" : Comment(absl::StrJoin(parts, ", "));
}

std::string RunTable(const Topology& topology, const RunResult& result) {
  const RunSummary summary = Summarize(result);
  const bool several = result.options.nodes.num_nodes > 1;
  std::string steps = several ? NodesStepTable().Head() : StepTable().Head();
  std::string phases = several ? CallTable().Head() : PhaseTable().Head();
  for (size_t r = 0; r < summary.ranks.size(); ++r) {
    absl::StrAppend(&steps, StepLine(result, r, summary.ranks[r]));
    absl::StrAppend(&phases, PhaseLine(result, r, summary.ranks[r]));
  }
  absl::StrAppend(&steps, StepLine(result, std::nullopt, summary.total));
  absl::StrAppend(&phases, PhaseLine(result, std::nullopt, summary.total));
  const Verification& verified = summary.total.verification;
  return absl::StrCat(
      RunHead("run", topology, result.options, result.config), "#\n",
      Comment("dispatch, expert and combine in one piece; device events, all: of the slowest rank"),
      steps, "#\n",
      Comment(absl::StrCat(
          several ? "by calls, each from a barrier of its own" : "by phases, a launch each",
          ": us, medians of as many other steps")),
      phases, "#\n",
      Comment(absl::StrFormat("host, from the barrier to the last completion: median %.1f, "
                              "min %.1f, p99 %.1f us",
                              summary.wall_us.median, summary.wall_us.min, summary.wall_us.p99)),
      Comment(absl::StrFormat("symmetric heap on each GPU: %.1f MB",
                              static_cast<double>(result.heap_bytes) / kBytesPerMegabyte)),
      Comment(absl::StrCat(
          several ? "crossed: rows that other nodes need of a rank, each once for each node; " : "",
          "logical: payload of the rows that a rank receives, each token once, and of the same "
          "rows on their way back; ",
          several ? "link: what crosses links within the node; rail: what a rank sends to other "
                    "nodes and gets back"
                  : "wire: what crosses links",
          ", metadata and flags included; all: of the busiest rank")),
      Comment(!result.options.check
                  ? "Nothing was verified (--check=false)."
                  : absl::StrCat(verified.bitwise ? "All" : "NOT all", " of ",
                                 result.warmup.size() + result.steps.size() +
                                     result.by_phases.size() + result.traced.size(),
                                 " steps equal the reference to the bit; ",
                                 verified.within_tolerance ? "all" : "NOT all",
                                 " are within 5e-3 + 1e-2 |ref|.")));
}

std::string CeilingsText(const Ceilings& ceilings) {
  if (ceilings.all_to_all_gbps == 0) {
    return Comment(absl::StrFormat(
        "ceilings of this run: a single rank has no links; barrier of the GPU %.2f us, of the host "
        "threads %.2f us; empty launch %.1f us",
        ceilings.node_barrier_us, ceilings.host_barrier_us, ceilings.empty_launch_us));
  }
  return absl::StrCat(
      Comment(absl::StrFormat(
          "ceilings of this run: all-to-all stores %s GB/s per GPU; loads %s, bulk copies %s, copy "
          "engines %s; one pair, stores %s",
          Bandwidth(ceilings.all_to_all_gbps), Bandwidth(ceilings.loads_gbps),
          Bandwidth(ceilings.bulk_gbps), Bandwidth(ceilings.copy_engine_gbps),
          Bandwidth(ceilings.pair_gbps))),
      Comment(absl::StrFormat(
          "flag round trip %.2f us; barrier of the GPUs %.2f us, of the host threads %.2f us; "
          "empty launch %.1f us; launch skew %.1f us (clocks to within %.1f us)",
          ceilings.flag_round_trip_us, ceilings.node_barrier_us, ceilings.host_barrier_us,
          ceilings.empty_launch_us, ceilings.launch_skew_us, ceilings.clock_round_trip_us / 2)));
}

std::string WorkloadTable(const Topology& topology, absl::Span<const RunResult> results) {
  std::string table;
  std::set<std::string> strategies;
  for (const RunResult& result : results) {
    strategies.insert(ChosenStrategy(result.options, result.config));
  }
  const RunResult& first = results.front();
  absl::StrAppend(
      &table,
      Comment(absl::StrFormat("octet run: %s on %s (%s)", RanksText(first.options),
                              GpuName(topology), topology.platform)),
      EmulationNote(topology),
      Comment(absl::StrFormat("strategy %s, %s; %d steps of each shape after %d of warm-up",
                              absl::StrJoin(strategies, ", "), EnumName(first.config.dtype),
                              first.options.iters, first.options.warmup)),
      ScheduleLine(), "#\n", ShapeTable().Head());
  double log_sum = 0;
  int benchmarks = 0;
  for (const RunResult& result : results) {
    const RunSummary summary = Summarize(result);
    const SummaryLine& total = summary.total;
    absl::StrAppend(
        &table,
        ShapeTable().Row({result.options.name, absl::StrCat(result.options.workload.seed),
                          result.options.benchmark ? "bench" : "test", Count(total.num_tokens),
                          Us(total.all_us.median), Us(total.all_us.min), Us(total.all_us.p99),
                          Us(summary.wall_us.median), Bandwidth(total.logical_gbps),
                          Bandwidth(total.wire_gbps), MaxError(result, total.verification),
                          Bitwise(result, total.verification)}));
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
  const SoakSpec& options = result.options;
  std::string table = absl::StrCat(
      Comment(absl::StrFormat("octet run --soak=%d: random shapes on %d ranks or fewer of %s (%s), "
                              "seed %d",
                              absl::ToInt64Seconds(options.duration), options.num_ranks,
                              GpuName(topology), topology.platform, options.seed)),
      EmulationNote(topology), "#\n");
  absl::StrAppendFormat(&table, "#%15s%8s%7s%9s%12s%12s%14s%14s\n", "strategy", "slots", "flags",
                        "shapes", "fused steps", "by phases", "rows", "wire MB");
  const auto add = [&table](absl::string_view strategy, absl::string_view slots,
                            absl::string_view flags, const SoakTally& tally) {
    absl::StrAppendFormat(&table, "%16s%8s%7s%9d%12d%12d%14d%14.1f\n", strategy, slots, flags,
                          tally.shapes, tally.fused_steps, tally.phased_steps, tally.rows,
                          static_cast<double>(tally.wire_bytes) / kBytesPerMegabyte);
  };
  for (size_t i = 0; i < result.tallies.size(); ++i) {
    const SoakVariant& variant = SoakVariants()[i];
    add(EnumName(variant.strategy), EnumName(variant.options.slots),
        EnumName(variant.options.flags), result.tallies[i]);
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
