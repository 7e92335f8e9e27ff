#include "kernels/ep_config.h"

#include <algorithm>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "runtime/device/peers.h"

namespace octet {
namespace {

absl::Status OutOfRange(absl::string_view field, int value, int low, int high) {
  return absl::InvalidArgumentError(
      absl::StrCat(field, " is ", value, "; it must be from ", low, " to ", high));
}

absl::Status CheckRange(absl::string_view field, int value, int low, int high) {
  return value < low || value > high ? OutOfRange(field, value, low, high) : absl::OkStatus();
}

}  // namespace

absl::string_view StrategyName(Strategy strategy) {
  switch (strategy) {
    case Strategy::kAuto:
      return "auto";
    case Strategy::kDirect:
      return "direct";
  }
  return "unknown";
}

absl::StatusOr<Strategy> ParseStrategy(absl::string_view name) {
  for (const Strategy strategy : {Strategy::kAuto, Strategy::kDirect}) {
    if (name == StrategyName(strategy)) return strategy;
  }
  return absl::InvalidArgumentError(
      absl::StrCat("strategy '", name, "' is not one of auto, direct"));
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
      tuning.row_parts < 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("tuning is blocks ", tuning.blocks, ", send_blocks ", tuning.send_blocks,
                     ", waves_per_block ", tuning.waves_per_block, ", row_parts ", tuning.row_parts,
                     "; none may be negative"));
  }
  return absl::OkStatus();
}

}  // namespace octet
