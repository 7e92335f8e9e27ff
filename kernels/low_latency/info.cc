#include "kernels/low_latency/info.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "kernels/config_checks.h"
#include "kernels/ep_plan.h"
#include "kernels/low_latency/layout.h"
#include "kernels/low_latency/low_latency.h"
#include "kernels/strategy_base.h"
#include "octet/ep_config.h"

namespace octet::low_latency {
namespace {

constexpr std::array<TuningField, 4> kTuningFields = {{{"blocks", &Tuning::blocks},
                                                       {"send_blocks", &Tuning::send_blocks},
                                                       {"waves", &Tuning::waves_per_block},
                                                       {"row_parts", &Tuning::row_parts}}};

constexpr std::array<StrategyVariant, 1> kVariants = {};

// low_latency has memory for all rows that may arrive, twice; high_throughput has it once. kAuto
// takes low_latency only up to this size, which is small on any GPU that this is for.
constexpr int64_t kMostAutoBytes = int64_t{8} << 30;

bool SuitsAuto(const EpConfig& config, int num_ranks) {
  const int64_t rows = int64_t{num_ranks} * config.max_tokens_per_rank *
                       std::min(config.topk, config.num_local_experts(num_ranks));
  return 2 * rows * static_cast<int64_t>(config.received_row_bytes()) <= kMostAutoBytes;
}

absl::Status Validate(const EpConfig& config) {
  const EpConfig plain;
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

void Choose(EpConfig& config, int /*num_ranks*/) {
  if (config.combine_order == CombineOrder::kAuto) config.combine_order = CombineOrder::kPerRank;
  config.combine_method = CombineMethod::kPush;
}

std::unique_ptr<StrategyBase> Make(Node& node, const EpPlan& plan,
                                   const ExpertParallelOptions& options) {
  return std::make_unique<LowLatency>(node, plan, options);
}

HeapSize HeapSizeFor(const EpConfig& config, int num_ranks) {
  return HeapSizeOf(MakeLayout(config, num_ranks));
}

}  // namespace

constexpr StrategyInfo kInfo = {
    .strategy = Strategy::kLowLatency,
    .name = "low_latency",
    .summary = "Sends a token once per rank through double-buffered staging.",
    .most_tokens = kMaxLowLatencyTokens,
    .most_experts = kMaxLowLatencyExperts,
    .most_hidden = kMaxLowLatencyHidden,
    .auto_rule = {.order = 0, .most_tokens = kMaxLowLatencyTokens, .suits = SuitsAuto},
    .variants = kVariants,
    .tuning_fields = kTuningFields,
    .validate = Validate,
    .choose = Choose,
    .heap_size = HeapSizeFor,
    .make = Make};

}  // namespace octet::low_latency
