#include "runtime/gpu/launch.h"

#include <cstdint>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace octet {

absl::Status CheckResident(absl::string_view kernel, const LaunchShape& shape, int blocks_per_unit,
                           int num_compute_units) {
  if (shape.blocks <= 0 || shape.threads <= 0) {
    return absl::InvalidArgumentError(absl::StrCat(kernel, ": ", shape.blocks, " blocks of ",
                                                   shape.threads,
                                                   " threads: both must be at least 1"));
  }
  const int64_t most = static_cast<int64_t>(blocks_per_unit) * num_compute_units;
  if (shape.blocks <= most) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      kernel, ": ", shape.blocks, " blocks of ", shape.threads, " threads and ", shape.shared_bytes,
      " bytes of dynamic shared memory cannot be resident at once: ", blocks_per_unit,
      " per compute unit on ", num_compute_units, " compute units makes ", most,
      "; ask for at most as many (EpConfig::tuning), or for 0, the strategy's choice"));
}

}  // namespace octet
