// The outcome of all choices that a configuration leaves open. Each is made once, here:
// ExpertParallel::Create and HeapBytes, the reference and the tools take a plan. What depends on
// how many blocks a GPU can hold (the launch shape) the strategy adds when it is created.
//
// Strategy::kAuto is a function of the configuration, the number of ranks and a table that users
// can replace. In this order:
//   1. what has been measured on such GPUs: an entry for "auto" in the tuning table
//      (kernels/tuning.h; OCTET_TUNING, written by `octet tune --strategy=auto`), unless the
//      strategy that it names cannot do what the configuration asks for;
//   2. the rules of the strategies that can (StrategyInfo::auto_rule), by the most tokens of a
//   rank.
// An option that only one strategy has (a format, a layout) thus decides as well. A Tuning belongs
// to the strategy that it was made for; another one, which auto may choose, may refuse it.
//
// The result of Combine depends on the strategy in one point: direct adds in the order kFlat, the
// others by default in the order kPerRank. EpConfig::combine_order is respected by whatever is
// chosen, and makes results the same to the bit under each strategy.
#ifndef OCTET_KERNELS_EP_PLAN_H_
#define OCTET_KERNELS_EP_PLAN_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/tuning.h"
#include "octet/ep_config.h"
#include "octet/symmetric_heap.h"
#include "octet/topology.h"

namespace octet {

// Which calls are legal.
enum class Contract {
  kOfStrategy,  // what the strategy itself allows
  kOfAll,       // what every strategy allows: Strategy::kAuto could have chosen another
};

struct EpPlan {
  EpConfig config = {};  // with every choice made but the rest of the launch shape
  Contract contract = Contract::kOfStrategy;
  // Which table the launch shape is from; empty if the caller or the strategy chooses it.
  std::string tuning_origin = {};

  // For ranks on such GPUs. kInvalidArgument: Validate(config).
  static absl::StatusOr<EpPlan> Resolve(const EpConfig& config, int num_ranks,
                                        const Topology& topology, const TuningTable& table);
  // The configuration of the plan that rules alone lead to. `config` must be valid.
  static EpConfig ByRules(const EpConfig& config, int num_ranks);

  // Bytes of the symmetric heap that suffice on every rank for whatever plan `config` resolves to,
  // on any GPU that `table` knows. kInvalidArgument: Validate(config).
  static absl::StatusOr<HeapSize> HeapBytes(const EpConfig& config, int num_ranks,
                                            const TuningTable& table);
};

// The strategies that can do what `config` asks for, whatever its own: what Strategy::kAuto may
// resolve to with some table. With more than one, calls are held to what all of them allow.
std::vector<Strategy> CapableStrategies(const EpConfig& config, int num_ranks);

// What the strategy of `config` may resolve to on any GPU.
std::vector<Strategy> PossibleStrategies(const EpConfig& config, int num_ranks,
                                         const TuningTable& table);

}  // namespace octet

#endif  // OCTET_KERNELS_EP_PLAN_H_
