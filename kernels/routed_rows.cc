#include "kernels/routed_rows.h"

#include <bit>
#include <cstddef>

namespace octet {

RoutedRows CountChoices(absl::Span<const int32_t> topk_idx, int num_local_experts, int rank) {
  RoutedRows rows;
  for (const int32_t id : topk_idx) {
    if (id < 0) continue;
    ++rows.all;
    if (id / num_local_experts != rank) ++rows.remote;
  }
  return rows;
}

RoutedRows CountOncePerRank(absl::Span<const int32_t> topk_idx, int topk, int num_local_experts,
                            int rank) {
  const auto choices = static_cast<size_t>(topk);
  RoutedRows rows;
  for (size_t first = 0; first < topk_idx.size(); first += choices) {
    uint32_t ranks = 0;
    for (const int32_t id : topk_idx.subspan(first, choices)) {
      if (id >= 0) ranks |= 1U << (id / num_local_experts);
    }
    rows.all += std::popcount(ranks);
    rows.remote += std::popcount(ranks & ~(1U << rank));
  }
  return rows;
}

}  // namespace octet
