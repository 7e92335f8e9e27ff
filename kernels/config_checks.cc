#include "kernels/config_checks.h"

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "octet/fp8.h"

namespace octet {

absl::Status OutOfRange(absl::string_view field, int value, int low, int high) {
  return absl::InvalidArgumentError(
      absl::StrCat(field, " is ", value, "; it must be from ", low, " to ", high));
}

absl::Status CheckRange(absl::string_view field, int value, int low, int high) {
  return value < low || value > high ? OutOfRange(field, value, low, high) : absl::OkStatus();
}

absl::Status ValidateQuantized(const EpConfig& config) {
  if (config.scale_group != 64 && config.scale_group != 128 && config.scale_group != 256) {
    return absl::InvalidArgumentError(
        absl::StrCat("scale_group is ", config.scale_group,
                     "; rows that dispatch quantises have groups of 64, 128 or 256 columns"));
  }
  if (WithNativeFp8(config.fp8_form) != WithNativeFp8(Fp8Form::kNative)) {
    return absl::InvalidArgumentError(absl::StrCat("fp8_form is ", Fp8FormName(config.fp8_form),
                                                   "; this platform quantises to ",
                                                   Fp8FormName(WithNativeFp8(Fp8Form::kNative))));
  }
  return absl::OkStatus();
}

absl::Status RefuseQuantized(const EpConfig& config) {
  if (config.dispatch_format != DispatchFormat::kQuantizedFp8) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("dispatch_format is quantized_fp8, but ",
                                                 StrategyName(config.strategy),
                                                 " moves rows as they are"));
}

absl::Status RefuseRowsApart(const EpConfig& config) {
  if (!config.rows_apart()) return absl::OkStatus();
  return absl::InvalidArgumentError("expert_major and rank_major need the strategy low_latency");
}

absl::Status RefuseMasks(const EpConfig& config) {
  const EpConfig plain;
  if (config.failure_policy == plain.failure_policy && config.mask_timeout == plain.mask_timeout &&
      config.statistics == plain.statistics) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      absl::StrCat("failure_policy mask, mask_timeout and statistics need the strategy "
                   "low_latency, not ",
                   StrategyName(config.strategy)));
}

}  // namespace octet
