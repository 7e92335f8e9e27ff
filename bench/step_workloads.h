// The shapes that steps are measured on.
#ifndef OCTET_BENCH_STEP_WORKLOADS_H_
#define OCTET_BENCH_STEP_WORKLOADS_H_

#include <string>
#include <vector>

#include "tools/step/run_spec.h"

namespace octet {

// Returns `common` with each shape, named, except those whose experts the ranks cannot share.
//   challenge1 .. 5    the benchmark shapes of the AMD Distributed Challenge, FP16
// and with the same number of tokens on every rank, combined in BF16
//   decode_T1 .. T512, prefill_T4096, T8192      H 7168, K 8, E 256, BF16
//   decode_fp8_T..., prefill_fp8_T...            dispatched in FP8: quantised on the way, or before
//   decode_E288_T1 .. T128, decode_E288_fp8_T... E 288
//   decode_zipf_T128, prefill_zipf_T4096; group (4 of 8 groups); one_expert
//   triton_T32768                                H 1536, K 8, E 384, 30% dropped
//   triton_weighted_T4096                        H 6144, K 6, E 256, 30% dropped
//   fused_T32768                                 H 1536, K 8, E 64
std::vector<RunSpec> StepWorkloads(const RunSpec& common);

// The same for an emulated node: a fixed number of tokens, also in FP8, and a drawn one.
std::vector<RunSpec> SmallStepWorkloads(const RunSpec& common);

}  // namespace octet

#endif  // OCTET_BENCH_STEP_WORKLOADS_H_
