#include "kernels/ep/strategy_registry.h"

#include <array>

#include "kernels/direct/info.h"
#include "kernels/high_throughput/info.h"
#include "kernels/low_latency/info.h"

namespace octet {

absl::Span<const StrategyInfo* const> StrategyInfos() {
  static constexpr std::array kInfos = {
      &direct::kInfo,
      &high_throughput::kInfo,
      &low_latency::kInfo,
  };
  return kInfos;
}

const StrategyInfo& InfoOf(Strategy strategy) {
  for (const StrategyInfo* info : StrategyInfos()) {
    if (info->strategy == strategy) return *info;
  }
  return *StrategyInfos().front();
}

const std::vector<Strategy>& AllStrategies() {
  static const auto& strategies = *[] {
    auto* all = new std::vector<Strategy>;
    for (const StrategyInfo* info : StrategyInfos()) all->push_back(info->strategy);
    return all;
  }();
  return strategies;
}

}  // namespace octet
