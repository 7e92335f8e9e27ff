#include "kernels/ep/ep_plan.h"

#include <algorithm>
#include <optional>

#include "absl/algorithm/container.h"
#include "kernels/ep/physical.h"
#include "kernels/ep/strategy_registry.h"
#include "octet/fp8.h"
#include "runtime/base/status_macros.h"

namespace octet {
namespace {

EpConfig Named(EpConfig config, Strategy strategy) {
  config.strategy = strategy;
  return config;
}

bool CanDo(const EpConfig& config, int num_ranks, const StrategyInfo& info) {
  const Tuning& tuning = config.tuning;
  const bool no_receivers = tuning.blocks == 1 || config.max_blocks == 1 ||
                            (tuning.blocks > 0 && tuning.send_blocks >= tuning.blocks);
  if (no_receivers && info.sides == Sides::kBlocks) return false;
  return Validate(Named(config, info.strategy), num_ranks).ok();
}

// Times of dispatch and combine enqueued together on four H200s, in µs (bf16, H 7168, K 8, E 256).
// The strategies' rules are based on them:
//
//   tokens               1     16     64    128    256    512    768   1024   2048   4096
//   low_latency       27.3   32.9   43.2   61.9   95.1  159.0  220.9  281.8
//   direct            26.5   36.5   63.8  100.9  169.1  312.0         604.5   1187   2418
//   high_throughput   50.8   53.8   62.6   78.0  114.1  181.2  241.2  293.1    521    974
//
// On two H200s the order is the same: low_latency is the fastest up to its limit.
Strategy ChooseByRules(const EpConfig& config, int num_ranks) {
  std::vector<const StrategyInfo*> infos(StrategyInfos().begin(), StrategyInfos().end());
  absl::c_sort(infos, [](const StrategyInfo* a, const StrategyInfo* b) {
    return a->auto_rule.order < b->auto_rule.order;
  });
  std::optional<Strategy> last_resort;
  for (const StrategyInfo* info : infos) {
    if (!CanDo(config, num_ranks, *info)) continue;
    const AutoRule& rule = info->auto_rule;
    if (config.max_tokens_per_rank <= rule.most_tokens &&
        (rule.suits == nullptr || rule.suits(config, num_ranks))) {
      return info->strategy;
    }
    last_resort = info->strategy;
  }
  if (last_resort.has_value()) return *last_resort;
  // Fall back to a strategy that may have too few blocks; it will report that itself.
  const auto valid = absl::c_find_if(infos, [&](const StrategyInfo* info) {
    return Validate(Named(config, info->strategy), num_ranks).ok();
  });
  return valid != infos.end() ? (*valid)->strategy : infos.front()->strategy;
}

// Returns whether a measured launch shape may replace the strategy's own.
bool LeavesTuningOpen(const EpConfig& config) {
  return config.tuning == Tuning() && config.max_blocks == 0;
}

// Chooses tuning.row_parts if it is open and the strategy's memory depends on it: the strategy's
// own choice, or `least` if that is more.
void ChooseRowParts(EpConfig& config, int num_ranks, int least = 0) {
  const StrategyInfo& info = InfoOf(config.strategy);
  if (config.tuning.row_parts != 0 || info.row_parts == nullptr) return;
  config.tuning.row_parts = std::max(least, info.row_parts(config, num_ranks));
}

}  // namespace

EpConfig EpPlan::ByRules(const EpConfig& config, int num_ranks) {
  EpConfig chosen = config;
  if (chosen.strategy == Strategy::kAuto) chosen.strategy = ChooseByRules(config, num_ranks);
  chosen.fp8_form = WithNativeFp8(chosen.fp8_form);
  InfoOf(chosen.strategy).choose(chosen, num_ranks);
  return chosen;
}

absl::StatusOr<EpPlan> EpPlan::Resolve(const EpConfig& config, int num_ranks,
                                       const Topology& topology, const TuningTable& table) {
  OCTET_RETURN_IF_ERROR(Validate(config, num_ranks));
  if (!config.placement.empty()) {
    return Resolve(PhysicalConfig(config), num_ranks, topology, table);
  }
  const bool automatic = config.strategy == Strategy::kAuto;
  EpConfig named = config;
  if (automatic) {
    const std::optional<Strategy> measured = table.FindStrategy(topology, num_ranks, config);
    if (measured.has_value() && CanDo(config, num_ranks, InfoOf(*measured))) {
      named.strategy = *measured;
    }
  }
  EpPlan plan;
  plan.config = ByRules(named, num_ranks);
  if (automatic && CapableStrategies(config, num_ranks).size() > 1) {
    plan.contract = Contract::kOfAll;
  }
  if (LeavesTuningOpen(config)) {
    const std::optional<Tuning> measured = table.Find(topology, num_ranks, plan.config);
    if (measured.has_value()) {
      plan.config.tuning = *measured;
      plan.tuning_origin = table.origin();
    }
  }
  ChooseRowParts(plan.config, num_ranks);
  return plan;
}

absl::StatusOr<HeapSize> EpPlan::HeapBytes(const EpConfig& config, int num_ranks,
                                           const TuningTable& table) {
  OCTET_RETURN_IF_ERROR(Validate(config, num_ranks));
  if (!config.placement.empty()) return HeapBytes(PhysicalConfig(config), num_ranks, table);
  HeapSize most;
  for (const Strategy strategy : PossibleStrategies(config, num_ranks, table)) {
    EpConfig chosen = ByRules(Named(config, strategy), num_ranks);
    // More parts need more memory.
    const int measured = LeavesTuningOpen(config) ? table.MostRowParts(num_ranks, chosen) : 0;
    ChooseRowParts(chosen, num_ranks, measured);
    const HeapSize size = InfoOf(strategy).heap_size(chosen, num_ranks);
    most = {.uncached = std::max(most.uncached, size.uncached),
            .cached = std::max(most.cached, size.cached)};
  }
  return most;
}

std::vector<Strategy> CapableStrategies(const EpConfig& config, int num_ranks) {
  std::vector<Strategy> capable;
  for (const StrategyInfo* info : StrategyInfos()) {
    if (CanDo(config, num_ranks, *info)) capable.push_back(info->strategy);
  }
  return capable;
}

std::vector<Strategy> PossibleStrategies(const EpConfig& config, int num_ranks,
                                         const TuningTable& table) {
  if (config.strategy != Strategy::kAuto) return {config.strategy};
  std::vector<Strategy> possible = {ChooseByRules(config, num_ranks)};
  for (const Strategy measured : table.StrategiesFor(num_ranks, config)) {
    if (CanDo(config, num_ranks, InfoOf(measured))) possible.push_back(measured);
  }
  return possible;
}

}  // namespace octet
