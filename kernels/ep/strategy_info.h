// The interface of a strategy to the rest of Octet. Each strategy's folder defines one StrategyInfo
// (info.cc), and strategy_registry.cc lists them: Create, Validate, the choice of Strategy::kAuto,
// the tuning file, `octet tune`, `perf`, `soak`, --help and the tests follow that list.
#ifndef OCTET_KERNELS_EP_STRATEGY_INFO_H_
#define OCTET_KERNELS_EP_STRATEGY_INFO_H_

#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "kernels/ep/site_info.h"
#include "kernels/tuning/tuning_field.h"
#include "octet/ep_config.h"
#include "octet/expert_parallel.h"
#include "octet/memory_piece.h"
#include "octet/node.h"
#include "octet/symmetric_heap.h"

namespace octet {

class StrategyBase;
struct EpPlan;

// Which part of a launch sends.
enum class Sides {
  kBlocks,  // some blocks send while others receive, so that a launch has at least two
  kWaves,   // some waves of each block
};

// How Strategy::kAuto chooses by rules, without a measurement (kernels/ep/ep_plan.h).
struct AutoRule {
  int order = 0;        // strategies of lower order are preferred
  int most_tokens = 0;  // of a rank, up to which this strategy is preferred
  // Whether the strategy is preferred for `config` as well; nullptr: always.
  bool (*suits)(const EpConfig& config, int num_ranks) = nullptr;
};

struct StrategyInfo {
  Strategy strategy = Strategy::kAuto;
  absl::string_view name = {};     // in flags, files and reports
  absl::string_view summary = {};  // how it moves a token: a sentence for --help and the README
  // Limits of this strategy, beyond those of every strategy.
  int most_tokens = kMaxTokensPerRank;
  int most_experts = kMaxExperts;
  int most_hidden = kMaxHidden;

  absl::Span<const DispatchFormat> formats = {};
  absl::Span<const Output> outputs = {};

  // ---- Capabilities: what other code may ask for.

  // Its calls can be fused with products (DispatchRequest, CombineRequest).
  bool fuses_products = false;
  // Its dispatches make layouts that are kept: HighThroughputArgs, HighThroughputCombineArgs,
  // HighThroughputReceived.
  bool keeps_layouts = false;
  // It is made for calls of few tokens, whose hosts should not wait: over several nodes
  // RailRows::kAuto is kBlocks.
  bool for_few_tokens = false;
  // Its launches take all compute units by default.
  bool takes_all_units = false;

  Sides sides = Sides::kBlocks;
  AutoRule auto_rule = {};
  absl::Span<const Variant> variants = {};           // of its protocol; soak tests draw from these
  absl::Span<const TuningField> tuning_fields = {};  // the fields that it uses
  absl::Span<const SiteInfo> sites = {};             // every Site of its kernels

  // Returns the names of the strategy's own options that differ from their defaults. nullptr: the
  // strategy has none.
  std::vector<absl::string_view> (*own_options)(const EpConfig& config) = nullptr;
  // Returns OK if the strategy supports `config`. Validate has already checked the limits, formats
  // and outputs above, that no option of another strategy is set, and everything that is the same
  // for all strategies.
  absl::Status (*validate)(const EpConfig& config) = nullptr;
  // Makes the choices that a valid `config` leaves open: combine_order and combine_method.
  void (*choose)(EpConfig& config, int num_ranks) = nullptr;
  // Returns the number of parts of a row by default. nullptr: memory does not depend on it.
  int (*row_parts)(const EpConfig& config, int num_ranks) = nullptr;
  // Returns the symmetric heap that a configuration with all these choices made needs.
  HeapSize (*heap_size)(const EpConfig& config, int num_ranks) = nullptr;
  // Adds that heap's pieces and the strategy's other memory, in launches of `blocks` blocks.
  void (*list_memory)(const EpConfig& config, int num_ranks, int blocks,
                      std::vector<MemoryPiece>& list) = nullptr;
  std::unique_ptr<StrategyBase> (*make)(Node& node, const EpPlan& plan,
                                        const ExpertParallelOptions& options) = nullptr;
};

}  // namespace octet

#endif  // OCTET_KERNELS_EP_STRATEGY_INFO_H_
