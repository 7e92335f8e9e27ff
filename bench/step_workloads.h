// The shapes that steps are measured on.
#ifndef OCTET_BENCH_STEP_WORKLOADS_H_
#define OCTET_BENCH_STEP_WORKLOADS_H_

#include <string>
#include <vector>

#include "tools/run_options.h"

namespace octet {

// `common` with each shape, named; those whose experts the ranks cannot share are left out.
//   challenge1 .. 5    the benchmark shapes of the AMD Distributed Challenge, FP16
//   decode_T1 .. T512  H 7168, K 8, E 256, BF16, the same number of tokens on every rank
//   prefill_T4096, T8192
std::vector<RunOptions> StepWorkloads(const RunOptions& common);

// The same for an emulated node: a drawn number of tokens, and a fixed one.
std::vector<RunOptions> SmallStepWorkloads(const RunOptions& common);

}  // namespace octet

#endif  // OCTET_BENCH_STEP_WORKLOADS_H_
