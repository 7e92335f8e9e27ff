#include "kernels/ep/config_checks.h"

#include "absl/strings/str_cat.h"
#include "octet/fp8.h"

namespace octet {

absl::Status OutOfRange(absl::string_view field, int value, int low, int high) {
  return absl::InvalidArgumentError(
      absl::StrCat(field, " is ", value, "; it must be from ", low, " to ", high));
}

absl::Status CheckRange(absl::string_view field, int value, int low, int high) {
  return value < low || value > high ? OutOfRange(field, value, low, high) : absl::OkStatus();
}

absl::Status CheckNoCapacity(const EpConfig& config) {
  if (config.capacity_rows == 0) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("capacity_rows is ", config.capacity_rows, "; ",
                                                 EnumName(config.strategy),
                                                 " sends rows before a rank knows how many there "
                                                 "will be, and needs memory for all: it must be "
                                                 "0, or the strategy high_throughput"));
}

absl::Status ValidateQuantized(const EpConfig& config) {
  if (config.scale_group != 64 && config.scale_group != 128 && config.scale_group != 256) {
    return absl::InvalidArgumentError(
        absl::StrCat("scale_group is ", config.scale_group,
                     "; rows that dispatch quantises have groups of 64, 128 or 256 columns"));
  }
  if (WithNativeFp8(config.fp8_form) != WithNativeFp8(Fp8Form::kNative)) {
    return absl::InvalidArgumentError(absl::StrCat("fp8_form is ", EnumName(config.fp8_form),
                                                   "; this platform quantises to ",
                                                   EnumName(WithNativeFp8(Fp8Form::kNative))));
  }
  return absl::OkStatus();
}

}  // namespace octet
