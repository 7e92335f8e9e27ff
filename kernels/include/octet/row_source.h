// Where received rows come from, and where those of one source lie. Shared by host and device.
#ifndef OCTET_ROW_SOURCE_H_
#define OCTET_ROW_SOURCE_H_

#include <cstdint>

namespace octet {

struct alignas(16) RowSource {
  int32_t rank;          // whose token
  int32_t token;         // its index on that rank
  int32_t k;             // which of its choices
  int32_t local_expert;  // chosen expert - first expert of this rank
};

// Rows [first, first + count).
struct RowRange {
  int32_t first;
  int32_t count;
};

}  // namespace octet

#endif  // OCTET_ROW_SOURCE_H_
