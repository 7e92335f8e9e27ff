#include "kernels/auto_choice.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>

#include "absl/algorithm/container.h"
#include "octet/fp8.h"

namespace octet {
namespace {

// The first strategy that can do it, for as many tokens of a rank.
//
// Dispatch and combine enqueued together on four H200s, µs (bf16, H 7168, K 8, E 256):
//
//   tokens               1     16     64    128    256    512    768   1024   2048   4096
//   low_latency       27.3   32.9   43.2   61.9   95.1  159.0  220.9  281.8
//   direct            26.5   36.5   63.8  100.9  169.1  312.0         604.5   1187   2418
//   high_throughput   50.8   53.8   62.6   78.0  114.1  181.2  241.2  293.1    521    974
//
// On two of them the order is the same: low_latency is the fastest one as far as it goes.
struct Rule {
  Strategy strategy;
  int most_tokens;
};
constexpr std::array<Rule, 3> kRules = {{{Strategy::kLowLatency, kMaxLowLatencyTokens},
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

std::vector<Strategy> CapableStrategies(const EpConfig& config, int num_ranks) {
  std::vector<Strategy> capable;
  for (const Strategy strategy : kStrategies) {
    if (CanDo(config, num_ranks, strategy)) capable.push_back(strategy);
  }
  return capable;
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
