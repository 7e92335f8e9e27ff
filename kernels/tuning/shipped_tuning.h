// The tuning that comes with the library: kernels/tuning/tuning.json, written by `octet tune`.
#ifndef OCTET_KERNELS_TUNING_SHIPPED_TUNING_H_
#define OCTET_KERNELS_TUNING_SHIPPED_TUNING_H_

#include "absl/strings/string_view.h"

namespace octet {

extern const absl::string_view kShippedTuning;

}  // namespace octet

#endif  // OCTET_KERNELS_TUNING_SHIPPED_TUNING_H_
