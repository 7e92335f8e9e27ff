#ifndef OCTET_KERNELS_LOW_LATENCY_INFO_H_
#define OCTET_KERNELS_LOW_LATENCY_INFO_H_

#include "kernels/ep/strategy_info.h"

namespace octet::low_latency {

extern const StrategyInfo kInfo;

}  // namespace octet::low_latency

#endif  // OCTET_KERNELS_LOW_LATENCY_INFO_H_
