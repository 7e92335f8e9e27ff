#ifndef OCTET_KERNELS_HIGH_THROUGHPUT_INFO_H_
#define OCTET_KERNELS_HIGH_THROUGHPUT_INFO_H_

#include "kernels/ep/strategy_info.h"

namespace octet::high_throughput {

extern const StrategyInfo kInfo;

}  // namespace octet::high_throughput

#endif  // OCTET_KERNELS_HIGH_THROUGHPUT_INFO_H_
