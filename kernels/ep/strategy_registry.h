// The list of all strategies.
#ifndef OCTET_KERNELS_EP_STRATEGY_REGISTRY_H_
#define OCTET_KERNELS_EP_STRATEGY_REGISTRY_H_

#include <vector>

#include "absl/types/span.h"
#include "kernels/ep/strategy_info.h"
#include "octet/ep_config.h"

namespace octet {

// Returns all strategies, in the order in which programs list them.
absl::Span<const StrategyInfo* const> StrategyInfos();

// Returns the info of `strategy`, which must not be kAuto.
const StrategyInfo& InfoOf(Strategy strategy);

// Returns all strategies except kAuto, in the same order.
const std::vector<Strategy>& AllStrategies();

}  // namespace octet

#endif  // OCTET_KERNELS_EP_STRATEGY_REGISTRY_H_
