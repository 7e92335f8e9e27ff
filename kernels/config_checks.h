// Configuration checks that several strategies share.
#ifndef OCTET_KERNELS_CONFIG_CHECKS_H_
#define OCTET_KERNELS_CONFIG_CHECKS_H_

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "octet/ep_config.h"

namespace octet {

// Returns the error "`field` is `value`; it must be from `low` to `high`".
absl::Status OutOfRange(absl::string_view field, int value, int low, int high);
absl::Status CheckRange(absl::string_view field, int value, int low, int high);

// Checks the requirements of every strategy that quantises rows.
absl::Status ValidateQuantized(const EpConfig& config);

// Return an error if `config` asks for a feature that the calling strategy does not support:
//   RefuseQuantized   rows that dispatch quantises
//   RefuseRowsApart   Output::kExpertMajor or kRankMajor
//   RefuseMasks       masks or statistics
absl::Status RefuseQuantized(const EpConfig& config);
absl::Status RefuseRowsApart(const EpConfig& config);
absl::Status RefuseMasks(const EpConfig& config);

}  // namespace octet

#endif  // OCTET_KERNELS_CONFIG_CHECKS_H_
