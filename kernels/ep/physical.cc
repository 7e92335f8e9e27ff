#include "kernels/ep/physical.h"

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"

namespace octet {

absl::Status CheckPlacement(const EpConfig& config, int num_ranks) {
  const Placement& placement = config.placement;
  if (placement.empty()) return absl::OkStatus();
  if (placement.num_experts() != config.num_experts || placement.num_ranks() != num_ranks) {
    return absl::InvalidArgumentError(absl::StrCat(
        "placement is of ", placement.num_experts(), " experts on ", placement.num_ranks(),
        " ranks; there are ", config.num_experts, " experts and ", num_ranks, " ranks"));
  }
  if (placement.slots().size() <= kMaxExperts) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("placement has ", placement.slots().size(),
                                                 " slots on all ranks; ", kMaxExperts,
                                                 " are the most"));
}

EpConfig PhysicalConfig(const EpConfig& config) {
  EpConfig physical = config;
  if (config.placement.empty()) return physical;
  physical.num_experts = static_cast<int>(config.placement.slots().size());
  physical.placement = Placement();
  return physical;
}

std::string DigestOf(const Placement& placement) {
  if (placement.empty()) return "none";
  constexpr uint64_t kOffset = 0xcbf29ce484222325;  // FNV-1a, 64 bits
  constexpr uint64_t kPrime = 0x100000001b3;
  uint64_t hash = kOffset;
  for (const int32_t expert : placement.slots()) {
    for (int bit = 0; bit < 32; bit += 8) {
      hash = (hash ^ (static_cast<uint32_t>(expert) >> bit & 0xff)) * kPrime;
    }
  }
  return absl::StrCat(placement.num_ranks(), "x", placement.slots_per_rank(), ":", absl::Hex(hash));
}

std::vector<int32_t> PhysicalIds(const Placement& placement, int source_rank,
                                 absl::Span<const int32_t> topk_idx, int topk, int first_token) {
  std::vector<int32_t> ids(topk_idx.begin(), topk_idx.end());
  for (size_t i = 0; i < ids.size(); ++i) {
    if (ids[i] < 0 || ids[i] >= placement.num_experts()) continue;
    const int token = first_token + static_cast<int>(i / static_cast<size_t>(topk));
    ids[i] = placement.PhysicalOf(ids[i], source_rank, token);
  }
  return ids;
}

ExpertLoads LogicalLoads(const Placement& placement, const ExpertLoads& physical) {
  const auto experts = static_cast<size_t>(placement.num_experts());
  ExpertLoads loads = {.rows = std::vector<int64_t>(experts, 0),
                       .window = std::vector<int64_t>(experts, 0)};
  const absl::Span<const int32_t> slots = placement.slots();
  for (size_t slot = 0; slot < slots.size(); ++slot) {
    if (slots[slot] < 0) continue;
    const auto expert = static_cast<size_t>(slots[slot]);
    loads.rows[expert] += physical.rows[slot];
    loads.window[expert] += physical.window[slot];
  }
  return loads;
}

}  // namespace octet
