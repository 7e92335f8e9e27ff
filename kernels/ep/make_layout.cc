#include "kernels/ep/make_layout.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "kernels/ep/device/rank_flags.h"
#include "kernels/ep/device/routing.h"
#include "kernels/ep/device/token_packet.h"

namespace octet {

void SetShape(const EpConfig& config, int num_ranks, CallLayout& layout) {
  const ExpertMap experts =
      MakeExpertMap(config.num_local_experts(num_ranks) * num_ranks, num_ranks);
  layout.num_ranks = num_ranks;
  layout.num_experts = experts.num_experts;
  layout.num_local_experts = experts.num_local_experts;
  layout.inverse = experts.inverse;
  layout.topk = config.topk;
  layout.max_tokens = config.max_tokens_per_rank;
  layout.max_rows = config.max_rows(num_ranks);
}

void SetShape(const EpConfig& config, int num_ranks, PacketLayout& layout) {
  SetShape(config, num_ranks, static_cast<CallLayout&>(layout));
  layout.max_choices = std::min(config.topk, layout.num_local_experts);
  layout.packet_bytes = device::PacketBytes(layout.max_choices);
  layout.per_rank = config.combine_order == CombineOrder::kPerRank;
  layout.combine_slots = layout.per_rank ? std::min(config.topk, num_ranks) : config.topk;
  layout.own_slots = config.low_latency.failure_policy == FailurePolicy::kMask;
  layout.rank_slots = layout.per_rank ? 1 : layout.max_choices;
  if (layout.own_slots) layout.combine_slots = num_ranks * layout.rank_slots;
}

void PlaceCounts(HeapPieces& heap, CallLayout& layout) {
  const auto ranks = static_cast<size_t>(layout.num_ranks);
  layout.counts = heap.Place(2 * ranks * static_cast<size_t>(layout.num_counts) * sizeof(uint64_t),
                             "dispatch counts");
  layout.dispatch_credits = heap.Place(ranks * sizeof(Flag), "dispatch credits");
  layout.combine_credits = heap.Place(ranks * sizeof(Flag), "combine credits");
}

}  // namespace octet
