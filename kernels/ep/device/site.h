// The numbers of sites: the waits and checks in kernels (device::Site::site). Each strategy numbers
// its own from kFirstOwnSite on (sites.h in its folder). Shared by host and device.
#ifndef OCTET_KERNELS_EP_DEVICE_SITE_H_
#define OCTET_KERNELS_EP_DEVICE_SITE_H_

#include <cstdint>

namespace octet {

// The checks of the routing that all strategies make. Index: flat index into topk_idx, seen: the
// id, expected: E.
enum class RoutingCheck : uint32_t {
  kExpertOutOfRange,
  kExpertTwice,
};
inline constexpr uint32_t kFirstOwnSite = 2;

}  // namespace octet

#endif  // OCTET_KERNELS_EP_DEVICE_SITE_H_
