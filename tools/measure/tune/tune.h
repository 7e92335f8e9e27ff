// Searches for the launch shape, and the strategy, that are fastest for one shape of calls.
#ifndef OCTET_TOOLS_MEASURE_TUNE_TUNE_H_
#define OCTET_TOOLS_MEASURE_TUNE_TUNE_H_

#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "kernels/tuning/tuning.h"
#include "octet/ep_config.h"
#include "octet/node.h"
#include "tools/step/run_spec.h"
#include "tools/support/progress.h"

namespace octet {

// The limits of the search.
struct TuneLimits {
  Strategy strategy = Strategy::kDirect;  // the strategy whose fields are changed
  int compute_units = 0;
  int most_waves = 0;  // of a block
};

// One candidate and its measurement.
struct TuneTrial {
  Tuning tuning;
  bool fits = true;  // it can be launched here
  double us = 0;     // median
};

using MeasureTuning = absl::FunctionRef<absl::StatusOr<double>(const Tuning&)>;
using ReportTrial = absl::FunctionRef<void(const TuneTrial&)>;

// Searches by coordinate descent: from `start` (with every field of the strategy set) on, changes
// one field at a time and keeps the fastest value, until nothing gets faster or `in_time` returns
// false. kInvalidArgument from `measure` means that the candidate does not fit; other errors end
// the search. The first trial is `start`; the fastest is not certain to be faster than it
// (ConfirmFaster).
absl::StatusOr<std::vector<TuneTrial>> SearchTuning(const Tuning& start, const TuneLimits& limits,
                                                    MeasureTuning measure,
                                                    absl::FunctionRef<bool()> in_time,
                                                    ReportTrial report);

// Returns the fastest of the trials that fit.
const TuneTrial& Fastest(absl::Span<const TuneTrial> trials);

// Pairs of measurements, taken in turn.
struct TuneComparison {
  double default_us = 0;  // medians
  double tuned_us = 0;
  int pairs = 0;
  int won = 0;          // pairs in which the tuned one was faster
  bool faster = false;  // beyond noise: by at least 1%, and in three of four pairs
};
TuneComparison CompareTuned(const std::vector<double>& default_us,
                            const std::vector<double>& tuned_us);

struct TuneResult {
  TuningKey key;
  Tuning built_in;  // what the strategy chooses by itself
  Tuning tuned;     // the fastest found; built_in if that is
  TuneComparison comparison;
  std::vector<TuneTrial> trials;
  bool out_of_time = false;

  // Return the launch shape to take (all 0: the strategy's own), and its median.
  Tuning best() const { return comparison.faster ? tuned : Tuning(); }
  double best_us() const { return comparison.faster ? comparison.tuned_us : comparison.default_us; }
};

// The best choice of Strategy::kAuto.
struct StrategyResult {
  TuningKey key;
  Strategy built_in = Strategy::kAuto;  // the choice without an entry
  Strategy fastest = Strategy::kAuto;
  TuneComparison comparison;  // of the fastest with the built-in one; no pairs if they are the same
};

// Tunes one shape and the strategy of the options, which is not kAuto: searches for up to `budget`,
// then compares the winner with the built-in choice on fresh inputs, both verified first. Returns
// kDataLoss if results are wrong.
absl::StatusOr<TuneResult> TuneShape(Node& node, const RunSpec& options, absl::Duration budget,
                                     ReportTrial report, const Progress& progress);

// Compares the fastest of the strategies, each as TuneShape returned it, with the one that kAuto,
// which the options must say, would be without an entry.
absl::StatusOr<StrategyResult> CompareStrategies(Node& node, const RunSpec& options,
                                                 absl::Span<const TuneResult> results,
                                                 const Progress& progress);

// Return lines of a table. Ratios are to `built_in`, which may be 0.
std::string TuneHead(Strategy strategy);
std::string TuneLine(Strategy strategy, const TuneTrial& trial, double built_in_us);
std::string TuneVerdict(const TuneResult& result, int tokens);
std::string StrategyVerdict(const StrategyResult& result, int tokens);

// Returns the entry for the result. Its note says how it was measured.
TuningEntry EntryOf(const TuneResult& result, const RunSpec& options);
TuningEntry EntryOf(const StrategyResult& result, const RunSpec& options);

}  // namespace octet

#endif  // OCTET_TOOLS_MEASURE_TUNE_TUNE_H_
