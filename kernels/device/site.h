// The waits and checks of the strategies' kernels (device::Site::site). kernels/site_text.h has
// their names for messages. Shared by host and device.
#ifndef OCTET_KERNELS_DEVICE_SITE_H_
#define OCTET_KERNELS_DEVICE_SITE_H_

#include <cstdint>

namespace octet {

enum class Site : uint32_t {
  kBlockCount,  // index: block of this rank
  kDispatchCredit,
  kLayoutCredit,  // as kDispatchCredit, with the number of the layout that the peer dispatches with
  kDispatchCount,   // index: column of the counts
  kDispatchPacket,  // index: slot
  kDispatchRow,     // index: slot
  kDispatchSource,  // one flag for all of a source's rows
  kCombineCredit,
  kCombineRow,     // index: token
  kCombineSource,  // as kDispatchSource; low_latency: the source has begun to send
  // Checks of the caller's input, not waits.
  kExpertOutOfRange,        // index: flat index, seen: the id, expected: E
  kExpertTwice,             // the same
  kScatterIndexOutOfRange,  // index: flat index, seen: the index, expected: rows of that expert
  kLayoutsDiffer,           // seen: the number of the peer's layout, expected: this rank's
};

}  // namespace octet

#endif  // OCTET_KERNELS_DEVICE_SITE_H_
