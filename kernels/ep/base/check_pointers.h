// Checks of the pointers that callers pass.
#ifndef OCTET_KERNELS_EP_BASE_CHECK_POINTERS_H_
#define OCTET_KERNELS_EP_BASE_CHECK_POINTERS_H_

#include <cstddef>
#include <initializer_list>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "kernels/ep/device/rank_flags.h"
#include "octet/node.h"

namespace octet {

struct NamedPointer {
  absl::string_view name;
  const void* pointer;
  size_t alignment = kVecBytes;
};

// Returns OK if each argument is null or points to aligned memory of the rank's own GPU. Kernels
// could read other memory through the same pointers only slowly or not at all.
absl::Status CheckPointers(const Rank& rank, std::initializer_list<NamedPointer> arguments);
// The same for an object that belongs to `device`, and to no rank.
absl::Status CheckPointersOn(int device, std::initializer_list<NamedPointer> arguments);

// What a call certainly reads or writes. Where only the GPU knows how many rows there are, this is
// the first of them.
struct NamedRange {
  absl::string_view name;
  const void* begin = nullptr;
  size_t bytes = 0;
};

// Returns OK if `out` shares no byte with any of `others`. A range at nullptr has none.
absl::Status CheckApart(const Rank& rank, const NamedRange& out,
                        std::initializer_list<NamedRange> others);
// The same for an object that belongs to no rank.
absl::Status CheckApart(const NamedRange& out, std::initializer_list<NamedRange> others);

// Memory that a call may use, by the contract of its arguments: it has room for `rows` rows.
struct NamedRoom {
  absl::string_view name;
  const void* begin = nullptr;
  size_t rows = 0;
  size_t row_bytes = 0;
  bool optional = false;  // may be null
};

// Returns OK if each argument has that room; in emulation alone, its size is known. Comes after
// CheckPointers.
absl::Status CheckRoom(const Rank& rank, std::initializer_list<NamedRoom> arguments);
// The same for an object that belongs to no rank.
absl::Status CheckRoom(std::initializer_list<NamedRoom> arguments);

}  // namespace octet

#endif  // OCTET_KERNELS_EP_BASE_CHECK_POINTERS_H_
