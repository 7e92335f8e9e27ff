// The JSON of a run. Members are named as in the table; times are µs, bandwidths GB/s.
#include <array>
#include <cstddef>
#include <vector>

#include "absl/strings/string_view.h"
#include "runtime/node/schedule.h"
#include "tools/report/json_parts.h"
#include "tools/report/report.h"

namespace octet {
namespace {

constexpr int kRunSchema = 1;
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
  const RunSpec& options = result.options;
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

// The times of a step's parts: calls if there are several nodes, else phases.
template <typename Times>
Json PartsToJson(const Times& times, bool several) {
  if (!several) return PhasesToJson(times.phase_us);
  return {{"dispatch_us", times.call_us[static_cast<size_t>(Call::kDispatch)]},
          {"combine_us", times.call_us[static_cast<size_t>(Call::kCombine)]}};
}

Json LineToJson(const SummaryLine& line, bool checked, bool several) {
  Json json = {{"tokens", line.num_tokens},
               {"rows_sent", line.rows_sent},
               {"rows_received", line.rows_received},
               {"all_us", ToJson(line.all_us)}};
  json.update(PartsToJson(line, several));
  json["logical_gbps"] = line.logical_gbps;
  json["wire_gbps"] = line.wire_gbps;
  if (several) {
    json["rail_rows"] = line.rail_rows;
    json["rail_gbps"] = line.rail_gbps;
  }
  json["verification"] = checked ? ToJson(line.verification) : Json();
  return json;
}

Json StepsToJson(const std::vector<StepResult>& steps, bool in_parts, bool several) {
  Json json = Json::array();
  for (const StepResult& step : steps) {
    Json ranks = Json::array();
    for (const RankStepResult& rank : step.ranks) {
      Json each = {{"tokens", rank.num_tokens},           {"rows_sent", rank.rows_sent},
                   {"rows_received", rank.rows_received}, {"logical_bytes", rank.logical_bytes},
                   {"wire_bytes", rank.wire_bytes},       {"all_us", rank.all_us}};
      if (several) {
        each.update({{"rail_rows", rank.rail_rows}, {"rail_bytes", rank.rail_bytes}});
      }
      if (in_parts) each.update(PartsToJson(rank, several));
      ranks.push_back(each);
    }
    json.push_back({{"all_us", step.all_us}, {"host_us", step.wall_us}, {"ranks", ranks}});
  }
  return json;
}

Json RunToJson(const RunResult& result) {
  const RunSummary summary = Summarize(result);
  const bool checked = result.options.check;
  const bool several = result.options.nodes.num_nodes > 1;
  Json ranks = Json::array();
  for (const SummaryLine& line : summary.ranks) ranks.push_back(LineToJson(line, checked, several));
  Json json = Json::object();
  if (!result.options.name.empty()) {
    json["name"] = result.options.name;
    json["benchmark"] = result.options.benchmark;
  }
  json["config"] = RunConfigToJson(result);
  json["total"] = LineToJson(summary.total, checked, several);
  json["total"]["host_us"] = ToJson(summary.wall_us);
  json["ranks"] = ranks;
  json["steps"] = StepsToJson(result.steps, false, several);
  json[several ? "steps_by_calls" : "steps_by_phases"] =
      StepsToJson(result.by_phases, true, several);
  if (!result.traced.empty()) json["trace_events_dropped"] = result.trace_events_dropped;
  return json;
}

}  // namespace

std::string RunJson(const Topology& topology, absl::Span<const RunResult> results,
                    const Ceilings* ceilings, const Json& nodes) {
  Json runs = Json::array();
  for (const RunResult& result : results) runs.push_back(RunToJson(result));
  Json json = {{"schema", kRunSchema}, {"program", "octet run"}, {"platform", ToJson(topology)}};
  if (!nodes.is_null()) json["nodes"] = nodes;
  if (ceilings != nullptr) json["ceilings"] = ToJson(*ceilings);
  json["runs"] = runs;
  return JsonText(json);
}

std::string SoakJson(const Topology& topology, const SoakResult& result,
                     absl::string_view command) {
  Json variants = Json::array();
  for (size_t i = 0; i < result.tallies.size(); ++i) {
    const SoakVariant& variant = SoakVariants()[i];
    Json json = {{"strategy", Text(EnumName(variant.strategy))},
                 {"slots", Text(EnumName(variant.options.slots))},
                 {"flags", Text(EnumName(variant.options.flags))}};
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
    soak["command"] = Text(command);
  }
  const Json json = {{"schema", kRunSchema},
                     {"program", "octet run --soak"},
                     {"platform", ToJson(topology)},
                     {"soak", soak}};
  return JsonText(json);
}

}  // namespace octet
