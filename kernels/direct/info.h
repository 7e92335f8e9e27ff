#ifndef OCTET_KERNELS_DIRECT_INFO_H_
#define OCTET_KERNELS_DIRECT_INFO_H_

#include "kernels/ep/strategy_info.h"

namespace octet::direct {

extern const StrategyInfo kInfo;

}  // namespace octet::direct

#endif  // OCTET_KERNELS_DIRECT_INFO_H_
