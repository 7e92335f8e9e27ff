#include "octet/ep_config.h"

#include <algorithm>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "octet/peers.h"

namespace octet {
namespace {

absl::Status OutOfRange(absl::string_view field, int value, int low, int high) {
  return absl::InvalidArgumentError(
      absl::StrCat(field, " is ", value, "; it must be from ", low, " to ", high));
}

absl::Status CheckRange(absl::string_view field, int value, int low, int high) {
  return value < low || value > high ? OutOfRange(field, value, low, high) : absl::OkStatus();
}

// What any strategy that quantises has to offer.
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

absl::Status RefuseRoomForAll(const EpConfig& config) {
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

// What only high_throughput can do, and what that cannot.
absl::Status ValidateHighThroughput(const EpConfig& config) {
  for (const absl::Status& status :
       {RefuseQuantized(config), RefuseRoomForAll(config), RefuseMasks(config),
        CheckRange("scale_group", config.scale_group, 1, kMaxHidden),
        CheckRange("expert_alignment", config.expert_alignment, 1, kMaxExpertAlignment),
        CheckRange("kept_layouts", config.kept_layouts, 1, kMaxKeptLayouts)}) {
    if (!status.ok()) return status;
  }
  if (config.dispatch_format == DispatchFormat::kBytes) {
    const absl::Status status = CheckRange("row_bytes", config.row_bytes, 16, kMaxRowBytes);
    if (!status.ok()) return status;
  }
  if (config.dispatch_row_bytes() % 16 != 0) {
    return absl::InvalidArgumentError(absl::StrCat("a row of dispatch has ",
                                                   config.dispatch_row_bytes(),
                                                   " bytes; they must be a multiple of 16"));
  }
  if (config.slots != Slots::kPrefix || config.flags != Flags::kToken) {
    return absl::InvalidArgumentError(
        "high_throughput has slots by prefix sums and flags for tokens only");
  }
  if (config.output == Output::kDeduplicated) {
    if (config.combine_order == CombineOrder::kFlat) {
      return absl::InvalidArgumentError(
          "deduplicated rows are summed on the experts' rank: combine_order must be per_rank");
    }
    if (config.duplicates != Duplicates::kFill || config.expert_alignment != 1) {
      return absl::InvalidArgumentError(
          "deduplicated rows have neither duplicates nor an expert_alignment");
    }
  }
  return absl::OkStatus();
}

absl::Status ValidateLowLatency(const EpConfig& config) {
  const EpConfig plain;
  for (const absl::Status& status :
       {CheckRange("max_tokens_per_rank", config.max_tokens_per_rank, 1, kMaxLowLatencyTokens),
        CheckRange("num_experts", config.num_experts, 1, kMaxLowLatencyExperts),
        CheckRange("hidden", config.hidden, 8, kMaxLowLatencyHidden)}) {
    if (!status.ok()) {
      return absl::InvalidArgumentError(absl::StrCat("low_latency: ", status.message()));
    }
  }
  if (config.mask_timeout < absl::ZeroDuration() ||
      (config.mask_timeout > absl::ZeroDuration() &&
       config.failure_policy != FailurePolicy::kMask)) {
    return absl::InvalidArgumentError(
        absl::StrCat("mask_timeout is ", absl::FormatDuration(config.mask_timeout),
                     "; it must be positive and go with failure_policy mask"));
  }
  if (config.slots != plain.slots || config.flags != plain.flags ||
      config.combine_method == CombineMethod::kPull) {
    return absl::InvalidArgumentError(
        "low_latency has slots by prefix sums, flags for tokens and combine by push only");
  }
  const bool quantized = config.dispatch_format == DispatchFormat::kQuantizedFp8;
  if ((!quantized && config.dispatch_format != plain.dispatch_format) ||
      config.output == Output::kDeduplicated || config.duplicates != plain.duplicates ||
      config.expert_alignment != plain.expert_alignment ||
      config.kept_layouts != plain.kept_layouts || config.host_totals != plain.host_totals) {
    return absl::InvalidArgumentError(
        "dispatch_format fp8 and bytes, deduplicated output, duplicates, expert_alignment, "
        "kept_layouts and "
        "host_totals need the strategy high_throughput");
  }
  return absl::OkStatus();
}

absl::Status ValidateDirect(const EpConfig& config) {
  const EpConfig plain;
  for (const absl::Status& status :
       {RefuseQuantized(config), RefuseRoomForAll(config), RefuseMasks(config)}) {
    if (!status.ok()) return status;
  }
  if (config.combine_order == CombineOrder::kPerRank ||
      config.combine_method == CombineMethod::kPull) {
    return absl::InvalidArgumentError("direct combines in the order flat and by push only");
  }
  if (config.dispatch_format != plain.dispatch_format || config.output != plain.output ||
      config.duplicates != plain.duplicates || config.expert_alignment != plain.expert_alignment ||
      config.kept_layouts != plain.kept_layouts || config.host_totals != plain.host_totals) {
    return absl::InvalidArgumentError(
        "dispatch_format, output, duplicates, expert_alignment, kept_layouts and host_totals need "
        "the strategy high_throughput");
  }
  return absl::OkStatus();
}

// What has to do with the strategy, which is not kAuto.
absl::Status ValidateStrategy(const EpConfig& config) {
  if (config.dispatch_format == DispatchFormat::kQuantizedFp8) {
    absl::Status status = ValidateQuantized(config);
    if (!status.ok()) return status;
  }
  switch (config.strategy) {
    case Strategy::kHighThroughput:
      return ValidateHighThroughput(config);
    case Strategy::kLowLatency:
      return ValidateLowLatency(config);
    case Strategy::kAuto:
    case Strategy::kDirect:
      break;
  }
  return ValidateDirect(config);
}

// That there is a strategy for all of it; else why each of them is none.
absl::Status ValidateAuto(const EpConfig& config) {
  std::string reasons;
  for (const Strategy strategy : kStrategies) {
    EpConfig named = config;
    named.strategy = strategy;
    const absl::Status status = ValidateStrategy(named);
    if (status.ok()) return status;
    absl::StrAppend(&reasons, reasons.empty() ? "" : "; ", status.message());
  }
  return absl::InvalidArgumentError(absl::StrCat("no strategy can do all of it: ", reasons));
}

}  // namespace

size_t EpConfig::dispatch_row_bytes() const {
  switch (dispatch_format) {
    case DispatchFormat::kSame:
    case DispatchFormat::kQuantizedFp8:
      return static_cast<size_t>(hidden) * kElementBytes;
    case DispatchFormat::kFp8:
      return static_cast<size_t>(hidden);
    case DispatchFormat::kBytes:
      return static_cast<size_t>(row_bytes);
  }
  return 0;
}

size_t EpConfig::received_row_bytes() const {
  if (dispatch_format != DispatchFormat::kQuantizedFp8) return dispatch_row_bytes();
  return (static_cast<size_t>(hidden) + 15) / 16 * 16;
}

int EpConfig::max_rows(int num_ranks) const {
  const int tokens = num_ranks * max_tokens_per_rank;
  const int num_local = num_local_experts(num_ranks);
  if (output == Output::kExpertMajor) return tokens * num_local;
  return tokens * std::min(topk, num_local) + num_local * (expert_alignment - 1);
}

int EpConfig::expert_out_rows(int num_ranks) const {
  return output == Output::kDeduplicated ? num_ranks * max_tokens_per_rank : max_rows(num_ranks);
}

int EpConfig::scale_words() const {
  if (dispatch_format != DispatchFormat::kFp8 && dispatch_format != DispatchFormat::kQuantizedFp8) {
    return 0;
  }
  const int scales = (hidden + scale_group - 1) / scale_group;
  constexpr int kScalesPerWord = 4;
  return scale_format == ScaleFormat::kUe8m0 ? (scales + kScalesPerWord - 1) / kScalesPerWord
                                             : scales;
}

absl::string_view StrategyName(Strategy strategy) {
  switch (strategy) {
    case Strategy::kAuto:
      return "auto";
    case Strategy::kDirect:
      return "direct";
    case Strategy::kHighThroughput:
      return "high_throughput";
    case Strategy::kLowLatency:
      return "low_latency";
  }
  return "unknown";
}

absl::StatusOr<Strategy> ParseStrategy(absl::string_view name) {
  if (name == StrategyName(Strategy::kAuto)) return Strategy::kAuto;
  for (const Strategy strategy : kStrategies) {
    if (name == StrategyName(strategy)) return strategy;
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "strategy '", name, "' is not one of auto, direct, high_throughput, low_latency"));
}

absl::Status Validate(const EpConfig& config, int num_ranks) {
  for (const absl::Status& status :
       {CheckRange("num_ranks", num_ranks, 1, kMaxRanks),
        CheckRange("num_experts", config.num_experts, 1, kMaxExperts),
        CheckRange("hidden", config.hidden, 8, kMaxHidden),
        CheckRange("max_tokens_per_rank", config.max_tokens_per_rank, 1, kMaxTokensPerRank)}) {
    if (!status.ok()) return status;
  }
  if (config.num_experts % num_ranks != 0) {
    return absl::InvalidArgumentError(absl::StrCat("num_experts is ", config.num_experts,
                                                   "; it must be divisible by the ", num_ranks,
                                                   " ranks"));
  }
  if (config.hidden % 8 != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("hidden is ", config.hidden, "; it must be a multiple of 8"));
  }
  if (config.topk < 1 || config.topk > std::min(kMaxTopk, config.num_experts)) {
    return OutOfRange("topk", config.topk, 1, std::min(kMaxTopk, config.num_experts));
  }
  const Tuning& tuning = config.tuning;
  if (tuning.row_parts > kMaxRowParts) {
    return OutOfRange("row_parts", tuning.row_parts, 0, kMaxRowParts);
  }
  if (tuning.blocks < 0 || tuning.send_blocks < 0 || tuning.waves_per_block < 0 ||
      tuning.row_parts < 0 || tuning.send_waves < 0 || tuning.combine_send_waves < 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("tuning is blocks ", tuning.blocks, ", send_blocks ", tuning.send_blocks,
                     ", waves_per_block ", tuning.waves_per_block, ", row_parts ", tuning.row_parts,
                     ", send_waves ", tuning.send_waves, ", combine_send_waves ",
                     tuning.combine_send_waves, "; none may be negative"));
  }
  if (config.max_blocks < 0 || (config.max_blocks > 0 && tuning.blocks > config.max_blocks)) {
    return absl::InvalidArgumentError(absl::StrCat("max_blocks is ", config.max_blocks,
                                                   ", with blocks ", tuning.blocks,
                                                   "; it must be 0 or at least as many"));
  }
  return config.strategy == Strategy::kAuto ? ValidateAuto(config) : ValidateStrategy(config);
}

}  // namespace octet
