// dispatch, combine and both of every contender on every workload that it can do:
//
//   dispatch/direct/decode_T128, combine/nccl/prefill_T4096, both/memcpy_peer/challenge3, ...
//
// A repetition is one step, of inputs that no other step has; its time is the slowest rank's device
// time. The first step of each benchmark is not counted but verified to the bit.
#ifndef OCTET_BENCH_STEP_BENCHMARKS_H_
#define OCTET_BENCH_STEP_BENCHMARKS_H_

#include "bench/session.h"

namespace octet {

void RegisterStepBenchmarks(Session& session);

}  // namespace octet

#endif  // OCTET_BENCH_STEP_BENCHMARKS_H_
