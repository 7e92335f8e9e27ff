// Whole layers with random weights, on all ranks:
//
//   layer/qwen3_30b_T8192, layer/dsv3_fp8_T128, ...
//   layer/qwen3_30b_T4/path:launches, layer/qwen3_30b_T4/path:decode, ...
//
// The latter are replays of a graph, for at most 64 tokens of all ranks.
//
// A repetition is a series as `octet layer` measures it; its time is the series' median. The first
// call of each series is checked.
#ifndef OCTET_BENCH_LAYER_BENCHMARKS_H_
#define OCTET_BENCH_LAYER_BENCHMARKS_H_

#include "bench/session.h"

namespace octet {

void RegisterLayerBenchmarks(Session& session);

}  // namespace octet

#endif  // OCTET_BENCH_LAYER_BENCHMARKS_H_
