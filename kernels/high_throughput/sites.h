// The waits and checks in the kernels of `high_throughput`; info.cc has their texts. Shared by host
// and device.
#ifndef OCTET_KERNELS_HIGH_THROUGHPUT_SITES_H_
#define OCTET_KERNELS_HIGH_THROUGHPUT_SITES_H_

#include <cstdint>

#include "kernels/ep/device/site.h"

namespace octet::high_throughput {

enum class Site : uint32_t {
  kBlockCount = kFirstOwnSite,  // index: block of this rank
  kLayoutCredit,                // a credit for a dispatch, with the number of the peer's layout
  kDispatchCount,               // index: column of the counts
  kDispatchPacket,              // index: slot
  kCombineCredit,
  kCombineRow,  // index: token
  // Checks of the caller's input, not waits.
  kScatterIndexOutOfRange,  // index: flat index, seen: the index, expected: rows of that expert
  kLayoutsDiffer,           // seen: the number of the peer's layout, expected: this rank's
  kTooManyRows,             // index: the rank with the most rows, seen: those, expected: room
  // Waits of a dispatch with a product.
  kOrderedBlock,  // index: block of this rank
  kRowArrival,    // index: row
  kReadyGroup,    // index: the first row of the group
  kReadyExpert,   // index: local expert; seen: its rows that are complete
  // A wait of a combine with a product.
  kProductPass,  // index: pass; how many of those who multiply have ended it
  // A wait of a product's warps for one another, in either.
  kProductBlock,  // index: block of this rank
};

}  // namespace octet::high_throughput

#endif  // OCTET_KERNELS_HIGH_THROUGHPUT_SITES_H_
