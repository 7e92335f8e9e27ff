#include "tools/report/json_parts.h"

#include <vector>

#include "absl/strings/string_view.h"
#include "kernels/nodes/options.h"
#include "octet/dtype.h"

namespace octet {

Json ToJson(const Topology& topology) {
  Json gpus = Json::array();
  for (const GpuInfo& gpu : topology.gpus) {
    gpus.push_back({{"device", gpu.device},
                    {"name", gpu.name},
                    {"pci_bus_id", gpu.pci_bus_id},
                    {"numa_node", gpu.numa_node},
                    {"compute_units", gpu.num_compute_units},
                    {"wave_size", gpu.wave_size},
                    {"memory_bytes", gpu.memory_bytes}});
  }
  return {{"name", topology.platform},
          {"driver_version", topology.driver_version},
          {"runtime_version", topology.runtime_version},
          {"gpus", gpus}};
}

Json ToJson(const Statistics& statistics) {
  return {{"median", statistics.median}, {"min", statistics.min},   {"max", statistics.max},
          {"p99", statistics.p99},       {"mean", statistics.mean}, {"cv", statistics.cv}};
}

Json ToJson(const Ceilings& ceilings) {
  // Ceilings between ranks are null if there is only one rank.
  const auto between = [&](double value) {
    return ceilings.all_to_all_gbps > 0 ? Json(value) : Json();
  };
  return {{"all_to_all_gbps", between(ceilings.all_to_all_gbps)},
          {"loads_gbps", between(ceilings.loads_gbps)},
          {"bulk_gbps", between(ceilings.bulk_gbps)},
          {"copy_engine_gbps", between(ceilings.copy_engine_gbps)},
          {"pair_gbps", between(ceilings.pair_gbps)},
          {"empty_launch_us", ceilings.empty_launch_us},
          {"host_barrier_us", ceilings.host_barrier_us},
          {"node_barrier_us", ceilings.node_barrier_us},
          {"flag_round_trip_us", between(ceilings.flag_round_trip_us)},
          {"launch_skew_us", between(ceilings.launch_skew_us)},
          {"clock_round_trip_us", between(ceilings.clock_round_trip_us)}};
}

Json ChoicesToJson(const RunOptions& options, const EpConfig& config) {
  const auto text = [](absl::string_view name) { return std::string(name); };
  const Tuning& tuning = config.tuning;
  Json json = {{"auto_strategy", options.workload.config.strategy == Strategy::kAuto},
               {"slots", text(EnumName(config.variant.slots))},
               {"flags", text(EnumName(config.variant.flags))},
               {"combine_order", text(EnumName(config.combine_order))},
               {"combine_method", text(EnumName(config.combine_method))},
               {"blocks", tuning.blocks},
               {"send_blocks", tuning.send_blocks},
               {"waves", tuning.waves_per_block},
               {"row_parts", tuning.row_parts},
               {"max_blocks", config.max_blocks},
               {"send_waves", tuning.send_waves},
               {"combine_send_waves", tuning.combine_send_waves},
               {"row_copies", text(EnumName(tuning.row_copies))},
               {"format", text(EnumName(config.dispatch_format))},
               {"scales", text(EnumName(config.scale_format))},
               {"scale_group", config.scale_group},
               {"received", text(EnumName(config.output))},
               {"duplicates", text(EnumName(config.high_throughput.duplicates))},
               {"expert_alignment", config.high_throughput.expert_alignment},
               {"host_totals", config.high_throughput.host_totals},
               {"cached", options.cached},
               {"failure_policy", text(EnumName(config.low_latency.failure_policy))},
               {"statistics", config.low_latency.statistics}};
  if (options.nodes.num_nodes > 1) {
    json["rail_rows"] = text(EnumName(ChosenRows(options.rail_rows, config.strategy)));
    json["rail_chunk"] = options.rail_chunk;
    json["intranode_order"] = text(EnumName(options.nodes.intranode_order));
  }
  return json;
}

Json ConfigToJson(const RunOptions& options, const EpConfig& config,
                  absl::Span<const int> num_tokens) {
  const WorkloadSpec& spec = options.workload;
  Json json = {{"nodes", options.nodes.num_nodes},
               {"ranks", spec.num_ranks},
               {"experts", spec.config.num_experts},
               {"topk", spec.config.topk},
               {"hidden", spec.config.hidden},
               {"max_tokens", spec.config.max_tokens_per_rank},
               {"tokens", std::vector<int>(num_tokens.begin(), num_tokens.end())},
               {"dtype", std::string(EnumName(spec.config.dtype))},
               {"strategy", std::string(EnumName(config.strategy))}};
  json.update(ChoicesToJson(options, config));
  json.update({{"routing", spec.routing.text},
               {"drop", spec.drop},
               {"expert", std::string(EnumName(options.expert))},
               {"fuse_expert", options.fuse_expert},
               {"seed", spec.seed}});
  return json;
}

std::string JsonText(const Json& json) {
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace octet
