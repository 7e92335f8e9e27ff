// Where a wait or a check of a strategy's kernels stands (device::Site::site). StrategyBase has the
// words for people. Shared by host and device.
#ifndef OCTET_KERNELS_DEVICE_SITE_H_
#define OCTET_KERNELS_DEVICE_SITE_H_

#include <cstdint>

namespace octet {

enum class Site : uint32_t {
  kBlockCount,  // index: block of this rank
  kDispatchCredit,
  kLayoutCredit,    // the same, with the number of the layout that the peer dispatches with
  kDispatchCount,   // index: column of the counts
  kDispatchPacket,  // index: slot
  kDispatchRow,     // likewise
  kDispatchSource,  // a flag for all of a source's rows
  kCombineCredit,
  kCombineRow,     // index: token
  kCombineSource,  // as kDispatchSource; low_latency: that the source has begun to send
  // Checks of the caller's input, not waits.
  kExpertOutOfRange,        // index: flat index, seen: the id, expected: E
  kExpertTwice,             // likewise
  kScatterIndexOutOfRange,  // index: flat index, seen: the index, expected: rows of that expert
  kLayoutsDiffer,           // seen: the number of the peer's layout, expected: this rank's
};

}  // namespace octet

#endif  // OCTET_KERNELS_DEVICE_SITE_H_
