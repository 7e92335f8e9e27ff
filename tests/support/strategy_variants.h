// All strategies for parameterised tests, by the registry: a new one joins them by itself.
#ifndef OCTET_TESTS_SUPPORT_STRATEGY_VARIANTS_H_
#define OCTET_TESTS_SUPPORT_STRATEGY_VARIANTS_H_

#include <ostream>
#include <string>
#include <vector>

#include "octet/ep_config.h"

namespace octet {

// A strategy, and what it can be asked to do in more than one way.
struct StrategyCase {
  std::string name;  // as a name of a test: LowLatencyRankMajorFlat
  Strategy strategy = Strategy::kAuto;
  Variant variant = {};
  CombineOrder combine_order = CombineOrder::kAuto;
  CombineMethod combine_method = CombineMethod::kAuto;
  Output output = Output::kPackedExperts;
  Duplicates duplicates = Duplicates::kFill;

  void ApplyTo(EpConfig& config) const;

  friend void PrintTo(const StrategyCase& each, std::ostream* out) { *out << each.name; }
};

// Returns the name of a strategy as part of the name of a test: "LowLatency".
std::string StrategyTestName(Strategy strategy);

// Returns everything that some strategy supports, each in one variant. The first one of each
// strategy bears its name and has its defaults.
std::vector<StrategyCase> AllVariants();
// Returns those of them that differ in what dispatch does.
std::vector<StrategyCase> DispatchVariants();

}  // namespace octet

#endif  // OCTET_TESTS_SUPPORT_STRATEGY_VARIANTS_H_
