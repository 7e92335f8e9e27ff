#include "tools/report/fused_report.h"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "tools/report/json_parts.h"
#include "tools/report/report.h"
#include "tools/support/statistics.h"
#include "tools/support/text_table.h"

namespace octet {
namespace {

constexpr int kFusedSchema = 1;

const TextTable& FusedTable() {
  static const auto* const kTable = new TextTable({{"tokens", "(/rank)", 9},
                                                   {"strategy", "", 17},
                                                   {"what", "", 10},
                                                   {"time", "(us)", 10},
                                                   {"min", "(us)", 10},
                                                   {"p99", "(us)", 10},
                                                   {"compute", "(TFLOP/s)", 11},
                                                   {"wire", "(GB/s)", 8},
                                                   {"overlap", "", 8},
                                                   {"#wrong", "", 7}});
  return *kTable;
}

template <typename T>
Json OrNull(const std::optional<T>& value) {
  return value.has_value() ? Json(*value) : Json();
}

Json RowToJson(const FusedRow& row) {
  return {{"what", row.what},
          {"chosen", row.chosen},
          {"us", ToJson(Summarize(row.us))},
          {"steps_us", row.us},
          {"tflops", OrNull(row.tflops)},
          {"wire_gbps", OrNull(row.wire_gbps)},
          {"overlap", OrNull(row.overlap)},
          {"wrong", OrNull(row.wrong)}};
}

Json ReportToJson(const FusedReport& report) {
  const RunSpec& options = report.options.run;
  const WorkloadSpec& spec = options.workload;
  Json json = {{"operation", std::string(EnumName(report.options.operation))},
               {"tokens", report.tokens},
               {"intermediate", report.options.intermediate},
               {"epilogue", std::string(EnumName(report.options.activation))},
               {"weights_in", std::string(EnumName(report.options.weights_in))},
               {"hidden", spec.config.hidden},
               {"topk", spec.config.topk},
               {"experts", spec.config.num_experts},
               {"dtype", std::string(EnumName(spec.config.dtype))},
               {"strategy", std::string(EnumName(report.config.strategy))},
               {"ranks", spec.num_ranks}};
  json.update(ChoicesToJson(options, report.config));
  json.update({{"routing", spec.routing.text},
               {"drop", spec.drop},
               {"seed", spec.seed},
               {"iters", options.iters},
               {"warmup", options.warmup},
               {"verified_steps", report.verified_steps},
               {"left_out", Json::array()},
               {"measurements", Json::array()}});
  for (const FusedLeftOut& left_out : report.left_out) {
    json["left_out"].push_back({{"name", left_out.name}, {"reason", left_out.reason}});
  }
  for (const FusedRow& row : report.rows) json["measurements"].push_back(RowToJson(row));
  return json;
}

}  // namespace

std::string FusedHead(absl::string_view command, const Topology& topology,
                      const FusedRunOptions& options) {
  const WorkloadSpec& spec = options.run.workload;
  const EpConfig& config = spec.config;
  const int checked = std::min(options.check_steps, options.run.iters);
  return absl::StrCat(
      Comment(absl::StrFormat("octet %s --operation=%s: %d ranks on %s (%s)", command,
                              EnumName(options.operation), spec.num_ranks, GpuName(topology),
                              topology.platform)),
      EmulationNote(topology),
      Comment(absl::StrFormat("experts %d, topk %d, hidden %d, %s; routing %s, drop %g, seed %d",
                              config.num_experts, config.topk, config.hidden,
                              EnumName(config.dtype), spec.routing.text, spec.drop, spec.seed)),
      Comment(absl::StrFormat("intermediate %d, %sweights in %s", options.intermediate,
                              options.operation == FusedCall::kDispatchGemm
                                  ? absl::StrCat("epilogue ", EnumName(options.activation), ", ")
                                  : "",
                              EnumName(options.weights_in))),
      Comment(absl::StrFormat(
          "%d steps after %d of warm-up, each call from a barrier of the "
          "threads; %s",
          options.run.iters, options.run.warmup,
          checked == 0 ? "nothing verified" : absl::StrCat("the last ", checked, " verified"))),
      FormatsLine(options.run, config), "#\n");
}

std::string FusedColumns() { return FusedTable().Head(); }

std::string FusedLines(const FusedReport& report) {
  std::string lines;
  for (const FusedLeftOut& left_out : report.left_out) {
    lines += Comment(absl::StrCat(left_out.name, " is left out: ", left_out.reason));
  }
  for (const FusedRow& row : report.rows) {
    const Statistics time = Summarize(row.us);
    lines += FusedTable().Row(
        {absl::StrCat(report.tokens), std::string(EnumName(report.config.strategy)),
         absl::StrCat(row.what, row.chosen ? "*" : ""), absl::StrFormat("%.1f", time.median),
         absl::StrFormat("%.1f", time.min), absl::StrFormat("%.1f", time.p99), CellOf(row.tflops),
         row.wire_gbps.has_value() ? Bandwidth(*row.wire_gbps) : "-",
         row.overlap.has_value() ? absl::StrFormat("%.2f", *row.overlap) : "-",
         row.wrong.has_value() ? absl::StrCat(*row.wrong) : "N/A"});
  }
  return lines;
}

std::string FusedFoot(absl::Span<const FusedReport> reports, const Ceilings& ceilings) {
  int64_t wrong = 0;
  int verified = 0;
  for (const FusedReport& report : reports) {
    verified += report.verified_steps;
    for (const FusedRow& row : report.rows) wrong += row.wrong.value_or(0);
  }
  return absl::StrCat(
      "#\n", CeilingsText(ceilings), "# Wrong               : ",
      verified == 0
          ? "N/A"
          : absl::StrCat(wrong, wrong == 0 ? " OK" : " FAILED", ", ", verified, " steps verified"),
      "\n#\n",
      Comment("time: median of device events of the slowest rank, each line from a barrier of its "
              "own; compute: 2 x rows x N x K, mean of the GPUs; wire: what the busiest rank's "
              "links carry, metadata and flags included; overlap: 1 - (whole - longer part) / "
              "shorter part; #wrong: rows, of gemm alone elements; *: auto's choice."));
}

std::string FusedJson(const Topology& topology, absl::Span<const FusedReport> reports,
                      const Ceilings& ceilings) {
  Json json = {{"schema", kFusedSchema},
               {"program", "octet perf --operation"},
               {"platform", ToJson(topology)},
               {"ceilings", ToJson(ceilings)},
               {"calls", Json::array()}};
  for (const FusedReport& report : reports) json["calls"].push_back(ReportToJson(report));
  return JsonText(json);
}

}  // namespace octet
