#include "tools/perf_report.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "kernels/dtype.h"
#include "tools/json_parts.h"
#include "tools/report.h"
#include "tools/statistics.h"

namespace octet {
namespace {

constexpr int kSchema = 1;
constexpr double kPercent = 100;

// What comes before the three groups of columns: tokens, hidden, topk, experts, type, strategy,
// blocks. A blank parts what is wider than its column from its neighbour.
std::string Left(const std::array<std::string, 7>& cells) {
  return absl::StrFormat("%8s %6s %5s %7s %5s %16s %6s", cells[0], cells[1], cells[2], cells[3],
                         cells[4], cells[5], cells[6]);
}

// With a star where it is what Strategy::kAuto has chosen; the foot says so.
std::string StrategyCell(const PerfRow& row) {
  return absl::StrCat(row.strategy, row.options.config.strategy == Strategy::kAuto ? "*" : "");
}

// One group: time, p99, cv, logical, wire, share of the ceiling, wrong rows.
std::string Group(const std::array<std::string, 7>& cells) {
  return absl::StrFormat(" %9s %8s %5s %7s %7s %5s %6s", cells[0], cells[1], cells[2], cells[3],
                         cells[4], cells[5], cells[6]);
}
constexpr int kLeftWidth = 59;
constexpr int kGroupWidth = 54;

std::string Centered(absl::string_view text, int width) {
  const int left = (width - static_cast<int>(text.size())) / 2;
  return absl::StrFormat("%*s%-*s", left, "", width - left, text);
}

// Wire bandwidth of what the links can do; 0 where there are none.
double CeilingRatio(const PerfFigures& figures, const Ceilings& ceilings) {
  return ceilings.all_to_all_gbps > 0 ? figures.wire_gbps / ceilings.all_to_all_gbps : 0;
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
  const RunOptions& options = row.options;
  const WorkloadSpec& spec = options.workload;
  Json json = {{"tokens", row.tokens},
               {"hidden", spec.hidden},
               {"topk", spec.topk},
               {"experts", spec.num_experts},
               {"dtype", std::string(DTypeName(spec.dtype))},
               {"strategy", row.strategy},
               {"ranks", spec.num_ranks}};
  json.update(ChoicesToJson(options, row.config));
  json.update({{"routing", spec.routing.text},
               {"drop", spec.drop},
               {"expert", std::string(ExpertKindName(options.expert))},
               {"fuse_expert", options.fuse_expert},
               {"seed", spec.seed},
               {"align", std::string(AlignName(options.align))},
               {"iters", options.iters},
               {"warmup", options.warmup},
               {"verified_steps", row.verified_steps}});
  for (size_t kind = 0; kind < kNumPerfKinds; ++kind) {
    json[kPerfKindNames[kind]] = FiguresToJson(row.kinds[kind], ceilings, row.verified_steps > 0);
  }
  return json;
}

}  // namespace

std::string PerfHead(const Topology& topology, const PerfOptions& perf) {
  const RunOptions& options = perf.shapes.front();
  const WorkloadSpec& spec = options.workload;
  std::string head = absl::StrFormat(
      "# octet perf: %d ranks on %s (%s)\n"
      "# tokens on every rank; routing %s, drop %g, seed %d; expert %s (%s); slots %s, flags %s\n"
      "# %d steps of each kind after %d of warm-up, from a barrier of the %s; ",
      spec.num_ranks, GpuName(topology), topology.platform, spec.routing.text, spec.drop, spec.seed,
      ExpertKindName(options.expert),
      options.fuse_expert ? "fused into combine" : "its own kernel, not in combine's time",
      SlotsName(options.config.slots), FlagsName(options.config.flags), options.iters,
      options.warmup, options.align == Align::kHost ? "threads" : "GPUs");
  absl::StrAppend(&head,
                  perf.check_steps == 0
                      ? "nothing verified"
                      : absl::StrCat("the last ", std::min(perf.check_steps, options.iters),
                                     " verified to the bit"),
                  "\n", FormatsLine(options, options.config), "#\n");
  std::string groups(kLeftWidth, ' ');
  std::string names = Left({"tokens", "hidden", "topk", "experts", "type", "strategy", "blocks"});
  std::string units = Left({"(/rank)", "(elem)", "", "", "", "", ""});
  for (const char* kind : kPerfKindNames) {
    absl::StrAppend(&groups, Centered(kind, kGroupWidth));
    absl::StrAppend(&names, Group({"time", "p99", "cv", "logical", "wire", "ceil", "#wrong"}));
    absl::StrAppend(&units, Group({"(us)", "(us)", "(%)", "(GB/s)", "(GB/s)", "(%)", "(rows)"}));
  }
  for (std::string* line : {&groups, &names, &units}) {
    (*line)[0] = '#';
    absl::StrAppend(&head, absl::StripTrailingAsciiWhitespace(*line), "\n");
  }
  return head;
}

std::string PerfLine(const PerfRow& row, const Ceilings& ceilings) {
  const WorkloadSpec& spec = row.options.workload;
  std::string line =
      Left({absl::StrCat(row.tokens), absl::StrCat(spec.hidden), absl::StrCat(spec.topk),
            absl::StrCat(spec.num_experts), std::string(DTypeName(spec.dtype)), StrategyCell(row),
            row.config.tuning.blocks > 0 ? absl::StrCat(row.config.tuning.blocks) : "-"});
  for (const PerfFigures& figures : row.kinds) {
    const Statistics time = Summarize(figures.us);
    absl::StrAppend(
        &line, Group({absl::StrFormat("%.1f", time.median), absl::StrFormat("%.1f", time.p99),
                      absl::StrFormat("%.1f", time.cv * kPercent), Bandwidth(figures.logical_gbps),
                      Bandwidth(figures.wire_gbps),
                      ceilings.all_to_all_gbps > 0
                          ? absl::StrFormat("%.1f", CeilingRatio(figures, ceilings) * kPercent)
                          : "-",
                      row.verified_steps > 0 ? absl::StrCat(figures.wrong) : "N/A"}));
  }
  return line + "\n";
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
  for (const std::string& strategy : strategies) {
    std::array<std::vector<double>, kNumPerfKinds> wire;
    for (const PerfRow& row : rows) {
      if (StrategyCell(row) != strategy) continue;
      for (size_t kind = 0; kind < kNumPerfKinds; ++kind) {
        wire[kind].push_back(row.kinds[kind].wire_gbps);
      }
    }
    std::string averages;
    for (size_t kind = 0; kind < kNumPerfKinds; ++kind) {
      absl::StrAppend(&averages, averages.empty() ? "" : ", ", kPerfKindNames[kind], " ",
                      Bandwidth(Summarize(std::move(wire[kind])).mean));
    }
    absl::StrAppend(&foot, "# Avg wire bandwidth  : ", averages, " GB/s (", strategy, ")\n");
  }
  absl::StrAppend(
      &foot,
      "#\n"
      "# time: median of device events of the slowest rank, each kind from a barrier of its own;\n"
      "# logical: payload of the rows that the busiest rank receives, each token once; wire: what\n"
      "# crosses links, metadata and flags included; ceil: wire of the all-to-all stores above;\n"
      "# both: dispatch, expert and combine enqueued together; *: the strategy was auto's "
      "choice.\n");
  return foot;
}

std::string PerfJson(const Topology& topology, absl::Span<const PerfRow> rows,
                     const Ceilings& ceilings) {
  Json json = {{"schema", kSchema},
               {"program", "octet perf"},
               {"platform", ToJson(topology)},
               {"ceilings", ToJson(ceilings)},
               {"rows", Json::array()}};
  for (const PerfRow& row : rows) json["rows"].push_back(RowToJson(row, ceilings));
  return JsonText(json);
}

}  // namespace octet
