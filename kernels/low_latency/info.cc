#include "kernels/low_latency/info.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "kernels/ep/base/control_memory.h"
#include "kernels/ep/base/strategy_base.h"
#include "kernels/ep/config_checks.h"
#include "kernels/ep/ep_plan.h"
#include "kernels/low_latency/layout.h"
#include "kernels/low_latency/low_latency.h"
#include "kernels/low_latency/sites.h"
#include "octet/ep_config.h"

namespace octet::low_latency {
namespace {

constexpr std::array<TuningField, 4> kTuningFields = {{{"blocks", &Tuning::blocks},
                                                       {"send_blocks", &Tuning::send_blocks},
                                                       {"waves", &Tuning::waves_per_block},
                                                       {"row_parts", &Tuning::row_parts}}};

constexpr std::array<Variant, 1> kVariants = {};

// low_latency has memory for all rows that may arrive, twice; high_throughput has it once. kAuto
// takes low_latency only up to this size, which is small on any GPU that this is for.
constexpr int64_t kMostAutoBytes = int64_t{8} << 30;

bool SuitsAuto(const EpConfig& config, int num_ranks) {
  const int64_t rows = int64_t{num_ranks} * config.max_tokens_per_rank *
                       std::min(config.topk, config.num_local_experts(num_ranks));
  return 2 * rows * static_cast<int64_t>(config.received_row_bytes()) <= kMostAutoBytes;
}

constexpr std::array kFormats = {DispatchFormat::kSame, DispatchFormat::kQuantizedFp8};
constexpr std::array kOutputs = {Output::kPackedExperts, Output::kExpertMajor, Output::kRankMajor};

std::vector<absl::string_view> OwnOptions(const EpConfig& config) {
  const LowLatencyOptions plain;
  const LowLatencyOptions& options = config.low_latency;
  std::vector<absl::string_view> names;
  AddIfSet("failure_policy", options.failure_policy, plain.failure_policy, names);
  AddIfSet("mask_timeout", options.mask_timeout, plain.mask_timeout, names);
  AddIfSet("statistics", options.statistics, plain.statistics, names);
  return names;
}
constexpr std::array<SiteInfo, 6> kSites = {{
    DispatchCreditSite(Site::kDispatchCredit),
    CountSite(Site::kDispatchCount),
    DispatchPacketSite(Site::kDispatchPacket),
    CombineCreditSite(Site::kCombineCredit),
    CombineRowSite(Site::kCombineRow),
    CombineSourceSite(Site::kCombineBegun),
}};

absl::Status Validate(const EpConfig& config) {
  const LowLatencyOptions& options = config.low_latency;
  if (options.mask_timeout < absl::ZeroDuration() ||
      (options.mask_timeout > absl::ZeroDuration() &&
       options.failure_policy != FailurePolicy::kMask)) {
    return absl::InvalidArgumentError(
        absl::StrCat("mask_timeout is ", absl::FormatDuration(options.mask_timeout),
                     "; it must be positive and go with failure_policy mask"));
  }
  if (config.combine_method == CombineMethod::kPull) {
    return absl::InvalidArgumentError("low_latency combines by push only");
  }
  return CheckNoCapacity(config);
}

void Choose(EpConfig& config, int /*num_ranks*/) {
  if (config.combine_order == CombineOrder::kAuto) config.combine_order = CombineOrder::kPerRank;
  config.combine_method = CombineMethod::kPush;
}

}  // namespace

constexpr StrategyInfo kInfo = {
    .strategy = Strategy::kLowLatency,
    .name = "low_latency",
    .summary = "Sends a token once per rank through double-buffered staging.",
    .most_tokens = kMaxLowLatencyTokens,
    .most_experts = kMaxLowLatencyExperts,
    .most_hidden = kMaxLowLatencyHidden,
    .formats = kFormats,
    .outputs = kOutputs,
    .for_few_tokens = true,
    .auto_rule = {.order = 0, .most_tokens = kMaxLowLatencyTokens, .suits = SuitsAuto},
    .variants = kVariants,
    .tuning_fields = kTuningFields,
    .sites = kSites,
    .own_options = OwnOptions,
    .validate = Validate,
    .choose = Choose,
    .heap_size = HeapSizeBy<MakeLayout>,
    .list_memory = ListMemoryBy<MakeLayout, ListOwnMemory>,
    .make = MakeOne<LowLatency>};

}  // namespace octet::low_latency
