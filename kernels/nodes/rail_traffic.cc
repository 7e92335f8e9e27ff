#include "kernels/nodes/rail_traffic.h"

#include <bit>
#include <cstddef>
#include <cstdint>

#include "absl/types/span.h"
#include "kernels/ep/device/routing.h"
#include "kernels/nodes/options.h"
#include "octet/ep_config.h"
#include "octet/expert_parallel.h"

namespace octet::hierarchical {

Traffic RailTraffic::OfRows(absl::Span<const int32_t> topk_idx, size_t row_bytes) const {
  const ExpertMap experts = MakeExpertMap(config_.num_experts, num_nodes_);
  const auto topk = static_cast<size_t>(config_.topk);
  Traffic traffic;
  for (size_t token = 0; token + topk <= topk_idx.size(); token += topk) {
    uint32_t nodes = 0;
    for (const int32_t id : topk_idx.subspan(token, topk)) {
      if (experts.IsExpert(id)) nodes |= uint32_t{1} << experts.RankOf(id);
    }
    traffic.rows += std::popcount(nodes & ~(uint32_t{1} << node_));
  }
  traffic.logical_bytes = traffic.rows * static_cast<int64_t>(row_bytes);
  const int64_t crossing =
      counted_ ? traffic.rows : static_cast<int64_t>(num_nodes_ - 1) * config_.max_tokens_per_rank;
  traffic.wire_bytes = crossing * static_cast<int64_t>(row_bytes);
  return traffic;
}

Traffic RailTraffic::OfDispatch(absl::Span<const int32_t> topk_idx) const {
  Traffic traffic =
      OfRows(topk_idx, config_.dispatch_row_bytes() + RailRecordBytes(config_, num_nodes_));
  if (counted_) traffic.wire_bytes += (num_nodes_ - 1) * static_cast<int64_t>(sizeof(int32_t));
  return traffic;
}

Traffic RailTraffic::OfCombine(absl::Span<const int32_t> topk_idx) const {
  return OfRows(topk_idx, config_.dtype_row_bytes());
}

}  // namespace octet::hierarchical
