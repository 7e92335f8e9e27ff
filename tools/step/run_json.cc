#include "tools/step/run_json.h"

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

Json ChoicesToJson(const RunSpec& run, const EpConfig& config) {
  const auto text = [](absl::string_view name) { return std::string(name); };
  const Tuning& tuning = config.tuning;
  Json json = {{"auto_strategy", run.workload.config.strategy == Strategy::kAuto},
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
               {"cached", run.cached},
               {"failure_policy", text(EnumName(config.low_latency.failure_policy))},
               {"statistics", config.low_latency.statistics}};
  if (!run.placement.empty()) json["placement"] = run.placement;
  if (config.capacity_rows > 0) json["capacity_rows"] = config.capacity_rows;
  if (run.nodes.num_nodes > 1) {
    json["rail_rows"] = text(EnumName(ChosenRows(run.rail_rows, config.strategy)));
    json["rail_chunk"] = run.rail_chunk;
    json["intranode_order"] = text(EnumName(run.nodes.intranode_order));
  }
  return json;
}

Json ConfigToJson(const RunSpec& run, const EpConfig& config, absl::Span<const int> num_tokens) {
  const WorkloadSpec& spec = run.workload;
  Json json = {{"nodes", run.nodes.num_nodes},
               {"ranks", spec.num_ranks},
               {"experts", spec.config.num_experts},
               {"topk", spec.config.topk},
               {"hidden", spec.config.hidden},
               {"max_tokens", spec.config.max_tokens_per_rank},
               {"tokens", std::vector<int>(num_tokens.begin(), num_tokens.end())},
               {"dtype", std::string(EnumName(spec.config.dtype))},
               {"strategy", std::string(EnumName(config.strategy))}};
  json.update(ChoicesToJson(run, config));
  json.update({{"routing", spec.routing.text},
               {"drop", spec.drop},
               {"expert", std::string(EnumName(run.expert))},
               {"fuse_expert", run.fuse_expert},
               {"seed", spec.seed}});
  return json;
}

std::string JsonText(const Json& json) {
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace octet
