#include "kernels/auto_choice.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>

#include "absl/algorithm/container.h"
#include "kernels/fp8.h"

namespace octet {
namespace {

// The first strategy that can do it, for as many tokens of a rank.
//
// Dispatch and combine enqueued together on four H200s, µs (bf16, H 7168, K 8, E 256); on two of
// them the order is the same:
//
//   tokens               1     16     64    128    256    512   4096
//   low_latency       27.5   30.9   42.9   61.7   92.8  158.4
//   direct            27.9   35.7   62.4   99.7  169.8  309.9   2393
//   high_throughput   49.6   54.3   61.3   79.8  114.0  178.3    970
//
// On two, low_latency is the faster one as far as it goes:
//
//   tokens             256    384    512    640    768    896   1024
//   low_latency       56.2   72.1   88.5  105.9  120.2  134.6  152.0
//   high_throughput   76.8   93.9  113.0  127.1  140.2  155.3  171.4
//
// Beyond 512, these two have not been compared on four and on eight GPUs.
struct Rule {
  Strategy strategy;
  int most_tokens;
};
constexpr std::array<Rule, 3> kRules = {{{Strategy::kLowLatency, 512},
                                         {Strategy::kDirect, 64},
                                         {Strategy::kHighThroughput, kMaxTokensPerRank}}};

// low_latency has room for all rows that could come, twice, where high_throughput has it once: not
// beyond as much as is little on any GPU that this is for.
constexpr int64_t kMostLowLatencyBytes = int64_t{8} << 30;

bool IsValid(const EpConfig& config, int num_ranks, Strategy strategy) {
  EpConfig named = config;
  named.strategy = strategy;
  return Validate(named, num_ranks).ok();
}

bool CanDo(const EpConfig& config, int num_ranks, Strategy strategy) {
  // The others have blocks that send and blocks that receive.
  const Tuning& tuning = config.tuning;
  const bool no_receivers = tuning.blocks == 1 || config.max_blocks == 1 ||
                            (tuning.blocks > 0 && tuning.send_blocks >= tuning.blocks);
  if (no_receivers && strategy != Strategy::kHighThroughput) return false;
  return IsValid(config, num_ranks, strategy);
}

int64_t LowLatencyBytes(const EpConfig& config, int num_ranks) {
  const int64_t rows = int64_t{num_ranks} * config.max_tokens_per_rank *
                       std::min(config.topk, config.num_local_experts(num_ranks));
  return 2 * rows * static_cast<int64_t>(config.received_row_bytes());
}

Strategy ByRules(const EpConfig& config, int num_ranks) {
  std::optional<Strategy> last_resort;
  for (const Rule& rule : kRules) {
    if (!CanDo(config, num_ranks, rule.strategy)) continue;
    const bool small = rule.strategy != Strategy::kLowLatency ||
                       LowLatencyBytes(config, num_ranks) <= kMostLowLatencyBytes;
    if (config.max_tokens_per_rank <= rule.most_tokens && small) return rule.strategy;
    last_resort = rule.strategy;
  }
  if (last_resort.has_value()) return *last_resort;
  // Those that could have too few blocks, and will say so.
  const auto* valid = absl::c_find_if(
      kRules, [&](const Rule& rule) { return IsValid(config, num_ranks, rule.strategy); });
  return valid != kRules.end() ? valid->strategy : Strategy::kDirect;
}

}  // namespace

EpConfig WithAutoChosen(const EpConfig& config, int num_ranks) {
  EpConfig chosen = config;
  if (chosen.strategy == Strategy::kAuto) chosen.strategy = ByRules(config, num_ranks);
  chosen.fp8_form = WithNativeFp8(chosen.fp8_form);
  if (chosen.combine_order == CombineOrder::kAuto) {
    chosen.combine_order =
        chosen.strategy == Strategy::kDirect ? CombineOrder::kFlat : CombineOrder::kPerRank;
  }
  if (chosen.combine_method == CombineMethod::kAuto) {
    const int rows_home = chosen.combine_order == CombineOrder::kFlat
                              ? chosen.topk
                              : std::min(chosen.topk, num_ranks);
    const int rows_received =
        num_ranks * (chosen.output == Output::kDeduplicated
                         ? 1
                         : std::min(chosen.topk, chosen.num_local_experts(num_ranks)));
    const bool push = chosen.strategy != Strategy::kHighThroughput || 2 * rows_home < rows_received;
    chosen.combine_method = push ? CombineMethod::kPush : CombineMethod::kPull;
  }
  return chosen;
}

EpConfig WithAutoChosen(const EpConfig& config, int num_ranks, const Topology& topology,
                        const TuningTable& table) {
  EpConfig named = config;
  if (config.strategy == Strategy::kAuto) {
    const std::optional<Strategy> measured = table.FindStrategy(topology, num_ranks, config);
    if (measured.has_value() && CanDo(config, num_ranks, *measured)) named.strategy = *measured;
  }
  return WithAutoChosen(named, num_ranks);
}

std::vector<Strategy> PossibleStrategies(const EpConfig& config, int num_ranks,
                                         const TuningTable& table) {
  if (config.strategy != Strategy::kAuto) return {config.strategy};
  std::vector<Strategy> possible = {ByRules(config, num_ranks)};
  for (const Strategy measured : table.StrategiesFor(num_ranks, config)) {
    if (CanDo(config, num_ranks, measured)) possible.push_back(measured);
  }
  return possible;
}

}  // namespace octet
