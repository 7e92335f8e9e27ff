// The measurements of `octet perf` and `octet tune`, as plain data.
#ifndef OCTET_TOOLS_MEASURE_STEP_PERF_SPEC_H_
#define OCTET_TOOLS_MEASURE_STEP_PERF_SPEC_H_

#include <string>
#include <vector>

#include "tools/measure/fused/fused_run.h"
#include "tools/step/run_spec.h"

namespace octet {

struct PerfSpec {
  // One shape for each number of tokens, which is the same on every rank and also max_tokens.
  std::vector<RunSpec> shapes;
  std::vector<std::string> strategies;  // names of contenders, or "auto", or "all"
  int check_steps = 1;                  // of each kind, to be verified
  bool graph = false;                   // a second row for each shape: replays of a captured step
  std::string json;                     // file; empty: none
  // For calls with products instead of steps: one for each of `shapes`. The strategy is one of
  // Octet's.
  std::vector<FusedRunOptions> fused;
};

}  // namespace octet

#endif  // OCTET_TOOLS_MEASURE_STEP_PERF_SPEC_H_
