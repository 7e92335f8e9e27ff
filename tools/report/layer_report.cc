#include "tools/report/layer_report.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "octet/enum_names.h"
#include "runtime/base/status_macros.h"
#include "tools/support/npy.h"
#include "tools/support/statistics.h"
#include "tools/support/text_table.h"

namespace octet {
namespace {

constexpr double kMicroseconds = 1e6;  // of a second

absl::string_view WeightsName(const MoeLayerConfig& config) {
  return InfoOf(FormatOf(config.dtype, config.weights)).name;
}

// How the layer is computed.
std::string WayText(const MoeLayerConfig& c) {
  if (c.path == LayerPath::kDecode) return "in one launch";
  const bool beside = c.shared_intermediate > 0 && c.shared_experts == SharedExperts::kBeside;
  return absl::StrCat(EnumName(c.strategy), ", fusion ", EnumName(c.fusion),
                      beside ? ", shared experts beside" : "");
}

std::string Shape(const LayerReport& report) {
  const MoeLayerConfig& c = report.config;
  std::string text = absl::StrCat(c.num_experts, " experts, top ", c.topk, ", H ", c.hidden, ", I ",
                                  c.intermediate);
  if (c.shared_intermediate > 0) absl::StrAppend(&text, ", shared ", c.shared_intermediate);
  if (!c.placement.empty()) {
    absl::StrAppend(&text, ", placed in ", c.placement.slots_per_rank(), " slots of each rank");
  }
  absl::StrAppend(&text, ", ", EnumName(c.dtype), ", weights ", WeightsName(c),
                  c.fp8_rows ? " times rows of fp8" : "", "; ", report.tokens, " tokens on ",
                  report.num_ranks, " ranks; ", WayText(c), "; weights loaded in ",
                  absl::StrFormat("%.2f", report.load_seconds), " s");
  return text;
}

std::string MovedText(const MovedExperts& moved) {
  constexpr double kMega = 1e6;
  const MoveTimes& times = moved.times;
  const auto us = [](absl::Duration time) { return CellOf(absl::ToDoubleMicroseconds(time)); };
  return absl::StrCat(
      "moved: ", times.copies, " copies of experts, ", times.steps,
      times.steps == 1 ? " step" : " steps", ", beside calls with the same results; ",
      CellOf(times.most_copies * moved.expert_bytes / kMega), " MB to one rank in ", us(times.move),
      " us, ", CellOf(moved.gbps()), " GB/s; a call took ", us(times.mean_before),
      " us before (the fastest ", us(times.call_before), "), ", us(times.mean_beside),
      " us beside them (the slowest ", us(times.call_beside), "), for the host");
}

std::string CheckText(const LayerCheck& check) {
  return absl::StrFormat(
      "checked: experts and weights of %d tokens to the bit, %d wrong; %d logits and elements of y "
      "against float64, %d wrong, the largest error %.2g of what the roundings allow",
      check.routed, check.wrong_routed, check.checked, check.wrong, check.worst);
}

nlohmann::ordered_json OrNull(std::optional<double> value) {
  return value.has_value() ? nlohmann::ordered_json(*value) : nlohmann::ordered_json();
}

nlohmann::ordered_json PartJson(const LayerRow& row) {
  const Statistics us = Summarize(row.us);
  nlohmann::ordered_json part;
  part["part"] = row.what;
  part["median_us"] = us.median;
  part["min_us"] = us.min;
  part["p99_us"] = us.p99;
  part["tflops"] = OrNull(row.tflops);
  part["weights_tbps"] = OrNull(row.weights_tbps);
  return part;
}

nlohmann::ordered_json CheckJson(const std::optional<LayerCheck>& check) {
  if (!check.has_value()) return nullptr;
  return {{"routed", check->routed},
          {"wrong_routed", check->wrong_routed},
          {"checked", check->checked},
          {"wrong", check->wrong},
          {"worst", check->worst}};
}

int WidthOfNames(const LayerReport& report) {
  size_t width = 10;
  for (const MeasuredContender& contender : report.contenders) {
    width = std::max(width, contender.row.what.size() + 1);
  }
  return static_cast<int>(width);
}

double TokensPerSecond(const LayerReport& report, double us) {
  return us > 0 ? report.tokens / us * kMicroseconds : 0;
}

NpyType RowType(const MoeLayerConfig& config) {
  return config.dtype == DType::kFloat16 ? NpyType::kFloat16 : NpyType::kUint16;
}

}  // namespace

std::string LayerTable(const Topology& topology, absl::string_view what,
                       const LayerReport& report) {
  const std::string nodes =
      report.num_nodes > 1 ? absl::StrCat(report.num_nodes, " nodes, ") : std::string();
  std::string text = Comment(absl::StrCat("octet layer on ", nodes, report.num_ranks, " x ",
                                          topology.gpus[0].name, ": ", what));
  text += Comment(Shape(report));
  for (const LeftOutContender& contender : report.left_out) {
    text += Comment(absl::StrCat(contender.name, " is left out: ", contender.reason));
  }
  if (topology.emulated() && !report.rows.empty()) {
    text += Comment("emulated GPUs: the times say nothing about a GPU's");
  }
  if (!report.rows.empty()) {
    const TextTable table({{"part", "", WidthOfNames(report)},
                           {"median", "us", 11},
                           {"min", "us", 11},
                           {"p99", "us", 11},
                           {"compute", "TFLOP/s", 10},
                           {"weights", "TB/s", 10},
                           {"tokens", "1/s", 12}});
    text += table.Head();
    const auto add = [&](const LayerRow& row, bool whole) {
      if (row.us.empty()) return;
      const Statistics us = Summarize(row.us);
      text +=
          table.Row({row.what, absl::StrFormat("%.1f", us.median), absl::StrFormat("%.1f", us.min),
                     absl::StrFormat("%.1f", us.p99), CellOf(row.tflops), CellOf(row.weights_tbps),
                     whole ? absl::StrFormat("%.4g", TokensPerSecond(report, us.median)) : "-"});
    };
    for (const LayerRow& row : report.rows) add(row, row.what == "layer" || row.what == "graph");
    for (const MeasuredContender& contender : report.contenders) add(contender.row, true);
    text += Comment(absl::StrCat(report.config.path == LayerPath::kDecode
                                     ? ""
                                     : "parts: from the end of the one before it, of the slowest "
                                       "rank, in calls of their own; ",
                                 "TFLOP/s and TB/s of a GPU"));
  }
  if (report.check.has_value()) text += Comment(CheckText(*report.check));
  if (report.moved.has_value()) {
    text += Comment(MovedText(*report.moved));
    if (report.moved->check.has_value()) {
      text += Comment(absl::StrCat("moved, ", CheckText(*report.moved->check)));
    }
  }
  for (const MeasuredContender& contender : report.contenders) {
    text += Comment(absl::StrCat(contender.row.what, ": the same without the router"));
    if (!contender.check.has_value()) continue;
    text += Comment(absl::StrCat(contender.row.what, ": ", CheckText(*contender.check)));
  }
  return text;
}

std::string LayerJson(const Topology& topology, absl::string_view what, const LayerReport& report,
                      const Json& nodes) {
  const MoeLayerConfig& c = report.config;
  nlohmann::ordered_json json;
  json["schema"] = 1;
  json["program"] = "octet layer";
  json["platform"] = topology.platform;
  json["gpu"] = topology.gpus[0].name;
  if (!nodes.is_null()) json["nodes"] = nodes;
  json["ranks"] = report.num_ranks;
  json["layer"] = std::string(what);
  json["tokens"] = report.tokens;
  json["experts"] = c.num_experts;
  if (!c.placement.empty()) json["slots"] = c.placement.slots_per_rank();
  json["topk"] = c.topk;
  json["hidden"] = c.hidden;
  json["intermediate"] = c.intermediate;
  json["shared_intermediate"] = c.shared_intermediate;
  json["dtype"] = std::string(EnumName(c.dtype));
  json["weights"] = std::string(WeightsName(c));
  json["fp8_rows"] = c.fp8_rows;
  json["path"] = std::string(EnumName(c.path));
  json["strategy"] = std::string(EnumName(c.strategy));
  json["fusion"] = std::string(EnumName(c.fusion));
  json["shared_experts"] = std::string(EnumName(c.shared_experts));
  json["link_blocks"] = c.link_blocks;
  json["load_seconds"] = report.load_seconds;
  json["work"] = {{"flops", report.work.flops},
                  {"weight_bytes", report.work.weight_bytes},
                  {"dispatch_link_bytes", report.work.dispatch_link_bytes},
                  {"combine_link_bytes", report.work.combine_link_bytes}};
  json["limits"] = {{"peak_tflops", OrNull(report.limits.peak_tflops)},
                    {"memory_tbps", OrNull(report.limits.memory_tbps)},
                    {"link_gbps", OrNull(report.limits.link_gbps)}};
  json["rows"] = nlohmann::ordered_json::array();
  for (const LayerRow& row : report.rows) {
    if (!row.us.empty()) json["rows"].push_back(PartJson(row));
  }
  json["check"] = CheckJson(report.check);
  if (report.moved.has_value()) {
    const MoveTimes& times = report.moved->times;
    json["moved"] = {{"copies", times.copies},
                     {"most_copies", times.most_copies},
                     {"expert_bytes", report.moved->expert_bytes},
                     {"move_us", absl::ToDoubleMicroseconds(times.move)},
                     {"call_before_us", absl::ToDoubleMicroseconds(times.call_before)},
                     {"call_beside_us", absl::ToDoubleMicroseconds(times.call_beside)},
                     {"mean_before_us", absl::ToDoubleMicroseconds(times.mean_before)},
                     {"mean_beside_us", absl::ToDoubleMicroseconds(times.mean_beside)},
                     {"steps", times.steps},
                     {"check", CheckJson(report.moved->check)}};
  }
  json["contenders"] = nlohmann::ordered_json::array();
  for (const MeasuredContender& contender : report.contenders) {
    nlohmann::ordered_json row = {{"name", contender.row.what}, {"times", nullptr}};
    if (!contender.row.us.empty()) row["times"] = PartJson(contender.row);
    row["check"] = CheckJson(contender.check);
    json["contenders"].push_back(row);
  }
  json["left_out"] = nlohmann::ordered_json::array();
  for (const LeftOutContender& contender : report.left_out) {
    json["left_out"].push_back({{"name", contender.name}, {"reason", contender.reason}});
  }
  return json.dump(2) + "\n";
}

absl::Status WriteLayerOutput(const std::string& path, const LayerReport& report,
                              absl::Span<const int64_t> leading) {
  std::vector<float> y;
  y.reserve(report.output.y.size());
  for (const uint16_t bits : report.output.y) y.push_back(FloatFromBits(report.config.dtype, bits));
  std::vector<int64_t> shape(leading.begin(), leading.end());
  shape.push_back(report.config.hidden);
  return WriteNpy(path, NpyType::kFloat32, shape, y.data());
}

absl::Status WriteLayerDump(const std::string& folder, const LayerReport& report) {
  const LayerOutput& output = report.output;
  const MoeLayerConfig& config = report.config;
  const auto path = [&](absl::string_view name) { return absl::StrCat(folder, "/", name, ".npy"); };
  const int64_t tokens = report.tokens;
  OCTET_RETURN_IF_ERROR(
      WriteNpy(path("x"), RowType(config), {tokens, config.hidden}, output.x.data()));
  const auto experts = static_cast<size_t>(config.num_experts);
  std::vector<float> logits;
  std::vector<float> shared_gate;
  for (size_t i = 0; i < output.logits.size(); ++i) {
    const bool of_expert = i % static_cast<size_t>(LogitsOf(config)) < experts;
    (of_expert ? logits : shared_gate).push_back(output.logits[i]);
  }
  OCTET_RETURN_IF_ERROR(
      WriteNpy(path("logits"), NpyType::kFloat32, {tokens, config.num_experts}, logits.data()));
  if (config.shared_gate) {
    OCTET_RETURN_IF_ERROR(
        WriteNpy(path("shared_gate"), NpyType::kFloat32, {tokens}, shared_gate.data()));
  }
  OCTET_RETURN_IF_ERROR(
      WriteNpy(path("topk_idx"), NpyType::kInt32, {tokens, config.topk}, output.topk_idx.data()));
  OCTET_RETURN_IF_ERROR(WriteNpy(path("topk_weights"), NpyType::kFloat32, {tokens, config.topk},
                                 output.topk_weights.data()));
  return WriteLayerOutput(path("y"), report, {tokens});
}

}  // namespace octet
