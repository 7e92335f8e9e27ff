#include "tests/support/strategy_variants.h"

#include <array>
#include <iterator>

#include "absl/algorithm/container.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "kernels/ep/strategy_registry.h"

namespace octet {
namespace {

// A way of laying out received rows.
struct Rows {
  const char* name;
  Output output;
  Duplicates duplicates = Duplicates::kFill;
};
constexpr std::array<Rows, 5> kRows = {{{"", Output::kPackedExperts},
                                        {"Index", Output::kPackedExperts, Duplicates::kIndex},
                                        {"Deduplicated", Output::kDeduplicated},
                                        {"ExpertMajor", Output::kExpertMajor},
                                        {"RankMajor", Output::kRankMajor}}};

// A way of adding outputs up. kAuto stands for the strategy's own.
struct Sums {
  const char* name;
  CombineOrder order;
  CombineMethod method = CombineMethod::kAuto;
};
constexpr std::array<Sums, 6> kSums = {
    {{"", CombineOrder::kAuto},
     {"Flat", CombineOrder::kFlat},
     {"PerRank", CombineOrder::kPerRank},
     {"Pull", CombineOrder::kAuto, CombineMethod::kPull},
     {"FlatPull", CombineOrder::kFlat, CombineMethod::kPull},
     {"PerRankPull", CombineOrder::kPerRank, CombineMethod::kPull}}};

constexpr int kRanks = 2;

EpConfig SmallConfig(const StrategyCase& variant) {
  EpConfig config;
  config.num_experts = 4;
  config.topk = 2;
  config.hidden = 64;
  config.max_tokens_per_rank = 4;
  variant.ApplyTo(config);
  return config;
}

// Whether these sums are another variant: supported, not by another name, and with packed rows if
// they are pulled, since how rows return does not depend on how they came.
bool IsAnother(const StrategyInfo& info, const StrategyCase& variant, const Rows& rows,
               const Sums& sums) {
  if (!Validate(SmallConfig(variant), kRanks).ok()) return false;
  if (sums.method == CombineMethod::kPull && *rows.name != '\0') return false;
  if (sums.order == CombineOrder::kAuto) return true;
  StrategyCase by_default = variant;
  by_default.combine_order = CombineOrder::kAuto;
  EpConfig config = SmallConfig(by_default);
  info.choose(config, kRanks);
  return config.combine_order != sums.order;
}

}  // namespace

void StrategyCase::ApplyTo(EpConfig& config) const {
  config.strategy = strategy;
  config.variant = variant;
  config.combine_order = combine_order;
  config.combine_method = combine_method;
  config.output = output;
  config.high_throughput.duplicates = duplicates;
}

std::string StrategyTestName(Strategy strategy) {
  std::string name;
  for (const absl::string_view word : absl::StrSplit(EnumName(strategy), '_')) {
    name += absl::ascii_toupper(static_cast<unsigned char>(word.front()));
    absl::StrAppend(&name, word.substr(1));
  }
  return name;
}

std::vector<StrategyCase> AllVariants() {
  std::vector<StrategyCase> variants;
  for (const StrategyInfo* info : StrategyInfos()) {
    for (const Variant& options : info->variants) {
      for (const Rows& rows : kRows) {
        for (const Sums& sums : kSums) {
          const std::string name = absl::StrCat(
              StrategyTestName(info->strategy),
              options.slots == Slots::kAtomic ? "AtomicSlots" : "",
              options.flags == Flags::kSource ? "SourceFlags" : "", rows.name, sums.name);
          const StrategyCase variant = {.name = name,
                                        .strategy = info->strategy,
                                        .variant = options,
                                        .combine_order = sums.order,
                                        .combine_method = sums.method,
                                        .output = rows.output,
                                        .duplicates = rows.duplicates};
          if (IsAnother(*info, variant, rows, sums)) variants.push_back(variant);
        }
      }
    }
  }
  return variants;
}

std::vector<StrategyCase> DispatchVariants() {
  std::vector<StrategyCase> variants;
  absl::c_copy_if(AllVariants(), std::back_inserter(variants), [](const StrategyCase& variant) {
    return variant.combine_order == CombineOrder::kAuto &&
           variant.combine_method == CombineMethod::kAuto;
  });
  return variants;
}

}  // namespace octet
