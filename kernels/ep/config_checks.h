// Configuration checks that several strategies share.
#ifndef OCTET_KERNELS_EP_CONFIG_CHECKS_H_
#define OCTET_KERNELS_EP_CONFIG_CHECKS_H_

#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "octet/ep_config.h"

namespace octet {

// Returns the error "`field` is `value`; it must be from `low` to `high`".
absl::Status OutOfRange(absl::string_view field, int value, int low, int high);
absl::Status CheckRange(absl::string_view field, int value, int low, int high);

// For a strategy that moves rows before it knows all counts: refuses capacity_rows, naming it.
absl::Status CheckNoCapacity(const EpConfig& config);
// Checks the requirements of every strategy that quantises rows.
absl::Status ValidateQuantized(const EpConfig& config);

// Adds `name` to `names` if `value` differs from `plain`.
template <typename T>
void AddIfSet(absl::string_view name, const T& value, const T& plain,
              std::vector<absl::string_view>& names) {
  if (value != plain) names.push_back(name);
}

}  // namespace octet

#endif  // OCTET_KERNELS_EP_CONFIG_CHECKS_H_
