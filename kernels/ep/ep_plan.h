// The outcome of all choices that a configuration leaves open. EpPlan makes each choice once, and
// ExpertParallel::Create and HeapBytes, the reference and the tools take a plan. Only the part of
// the launch shape that depends on how many blocks a GPU can hold is chosen later, by the strategy
// when it is created.
//
// Strategy::kAuto is a function of the configuration, the number of ranks and a table that users
// can replace. It takes the first of these that applies:
//   1. a measurement on such GPUs: an entry for "auto" in the tuning table
//   (kernels/tuning/tuning.h;
//      OCTET_TUNING, written by `octet tune --strategy=auto`), unless the strategy that it names
//      does not support the configuration;
//   2. the rules of the strategies that do (StrategyInfo::auto_rule), by the most tokens of a rank.
// An option that only one strategy supports (a format, a layout) therefore decides the choice as
// well. A Tuning belongs to the strategy that it was made for; another strategy, which kAuto may
// choose, may refuse it.
//
// The result of Combine depends on the strategy in one point: direct adds in the order kFlat, the
// others by default in the order kPerRank. Every strategy respects EpConfig::combine_order; setting
// it makes results equal to the bit under all strategies.
#ifndef OCTET_KERNELS_EP_EP_PLAN_H_
#define OCTET_KERNELS_EP_EP_PLAN_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/tuning/tuning.h"
#include "octet/ep_config.h"
#include "octet/symmetric_heap.h"
#include "octet/topology.h"

namespace octet {

// Which calls are legal.
enum class Contract {
  kOfStrategy,  // what the strategy itself allows
  kOfAll,       // what every strategy allows, since Strategy::kAuto could have chosen another
};

struct EpPlan {
  // All choices made except for the rest of the launch shape. With a placement it is that of the
  // calls beneath it (kernels/ep/physical.h).
  EpConfig config = {};
  Contract contract = Contract::kOfStrategy;
  // The table that the launch shape is from; empty if the caller or the strategy chooses the shape.
  std::string tuning_origin = {};

  // Returns the plan for ranks on such GPUs. Errors: kInvalidArgument from Validate(config).
  static absl::StatusOr<EpPlan> Resolve(const EpConfig& config, int num_ranks,
                                        const Topology& topology, const TuningTable& table);
  // Returns the configuration of the plan that follows from the rules alone. `config` must be
  // valid.
  static EpConfig ByRules(const EpConfig& config, int num_ranks);

  // Returns the bytes of symmetric heap that suffice on every rank for any plan that `config` may
  // resolve to, on any GPU that `table` knows. Errors: kInvalidArgument from Validate(config).
  static absl::StatusOr<HeapSize> HeapBytes(const EpConfig& config, int num_ranks,
                                            const TuningTable& table);
};

// Returns the strategies that support `config` apart from its own choice of strategy: those that
// Strategy::kAuto may resolve to with some table. If there are several, calls are limited to what
// all of them allow.
std::vector<Strategy> CapableStrategies(const EpConfig& config, int num_ranks);

// Returns the strategies that `config` may resolve to on any GPU.
std::vector<Strategy> PossibleStrategies(const EpConfig& config, int num_ranks,
                                         const TuningTable& table);

}  // namespace octet

#endif  // OCTET_KERNELS_EP_EP_PLAN_H_
