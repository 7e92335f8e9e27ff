// Checks of the pointers that callers pass.
#ifndef OCTET_KERNELS_CHECK_POINTERS_H_
#define OCTET_KERNELS_CHECK_POINTERS_H_

#include <cstddef>
#include <initializer_list>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "kernels/device/rank_flags.h"
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

}  // namespace octet

#endif  // OCTET_KERNELS_CHECK_POINTERS_H_
