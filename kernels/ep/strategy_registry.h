// The list of all strategies.
#ifndef OCTET_KERNELS_EP_STRATEGY_REGISTRY_H_
#define OCTET_KERNELS_EP_STRATEGY_REGISTRY_H_

#include <string>
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

// Returns whether the calls of a strategy have a capability; not those of kAuto, which are of any.
bool Has(Strategy strategy, bool StrategyInfo::* capability);
// Returns whether a strategy takes rows of a format; kAuto does not say so.
bool Takes(Strategy strategy, DispatchFormat format);
// Returns the first strategy that has a capability, and the names of all, "a or b".
Strategy FirstWith(bool StrategyInfo::* capability);
std::string NamesWith(bool StrategyInfo::* capability);

}  // namespace octet

#endif  // OCTET_KERNELS_EP_STRATEGY_REGISTRY_H_
