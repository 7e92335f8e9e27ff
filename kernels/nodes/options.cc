#include "kernels/nodes/options.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "kernels/ep/config_checks.h"
#include "kernels/ep/device/row_arrivals.h"
#include "kernels/ep/physical.h"
#include "kernels/ep/strategy_registry.h"
#include "octet/enum_names.h"
#include "octet/node.h"
#include "octet/placement.h"
#include "octet/topology.h"
#include "runtime/base/status_macros.h"
#include "runtime/net/rails/rail.h"

namespace octet {
namespace {

absl::Status CheckChunks(const EpConfig& config, int chunk_tokens) {
  OCTET_RETURN_IF_ERROR(CheckRange("chunk_tokens", chunk_tokens, 0, kMaxTokensPerRank));
  const int chunks = ChunksOf(config, chunk_tokens).count;
  if (chunks <= kMaxRowChunks) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("chunk_tokens is ", chunk_tokens, ", which makes ",
                                                 chunks, " chunks of max_tokens_per_rank, ",
                                                 config.max_tokens_per_rank, "; ", kMaxRowChunks,
                                                 " are the most"));
}

}  // namespace

RailRows ChosenRows(RailRows rows, Strategy strategy) {
  if (rows != RailRows::kAuto) return rows;
  return Has(strategy, &StrategyInfo::for_few_tokens) ? RailRows::kBlocks : RailRows::kCounted;
}

hierarchical::Chunks ChunksOf(const EpConfig& config, int chunk_tokens) {
  const int tokens = config.max_tokens_per_rank;
  const int rows = chunk_tokens > 0 ? chunk_tokens : tokens;
  return {.max_tokens = tokens, .rows = rows, .count = (tokens + rows - 1) / rows};
}

hierarchical::RecordShape RecordOf(const EpConfig& config, int num_nodes) {
  return {.topk = IntranodeConfig(config, {.num_nodes = num_nodes}).topk,
          .scale_words = config.x_scale_words()};
}

EpConfig WithChoices(const EpConfig& config, const EpConfig& intranode) {
  EpConfig chosen = intranode;
  chosen.num_experts = config.num_experts;
  chosen.topk = config.topk;
  chosen.max_tokens_per_rank = config.max_tokens_per_rank;
  chosen.max_blocks = config.max_blocks;
  chosen.combine_order = CombineOrder::kPerNode;
  return chosen;
}

absl::Status LeaveUnits(const Node& node, absl::Span<Rail* const> rails, EpConfig& config) {
  int most = kMaxTokensPerRank;
  for (size_t rank = 0; rank < rails.size(); ++rank) {
    const int units = node.topology().gpus[rank].num_compute_units;
    most = std::min(most, units - rails[rank]->compute_units());
  }
  most = std::max(most, 2);  // with which every strategy can do
  if (config.tuning.blocks > most) {
    return absl::InvalidArgumentError(
        absl::StrCat("tuning.blocks is ", config.tuning.blocks, "; with chunk_tokens ", most,
                     " are the most, since rails need compute units beside them"));
  }
  config.max_blocks = config.max_blocks > 0 ? std::min(config.max_blocks, most) : most;
  return absl::OkStatus();
}

size_t RailRecordBytes(const EpConfig& config, int num_nodes) {
  return RecordOf(config, num_nodes).bytes();
}

absl::Status ValidateHierarchical(const EpConfig& config, const NodesOfRanks& nodes,
                                  int chunk_tokens) {
  OCTET_RETURN_IF_ERROR(CheckRange("num_nodes", nodes.num_nodes, 1, hierarchical::kMaxNodes));
  if (!config.placement.empty()) {
    OCTET_RETURN_IF_ERROR(CheckPlacement(config, nodes.num_nodes * nodes.ranks_per_node));
    OCTET_RETURN_IF_ERROR(
        CheckRange("topk", config.topk, 1, std::min(kMaxTopk, config.num_experts)));
    return ValidateHierarchical(PhysicalConfig(config), nodes, chunk_tokens);
  }
  OCTET_RETURN_IF_ERROR(CheckRange("num_experts", config.num_experts, 1, kMaxExperts));
  OCTET_RETURN_IF_ERROR(CheckRange("topk", config.topk, 1, std::min(kMaxTopk, config.num_experts)));
  OCTET_RETURN_IF_ERROR(
      CheckRange("max_tokens_per_rank", config.max_tokens_per_rank, 1, kMaxTokensPerRank));
  if (config.num_experts % nodes.num_nodes != 0) {
    return absl::InvalidArgumentError(absl::StrCat("num_experts is ", config.num_experts,
                                                   "; it must be divisible by the ",
                                                   nodes.num_nodes, " nodes"));
  }
  if (config.combine_order != CombineOrder::kAuto &&
      config.combine_order != CombineOrder::kPerNode) {
    return absl::InvalidArgumentError(absl::StrCat(
        "combine_order is ", EnumName(config.combine_order),
        "; over several nodes it must be auto or per_node (RailOptions::intranode_order "
        "is the order within a node)"));
  }
  if (config.low_latency.failure_policy == FailurePolicy::kMask) {
    return absl::InvalidArgumentError("failure_policy mask is for a single node");
  }
  if (config.loads.count) {
    return absl::InvalidArgumentError("loads.count is true; over several nodes it must be false");
  }
  if (config.capacity_rows != 0) {
    return absl::InvalidArgumentError(absl::StrCat("capacity_rows is ", config.capacity_rows,
                                                   "; over several nodes it must be 0"));
  }
  OCTET_RETURN_IF_ERROR(CheckChunks(config, chunk_tokens));
  absl::Status status = Validate(IntranodeConfig(config, nodes), nodes.ranks_per_node);
  if (status.ok() || nodes.num_nodes == 1) return status;
  return absl::InvalidArgumentError(absl::StrCat("within a node, with E / ", nodes.num_nodes,
                                                 " experts and ", nodes.num_nodes,
                                                 " M tokens: ", status.message()));
}

std::string TextOf(const EpConfig& config, const RailOptions& rails) {
  const HighThroughputOptions& throughput = config.high_throughput;
  std::string text = absl::StrCat(
      "experts ", config.num_experts, ", topk ", config.topk, ", hidden ", config.hidden,
      ", max_tokens_per_rank ", config.max_tokens_per_rank, ", ", EnumName(config.dtype),
      ", strategy ", EnumName(config.strategy), ", combine_order ", EnumName(config.combine_order),
      ", dispatch_format ", EnumName(config.dispatch_format), ", output ", EnumName(config.output));
  absl::StrAppend(&text, ", scales ", EnumName(config.scale_format), " of ", config.scale_group,
                  ", duplicates ", EnumName(throughput.duplicates), ", expert_alignment ",
                  throughput.expert_alignment, ", row_bytes ", throughput.row_bytes, ", rows ",
                  EnumName(rails.rows), ", chunk_tokens ", rails.chunk_tokens, ", intranode_order ",
                  EnumName(rails.intranode_order), ", placement ", DigestOf(config.placement));
  return text;
}

absl::Span<const EnumEntry<RailRows>> EnumTable(RailRows /*unused*/) {
  static constexpr EnumEntry<RailRows> kTable[] = {
      {RailRows::kAuto, "auto"}, {RailRows::kBlocks, "blocks"}, {RailRows::kCounted, "counted"}};
  return kTable;
}

}  // namespace octet
