// The waits and checks in the kernels of `direct`; info.cc has their texts. Shared by host and
// device.
#ifndef OCTET_KERNELS_DIRECT_SITES_H_
#define OCTET_KERNELS_DIRECT_SITES_H_

#include <cstdint>

#include "kernels/ep/device/site.h"

namespace octet::direct {

enum class Site : uint32_t {
  kDispatchCredit = kFirstOwnSite,
  kDispatchCount,   // index: column of the counts
  kDispatchRow,     // index: slot
  kDispatchSource,  // one flag for all of a source's rows
  kCombineCredit,
  kCombineRow,     // index: token
  kCombineSource,  // as kDispatchSource
};

}  // namespace octet::direct

#endif  // OCTET_KERNELS_DIRECT_SITES_H_
