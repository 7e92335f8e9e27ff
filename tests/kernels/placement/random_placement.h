// Placements for tests.
#ifndef OCTET_TESTS_KERNELS_PLACEMENT_RANDOM_PLACEMENT_H_
#define OCTET_TESTS_KERNELS_PLACEMENT_RANDOM_PLACEMENT_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <random>
#include <vector>

#include "octet/placement.h"

namespace octet {

// Returns a placement with every expert in one slot, and further replicas in `more` of the slots
// that are left.
inline Placement RandomPlacement(std::mt19937_64& rng, int num_experts, int num_ranks, int slots,
                                 double more) {
  const auto per_rank = static_cast<size_t>(slots);
  std::vector<int32_t> table(static_cast<size_t>(num_ranks) * per_rank, Placement::kFreeSlot);
  std::vector<size_t> order(table.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::shuffle(order.begin(), order.end(), rng);
  for (size_t i = 0; i < order.size(); ++i) {
    int32_t& slot = table[order[i]];
    if (i < static_cast<size_t>(num_experts)) {
      slot = static_cast<int32_t>(i);
      continue;
    }
    const auto expert = static_cast<int32_t>(rng() % static_cast<uint64_t>(num_experts));
    const auto rank = static_cast<ptrdiff_t>(order[i] / per_rank * per_rank);
    const auto first = table.begin() + rank;
    const bool there = std::find(first, first + slots, expert) != first + slots;
    if (!there && std::uniform_real_distribution(0.0, 1.0)(rng) < more) slot = expert;
  }
  return *Placement::Create(num_experts, num_ranks, table);
}

}  // namespace octet

#endif  // OCTET_TESTS_KERNELS_PLACEMENT_RANDOM_PLACEMENT_H_
