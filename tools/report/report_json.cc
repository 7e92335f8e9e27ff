// The JSON of a run. Members are named as in the table; times are µs, bandwidths GB/s.
#include <array>
#include <vector>

#include "absl/strings/string_view.h"
#include "runtime/schedule.h"
#include "tools/report/json_parts.h"
#include "tools/report/report.h"

namespace octet {
namespace {

constexpr int kSchema = 1;
constexpr std::array<const char*, kNumPhases> kPhaseNames = {
    "dispatch_send_us", "dispatch_receive_us", "expert_us", "combine_send_us",
    "combine_receive_us"};

std::string Text(absl::string_view text) { return std::string(text); }

Json ToJson(const Verification& verification) {
  Json json = {{"bitwise", verification.bitwise},
               {"within_tolerance", verification.within_tolerance},
               {"max_error", verification.max_error},  // null: infinite
               {"wrong_rows", verification.wrong_rows},
               {"wrong_tokens", verification.wrong_tokens}};
  if (!verification.first.empty()) json["first"] = verification.first;
  return json;
}

Json ToJson(const SoakTally& tally) {
  return {{"shapes", tally.shapes},
          {"fused_steps", tally.fused_steps},
          {"phased_steps", tally.phased_steps},
          {"rows", tally.rows},
          {"wire_bytes", tally.wire_bytes}};
}

Json ToJson(const SoakMemory& memory) {
  return {{"host_bytes", memory.host}, {"gpu_bytes", memory.gpus}};
}

Json PhasesToJson(const std::array<double, kNumPhases>& us) {
  Json json = Json::object();
  for (size_t phase = 0; phase < kNumPhases; ++phase) json[kPhaseNames[phase]] = us[phase];
  return json;
}

Json RunConfigToJson(const RunResult& result) {
  const RunOptions& options = result.options;
  std::vector<int> tokens;
  for (const RankStepResult& rank : result.steps.front().ranks) tokens.push_back(rank.num_tokens);
  Json json = ConfigToJson(options, result.config, tokens);
  json.update({{"iters", options.iters},
               {"warmup", options.warmup},
               {"check", options.check},
               {"align", Text(EnumName(options.align))},
               {"schedule", CurrentSchedule()},
               {"heap_bytes", result.heap_bytes}});
  return json;
}

Json LineToJson(const SummaryLine& line, bool checked) {
  Json json = {{"tokens", line.num_tokens},
               {"rows_sent", line.rows_sent},
               {"rows_received", line.rows_received},
               {"all_us", ToJson(line.all_us)}};
  json.update(PhasesToJson(line.phase_us));
  json["logical_gbps"] = line.logical_gbps;
  json["wire_gbps"] = line.wire_gbps;
  json["verification"] = checked ? ToJson(line.verification) : Json();
  return json;
}

Json StepsToJson(const std::vector<StepResult>& steps, bool by_phases) {
  Json json = Json::array();
  for (const StepResult& step : steps) {
    Json ranks = Json::array();
    for (const RankStepResult& rank : step.ranks) {
      Json each = {{"tokens", rank.num_tokens},           {"rows_sent", rank.rows_sent},
                   {"rows_received", rank.rows_received}, {"logical_bytes", rank.logical_bytes},
                   {"wire_bytes", rank.wire_bytes},       {"all_us", rank.all_us}};
      if (by_phases) each.update(PhasesToJson(rank.phase_us));
      ranks.push_back(each);
    }
    json.push_back({{"all_us", step.all_us}, {"host_us", step.wall_us}, {"ranks", ranks}});
  }
  return json;
}

Json RunToJson(const RunResult& result) {
  const RunSummary summary = Summarize(result);
  const bool checked = result.options.check;
  Json ranks = Json::array();
  for (const SummaryLine& line : summary.ranks) ranks.push_back(LineToJson(line, checked));
  Json json = Json::object();
  if (!result.options.name.empty()) {
    json["name"] = result.options.name;
    json["benchmark"] = result.options.benchmark;
  }
  json["config"] = RunConfigToJson(result);
  json["total"] = LineToJson(summary.total, checked);
  json["total"]["host_us"] = ToJson(summary.wall_us);
  json["ranks"] = ranks;
  json["steps"] = StepsToJson(result.steps, false);
  json["steps_by_phases"] = StepsToJson(result.by_phases, true);
  if (!result.traced.empty()) json["trace_events_dropped"] = result.trace_events_dropped;
  return json;
}

}  // namespace

std::string RunJson(const Topology& topology, absl::Span<const RunResult> results,
                    const Ceilings* ceilings) {
  Json runs = Json::array();
  for (const RunResult& result : results) runs.push_back(RunToJson(result));
  Json json = {{"schema", kSchema}, {"program", "octet run"}, {"platform", ToJson(topology)}};
  if (ceilings != nullptr) json["ceilings"] = ToJson(*ceilings);
  json["runs"] = runs;
  return JsonText(json);
}

std::string SoakJson(const Topology& topology, const SoakResult& result) {
  Json variants = Json::array();
  for (size_t i = 0; i < result.tallies.size(); ++i) {
    const SoakVariant& variant = SoakVariants()[i];
    Json json = {{"strategy", Text(EnumName(variant.strategy))},
                 {"slots", Text(EnumName(variant.options.direct.slots))},
                 {"flags", Text(EnumName(variant.options.direct.flags))}};
    json.update(ToJson(result.tallies[i]));
    variants.push_back(json);
  }
  Json soak = {{"ranks", result.options.num_ranks},
               {"seed", result.options.seed},
               {"seconds", absl::ToDoubleSeconds(result.elapsed)},
               {"nodes", result.nodes},
               {"total", ToJson(result.total)},
               {"variants", variants},
               {"memory",
                {{"first_shape", ToJson(result.start)},
                 {"half", ToJson(result.half)},
                 {"end", ToJson(result.end)}}},
               {"errors", result.status.ok() ? 0 : 1}};
  if (!result.status.ok()) {
    soak["error"] = Text(result.status.message());
    soak["command"] = result.command;
  }
  const Json json = {{"schema", kSchema},
                     {"program", "octet run --soak"},
                     {"platform", ToJson(topology)},
                     {"soak", soak}};
  return JsonText(json);
}

}  // namespace octet
