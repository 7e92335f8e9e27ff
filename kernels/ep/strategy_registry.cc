#include "kernels/ep/strategy_registry.h"

#include <array>
#include <string>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
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

bool Has(Strategy strategy, bool StrategyInfo::* capability) {
  return strategy != Strategy::kAuto && InfoOf(strategy).*capability;
}

bool Takes(Strategy strategy, DispatchFormat format) {
  return strategy != Strategy::kAuto && absl::c_linear_search(InfoOf(strategy).formats, format);
}

Strategy FirstWith(bool StrategyInfo::* capability) {
  for (const StrategyInfo* info : StrategyInfos()) {
    if (info->*capability) return info->strategy;
  }
  return Strategy::kAuto;
}

std::string NamesWith(bool StrategyInfo::* capability) {
  std::vector<absl::string_view> names;
  for (const StrategyInfo* info : StrategyInfos()) {
    if (info->*capability) names.push_back(info->name);
  }
  return absl::StrJoin(names, " or ");
}

}  // namespace octet
