#include "kernels/ep/traffic.h"

#include <bit>
#include <cstddef>

#include "kernels/ep/device/routing.h"
#include "kernels/ep/physical.h"

namespace octet {

Traffic TrafficOf(const WireFormat& format, const EpConfig& config, int num_ranks, int rank,
                  absl::Span<const int32_t> topk_idx) {
  const auto topk = static_cast<size_t>(config.topk);
  if (!config.placement.empty()) {
    return TrafficOf(format, PhysicalConfig(config), num_ranks, rank,
                     PhysicalIds(config.placement, rank, topk_idx, config.topk));
  }
  const ExpertMap experts = MakeExpertMap(config.num_experts, num_ranks);
  int64_t choices = 0;
  int64_t remote_choices = 0;
  int64_t tokens = 0;  // each token once for each destination rank
  int64_t remote_tokens = 0;
  for (size_t first = 0; first < topk_idx.size(); first += topk) {
    uint32_t ranks = 0;
    for (const int32_t id : topk_idx.subspan(first, topk)) {
      if (id < 0) continue;
      const int to = experts.RankOf(id);
      ranks |= 1U << to;
      ++choices;
      remote_choices += to != rank ? 1 : 0;
    }
    tokens += std::popcount(ranks);
    remote_tokens += std::popcount(ranks & ~(1U << rank));
  }
  const int64_t rows = format.once_per_rank ? tokens : choices;
  const int64_t remote_rows = format.once_per_rank ? remote_tokens : remote_choices;
  return {.rows = rows,
          .logical_bytes = rows * format.row,
          .wire_bytes = remote_rows * (format.row + format.beside_row) +
                        remote_choices * format.beside_choice + (num_ranks - 1) * format.to_peer};
}

}  // namespace octet
