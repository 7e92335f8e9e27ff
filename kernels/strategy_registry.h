// The strategies that there are.
#ifndef OCTET_KERNELS_STRATEGY_REGISTRY_H_
#define OCTET_KERNELS_STRATEGY_REGISTRY_H_

#include <string>
#include <vector>

#include "absl/types/span.h"
#include "kernels/strategy_info.h"
#include "octet/ep_config.h"

namespace octet {

// All strategies, in the order in which programs list them.
absl::Span<const StrategyInfo* const> StrategyInfos();

// `strategy` must not be kAuto.
const StrategyInfo& InfoOf(Strategy strategy);

// "direct, high_throughput, ...": all names, in the same order.
std::string StrategyNames();

// All but kAuto, in the same order.
const std::vector<Strategy>& AllStrategies();

}  // namespace octet

#endif  // OCTET_KERNELS_STRATEGY_REGISTRY_H_
