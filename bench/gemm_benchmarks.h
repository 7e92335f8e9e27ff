// Grouped products, with the library's choice of tiles, on the first GPU:
//
//   gemm/dsv3_up_64x512, gemm/qwen3_down_32x1024, gemm/dsv3_up_64x16, ...
//
// A repetition is a series as `octet gemm` measures it; its time is the series' median. A sample of
// the last product of each series is checked against float64.
#ifndef OCTET_BENCH_GEMM_BENCHMARKS_H_
#define OCTET_BENCH_GEMM_BENCHMARKS_H_

#include "bench/session.h"

namespace octet {

void RegisterGemmBenchmarks(Session& session);

}  // namespace octet

#endif  // OCTET_BENCH_GEMM_BENCHMARKS_H_
