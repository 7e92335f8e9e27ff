// One row of `octet perf`: dispatch, combine and both, measured and verified.
#ifndef OCTET_TOOLS_MEASURE_STEP_PERF_H_
#define OCTET_TOOLS_MEASURE_STEP_PERF_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "tools/contenders/contender.h"
#include "tools/measure/probe/rail_test.h"
#include "tools/measure/step/step_runner.h"
#include "tools/step/run_spec.h"
#include "tools/support/domain.h"
#include "tools/support/progress.h"
#include "tools/support/statistics.h"

namespace octet {

// The calls that are timed, each from its own barrier. kBoth includes the stand-in for experts
// between the calls.
enum class PerfKind { kDispatch, kCombine, kBoth };
inline constexpr size_t kNumPerfKinds = 3;
inline constexpr std::array<const char*, kNumPerfKinds> kPerfKindNames = {"dispatch", "combine",
                                                                          "both"};

struct PerfFigures {
  std::vector<double> us;   // of each timed step: the slowest rank's device time
  double logical_gbps = 0;  // medians over the timed steps, of the busiest rank
  double wire_gbps = 0;
  double rail_gbps = 0;  // with several nodes
  double wire_bytes = 0;
  double rail_bytes = 0;
  int64_t wrong = 0;  // rows received and rows of y that are not the reference's to the bit
};

struct PerfRow {
  int tokens = 0;        // of a rank: those of rank 0
  std::string strategy;  // or other contender that was measured
  RunSpec options;
  EpConfig config;  // with every choice made
  std::array<PerfFigures, kNumPerfKinds> kinds;
  // With several nodes: the rails alone, with the bytes of the last step's dispatch and combine.
  std::vector<RailFigures> rails;
  int verified_steps = 0;        // of all kinds together
  std::string first_difference;  // in words; empty if there is none
};

// Returns the figures of steps. `fused`: StepForm::kFused, `calls`: StepForm::kCalls.
std::array<PerfFigures, kNumPerfKinds> PerfFiguresOf(const std::vector<StepResult>& fused,
                                                     const std::vector<StepResult>& calls);

// Collective. `contender` must be of this process's node; nullptr: what ExpertParallel chooses.
// With several nodes it must be a strategy. The nodes must be those of the options. The row is the
// same on all of them. Returns kResourceExhausted if it does not fit into memory; the nodes are
// then unchanged.
absl::StatusOr<PerfRow> MeasurePerf(Domain& domain, Contender* contender, const RunSpec& options,
                                    int check_steps, const Progress& progress);

}  // namespace octet

#endif  // OCTET_TOOLS_MEASURE_STEP_PERF_H_
