// A field of Tuning, identified by its name in files and flags.
#ifndef OCTET_KERNELS_TUNING_TUNING_FIELD_H_
#define OCTET_KERNELS_TUNING_TUNING_FIELD_H_

#include <string>

#include "absl/strings/string_view.h"
#include "octet/ep_config.h"

namespace octet {

struct TuningField {
  absl::string_view name;
  int Tuning::* number = nullptr;  // nullptr: the field is Tuning::row_copies

  std::string Text(const Tuning& tuning) const;
};

}  // namespace octet

#endif  // OCTET_KERNELS_TUNING_TUNING_FIELD_H_
