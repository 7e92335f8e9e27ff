// The waits and checks in the kernels of `low_latency`; info.cc has their texts. Shared by host and
// device.
#ifndef OCTET_KERNELS_LOW_LATENCY_SITES_H_
#define OCTET_KERNELS_LOW_LATENCY_SITES_H_

#include <cstdint>

#include "kernels/ep/device/site.h"

namespace octet::low_latency {

enum class Site : uint32_t {
  kDispatchCredit = kFirstOwnSite,
  kDispatchCount,   // index: column of the counts
  kDispatchPacket,  // index: slot
  kCombineCredit,
  kCombineRow,    // index: token
  kCombineBegun,  // the source has begun to send
};

}  // namespace octet::low_latency

#endif  // OCTET_KERNELS_LOW_LATENCY_SITES_H_
