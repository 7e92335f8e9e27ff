#include "tools/report/perf_report.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "octet/dtype.h"
#include "tools/report/json_parts.h"
#include "tools/report/report.h"
#include "tools/support/statistics.h"
#include "tools/support/text_table.h"

namespace octet {
namespace {

constexpr int kPerfSchema = 1;
constexpr double kPercent = 100;

// A line for each kind, complete by itself for grep and awk.
const TextTable& PerfTable() {
  static const auto* const kTable = new TextTable({{"tokens", "(/rank)", 9},
                                                   {"strategy", "", 17},
                                                   {"blocks", "", 7},
                                                   {"what", "", 9},
                                                   {"time", "(us)", 10},
                                                   {"p99", "(us)", 11},
                                                   {"cv", "(%)", 6},
                                                   {"logical", "(GB/s)", 9},
                                                   {"wire", "(GB/s)", 9},
                                                   {"ceil", "(%)", 6},
                                                   {"#wrong", "(rows)", 7}});
  return *kTable;
}

// The same with several nodes: bytes and rates of rails between nodes and of links within them.
const TextTable& NodesPerfTable() {
  static const auto* const kTable = new TextTable({{"tokens", "(/rank)", 8},
                                                   {"strategy", "", 18},
                                                   {"what", "", 9},
                                                   {"time", "(us)", 10},
                                                   {"rail", "(MB)", 9},
                                                   {"link", "(MB)", 9},
                                                   {"rail", "(GB/s)", 8},
                                                   {"link", "(GB/s)", 8},
                                                   {"logical", "(GB/s)", 8},
                                                   {"ceil", "(%)", 6},
                                                   {"#wrong", "(rows)", 7}});
  return *kTable;
}

// What the lines of PerfRow::rails are.
constexpr std::array<const char*, 2> kRailNames = {"cross", "return"};

// Returns the name, with a star if Strategy::kAuto has chosen it and a plus if a graph was
// replayed; the foot explains them.
std::string StrategyCell(const PerfRow& row) {
  return absl::StrCat(row.strategy,
                      row.options.workload.config.strategy == Strategy::kAuto ? "*" : "",
                      row.options.graph ? "+" : "");
}

// Returns the wire bandwidth as a share of the ceiling of the links; 0 if there are no links.
double CeilingRatio(const PerfFigures& figures, const Ceilings& ceilings) {
  return ceilings.all_to_all_gbps > 0 ? figures.wire_gbps / ceilings.all_to_all_gbps : 0;
}

// Returns the time that the rails alone need for what crosses in such a call; 0 if nothing does.
double RailUs(const PerfRow& row, PerfKind kind) {
  double us = 0;
  for (size_t way = 0; way < row.rails.size(); ++way) {
    const bool part = kind == PerfKind::kBoth || static_cast<size_t>(kind) == way;
    if (part && row.rails[way].bytes > 0) us += Summarize(row.rails[way].us).median;
  }
  return us;
}

// Returns the rate of the rails as a share of their ceiling: the rails alone carry the same bytes.
double RailRatio(const PerfRow& row, PerfKind kind) {
  const double us = Summarize(row.kinds[static_cast<size_t>(kind)].us).median;
  return us > 0 ? RailUs(row, kind) / us : 0;
}

std::string Megabytes(double bytes) {
  constexpr double kBytesPerMegabyte = 1e6;
  return absl::StrFormat("%.3f", bytes / kBytesPerMegabyte);
}

std::string NodesPerfLines(const PerfRow& row) {
  std::string lines;
  for (size_t kind = 0; kind < kNumPerfKinds; ++kind) {
    const PerfFigures& figures = row.kinds[kind];
    const double ratio = RailRatio(row, static_cast<PerfKind>(kind));
    absl::StrAppend(&lines, NodesPerfTable().Row(
                                {absl::StrCat(row.tokens), StrategyCell(row), kPerfKindNames[kind],
                                 absl::StrFormat("%.1f", Summarize(figures.us).median),
                                 Megabytes(figures.rail_bytes), Megabytes(figures.wire_bytes),
                                 Bandwidth(figures.rail_gbps), Bandwidth(figures.wire_gbps),
                                 Bandwidth(figures.logical_gbps),
                                 ratio > 0 ? absl::StrFormat("%.1f", ratio * kPercent) : "-",
                                 row.verified_steps > 0 ? absl::StrCat(figures.wrong) : "N/A"}));
  }
  for (size_t way = 0; way < row.rails.size(); ++way) {
    const RailFigures& rail = row.rails[way];
    absl::StrAppend(
        &lines, NodesPerfTable().Row({absl::StrCat(row.tokens), StrategyCell(row), kRailNames[way],
                                      absl::StrFormat("%.1f", Summarize(rail.us).median),
                                      Megabytes(static_cast<double>(rail.bytes)), "-",
                                      Bandwidth(rail.gbps), "-", "-", "-", "-"}));
  }
  return lines;
}

int64_t WrongRows(const PerfRow& row) {
  int64_t wrong = 0;
  for (const PerfFigures& figures : row.kinds) wrong += figures.wrong;
  return wrong;
}

Json FiguresToJson(const PerfFigures& figures, const Ceilings& ceilings, bool verified) {
  return {{"us", ToJson(Summarize(figures.us))},
          {"steps_us", figures.us},
          {"logical_gbps", figures.logical_gbps},
          {"wire_gbps", figures.wire_gbps},
          {"ceiling_ratio",
           ceilings.all_to_all_gbps > 0 ? Json(CeilingRatio(figures, ceilings)) : Json()},
          {"wrong", verified ? Json(figures.wrong) : Json()}};
}

Json RowToJson(const PerfRow& row, const Ceilings& ceilings) {
  const RunSpec& options = row.options;
  const WorkloadSpec& spec = options.workload;
  Json json = {{"tokens", row.tokens},
               {"hidden", spec.config.hidden},
               {"topk", spec.config.topk},
               {"experts", spec.config.num_experts},
               {"dtype", std::string(EnumName(spec.config.dtype))},
               {"strategy", row.strategy},
               {"ranks", spec.num_ranks}};
  json.update(ChoicesToJson(options, row.config));
  json.update({{"routing", spec.routing.text},
               {"drop", spec.drop},
               {"expert", std::string(EnumName(options.expert))},
               {"fuse_expert", options.fuse_expert},
               {"seed", spec.seed},
               {"align", std::string(EnumName(options.align))},
               {"iters", options.iters},
               {"warmup", options.warmup},
               {"graph", options.graph},
               {"verified_steps", row.verified_steps}});
  const bool several = options.nodes.num_nodes > 1;
  if (several) json["nodes"] = options.nodes.num_nodes;
  for (size_t kind = 0; kind < kNumPerfKinds; ++kind) {
    const PerfFigures& figures = row.kinds[kind];
    Json& member = json[kPerfKindNames[kind]];
    member = FiguresToJson(figures, ceilings, row.verified_steps > 0);
    if (!several) continue;
    const double ratio = RailRatio(row, static_cast<PerfKind>(kind));
    member.update({{"link_bytes", figures.wire_bytes},
                   {"rail_bytes", figures.rail_bytes},
                   {"rail_gbps", figures.rail_gbps},
                   {"rail_ceiling_ratio", ratio > 0 ? Json(ratio) : Json()}});
  }
  for (size_t way = 0; way < row.rails.size(); ++way) {
    const RailFigures& rail = row.rails[way];
    json[kRailNames[way]] = {{"us", ToJson(Summarize(rail.us))},
                             {"exchanges_us", rail.us},
                             {"rail_bytes", rail.bytes},
                             {"rail_gbps", rail.gbps}};
  }
  return json;
}

}  // namespace

std::string PerfHead(const Topology& topology, const PerfSpec& perf) {
  const RunSpec& options = perf.shapes.front();
  const WorkloadSpec& spec = options.workload;
  return absl::StrCat(
      Comment(absl::StrFormat("octet perf: %s on %s (%s)", RanksText(options), GpuName(topology),
                              topology.platform)),
      EmulationNote(topology),
      Comment(absl::StrFormat("experts %d, topk %d, hidden %d, %s; routing %s, drop %g, seed %d",
                              spec.config.num_experts, spec.config.topk, spec.config.hidden,
                              EnumName(spec.config.dtype), spec.routing.text, spec.drop,
                              spec.seed)),
      Comment(absl::StrFormat(
          "expert %s (%s); slots %s, flags %s", EnumName(options.expert),
          options.fuse_expert ? "fused into combine" : "its own kernel, not in combine's time",
          EnumName(options.workload.config.variant.slots),
          EnumName(options.workload.config.variant.flags))),
      Comment(absl::StrFormat("%d steps of each kind after %d of warm-up, from a barrier of the %s",
                              options.iters, options.warmup,
                              options.align == Align::kHost ? "threads" : "GPUs")),
      Comment(perf.check_steps == 0 ? "nothing verified"
                                    : absl::StrCat("of each kind the last ",
                                                   std::min(perf.check_steps, options.iters),
                                                   " verified to the bit")),
      FormatsLine(options, options.workload.config), "#\n",
      options.nodes.num_nodes > 1 ? NodesPerfTable().Head() : PerfTable().Head());
}

std::string PerfLines(const PerfRow& row, const Ceilings& ceilings) {
  if (row.options.nodes.num_nodes > 1) return NodesPerfLines(row);
  std::string lines;
  for (size_t kind = 0; kind < kNumPerfKinds; ++kind) {
    const PerfFigures& figures = row.kinds[kind];
    const Statistics time = Summarize(figures.us);
    absl::StrAppend(
        &lines, PerfTable().Row(
                    {absl::StrCat(row.tokens), StrategyCell(row),
                     row.config.tuning.blocks > 0 ? absl::StrCat(row.config.tuning.blocks) : "-",
                     kPerfKindNames[kind], absl::StrFormat("%.1f", time.median),
                     absl::StrFormat("%.1f", time.p99), absl::StrFormat("%.1f", time.cv * kPercent),
                     Bandwidth(figures.logical_gbps), Bandwidth(figures.wire_gbps),
                     ceilings.all_to_all_gbps > 0
                         ? absl::StrFormat("%.1f", CeilingRatio(figures, ceilings) * kPercent)
                         : "-",
                     row.verified_steps > 0 ? absl::StrCat(figures.wrong) : "N/A"}));
  }
  return lines;
}

std::string PerfFoot(absl::Span<const PerfRow> rows, const Ceilings& ceilings) {
  std::string foot = "#\n" + CeilingsText(ceilings);
  int64_t wrong = 0;
  int verified = 0;
  std::vector<std::string> strategies;  // in the order of their first rows
  for (const PerfRow& row : rows) {
    wrong += WrongRows(row);
    verified += row.verified_steps;
    if (std::string cell = StrategyCell(row); !absl::c_linear_search(strategies, cell)) {
      strategies.push_back(std::move(cell));
    }
  }
  absl::StrAppend(&foot, "# Wrong rows          : ",
                  verified == 0 ? "N/A"
                                : absl::StrCat(wrong, wrong == 0 ? " OK" : " FAILED", ", ",
                                               verified, " steps verified"),
                  "\n");
  const bool several = !rows.empty() && rows.front().options.nodes.num_nodes > 1;
  for (const std::string& strategy : strategies) {
    std::array<std::vector<double>, kNumPerfKinds> rates;
    for (const PerfRow& row : rows) {
      if (StrategyCell(row) != strategy) continue;
      for (size_t kind = 0; kind < kNumPerfKinds; ++kind) {
        const PerfFigures& figures = row.kinds[kind];
        rates[kind].push_back(several ? figures.rail_gbps : figures.wire_gbps);
      }
    }
    std::string averages;
    for (size_t kind = 0; kind < kNumPerfKinds; ++kind) {
      absl::StrAppend(&averages, averages.empty() ? "" : ", ", kPerfKindNames[kind], " ",
                      Bandwidth(Summarize(std::move(rates[kind])).mean));
    }
    absl::StrAppend(&foot, "# Avg ", several ? "rail" : "wire", " bandwidth  : ", averages,
                    " GB/s (", strategy, ")\n");
  }
  absl::StrAppend(
      &foot, "#\n",
      Comment(absl::StrCat(
          "time: median of device events of the slowest rank, each kind from a barrier of its own; "
          "logical: payload of the rows that the busiest rank receives, each token once; ",
          several
              ? "link: what crosses links within a node, rail: what a rank sends to other nodes in "
                "dispatch and gets back in combine, metadata and flags included; cross, return: "
                "the rails alone, with the bytes of dispatch and of combine; ceil: their time as a "
                "share of the call's"
              : "wire: what crosses links, metadata and flags included; ceil: wire of the "
                "all-to-all stores above",
          "; both: dispatch, expert and combine enqueued together; *: the strategy was auto's "
          "choice; +: replays of captured calls, from graphs.")));
  return foot;
}

std::string PerfJson(const Topology& topology, absl::Span<const PerfRow> rows,
                     const Ceilings& ceilings, const Json& nodes) {
  Json json = {{"schema", kPerfSchema},
               {"program", "octet perf"},
               {"platform", ToJson(topology)},
               {"ceilings", ToJson(ceilings)}};
  if (!nodes.is_null()) json["nodes"] = nodes;
  json["rows"] = Json::array();
  for (const PerfRow& row : rows) json["rows"].push_back(RowToJson(row, ceilings));
  return JsonText(json);
}

}  // namespace octet
