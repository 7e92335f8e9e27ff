// The planning of placements, on the host:
//
//   placement/plan_E256_R64_S5, ...
//
// of loads that follow Zipf's law. A repetition plans once.
#ifndef OCTET_BENCH_PLACEMENT_BENCHMARKS_H_
#define OCTET_BENCH_PLACEMENT_BENCHMARKS_H_

#include "bench/session.h"

namespace octet {

void RegisterPlacementBenchmarks(Session& session);

}  // namespace octet

#endif  // OCTET_BENCH_PLACEMENT_BENCHMARKS_H_
