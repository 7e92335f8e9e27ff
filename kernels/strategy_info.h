// What the rest of Octet knows of a strategy. Each strategy's folder defines one (info.cc), and
// strategy_registry.cc lists them: Create, Validate, the choice of Strategy::kAuto, the tuning
// file, `octet tune`, `perf`, `soak`, --help and the tests follow that list.
#ifndef OCTET_KERNELS_STRATEGY_INFO_H_
#define OCTET_KERNELS_STRATEGY_INFO_H_

#include <memory>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "kernels/tuning_field.h"
#include "octet/ep_config.h"
#include "octet/expert_parallel.h"
#include "octet/node.h"
#include "octet/symmetric_heap.h"

namespace octet {

class StrategyBase;
struct EpPlan;

// Which part of a kernel's blocks sends.
enum class Sides {
  kBlocks,  // some blocks send while others receive, so that a launch has at least two
  kWaves,   // some waves of each block
};

// How Strategy::kAuto chooses by rules, where no measurement says otherwise (kernels/ep_plan.h).
struct AutoRule {
  int order = 0;        // strategies of lower order are preferred
  int most_tokens = 0;  // of a rank, for which this one is
  // Whether it is preferred for `config` as well; nullptr: always.
  bool (*suits)(const EpConfig& config, int num_ranks) = nullptr;
};

// Options that only some strategies have, in a combination that soak tests draw.
struct StrategyVariant {
  Slots slots = Slots::kPrefix;
  Flags flags = Flags::kToken;
};

struct StrategyInfo {
  Strategy strategy = Strategy::kAuto;
  absl::string_view name = {};     // in flags, files and reports
  absl::string_view summary = {};  // how it moves a token: a sentence for --help and the README
  // Beyond the limits of every strategy.
  int most_tokens = kMaxTokensPerRank;
  int most_experts = kMaxExperts;
  int most_hidden = kMaxHidden;

  Sides sides = Sides::kBlocks;
  AutoRule auto_rule = {};
  absl::Span<const StrategyVariant> variants = {};
  absl::Span<const TuningField> tuning_fields = {};  // those that it has a use for

  // OK if the strategy can do what `config` asks for. The limits above hold already, and whatever
  // is the same for all strategies (Validate).
  absl::Status (*validate)(const EpConfig& config) = nullptr;
  // Makes the choices that a valid `config` leaves open: combine_order and combine_method.
  void (*choose)(EpConfig& config, int num_ranks) = nullptr;
  // The pieces that a row is cut into by default. nullptr: memory does not depend on it.
  int (*row_parts)(const EpConfig& config, int num_ranks) = nullptr;
  // Of the symmetric heap, of a configuration with all of that chosen.
  HeapSize (*heap_size)(const EpConfig& config, int num_ranks) = nullptr;
  std::unique_ptr<StrategyBase> (*make)(Node& node, const EpPlan& plan,
                                        const ExpertParallelOptions& options) = nullptr;
};

}  // namespace octet

#endif  // OCTET_KERNELS_STRATEGY_INFO_H_
