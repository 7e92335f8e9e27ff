#include "kernels/direct/info.h"

#include <array>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "kernels/direct/direct.h"
#include "kernels/direct/layout.h"
#include "kernels/direct/sites.h"
#include "kernels/ep/base/control_memory.h"
#include "kernels/ep/base/strategy_base.h"
#include "kernels/ep/config_checks.h"
#include "kernels/ep/ep_plan.h"
#include "octet/ep_config.h"

namespace octet::direct {
namespace {

constexpr std::array<TuningField, 4> kTuningFields = {{{"blocks", &Tuning::blocks},
                                                       {"send_blocks", &Tuning::send_blocks},
                                                       {"waves", &Tuning::waves_per_block},
                                                       {"row_parts", &Tuning::row_parts}}};

constexpr std::array<Variant, 4> kVariants = {{{Slots::kPrefix, Flags::kToken},
                                               {Slots::kPrefix, Flags::kSource},
                                               {Slots::kAtomic, Flags::kToken},
                                               {Slots::kAtomic, Flags::kSource}}};

constexpr std::array kFormats = {DispatchFormat::kSame};
constexpr std::array kOutputs = {Output::kPackedExperts};

std::vector<absl::string_view> OwnOptions(const EpConfig& config) {
  const Variant plain;
  std::vector<absl::string_view> names;
  AddIfSet("slots", config.variant.slots, plain.slots, names);
  AddIfSet("flags", config.variant.flags, plain.flags, names);
  return names;
}

constexpr std::array<SiteInfo, 7> kSites = {{
    DispatchCreditSite(Site::kDispatchCredit),
    CountSite(Site::kDispatchCount),
    {.number = static_cast<uint32_t>(Site::kDispatchRow),
     .phase = "dispatch-receive",
     .flag = "row flag of slot",
     .table = "dispatched rows: arrived / announced by each rank",
     .by_rows = true},
    {.number = static_cast<uint32_t>(Site::kDispatchSource),
     .phase = "dispatch-receive",
     .flag = "source flag",
     .table = "dispatch source flags: epoch seen from each rank"},
    CombineCreditSite(Site::kCombineCredit),
    CombineRowSite(Site::kCombineRow),
    CombineSourceSite(Site::kCombineSource),
}};

absl::Status Validate(const EpConfig& config) {
  if (config.combine_order == CombineOrder::kPerRank ||
      config.combine_method == CombineMethod::kPull) {
    return absl::InvalidArgumentError("direct combines in the order flat and by push only");
  }
  return CheckNoCapacity(config);
}

void Choose(EpConfig& config, int /*num_ranks*/) {
  config.combine_order = CombineOrder::kFlat;
  config.combine_method = CombineMethod::kPush;
}

}  // namespace

constexpr StrategyInfo kInfo = {
    .strategy = Strategy::kDirect,
    .name = "direct",
    .summary = "Sends every (token, k) by itself, straight to its expert's GPU.",
    .formats = kFormats,
    .outputs = kOutputs,
    .auto_rule = {.order = 1, .most_tokens = 64},
    .variants = kVariants,
    .tuning_fields = kTuningFields,
    .sites = kSites,
    .own_options = OwnOptions,
    .validate = Validate,
    .choose = Choose,
    .row_parts = [](const EpConfig& config, int /*num_ranks*/) { return ChooseRowParts(config); },
    .heap_size = HeapSizeBy<MakeLayout>,
    .list_memory = ListMemoryBy<MakeLayout, ListOwnMemory>,
    .make = MakeOne<Direct>};

}  // namespace octet::direct
