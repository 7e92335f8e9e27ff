// The ceilings of links, barriers, flags and launches, each with all its alternatives:
//
//   links/all_to_all/stores/blocks:24/row:14336     links/all_to_all/copy_engine
//   links/pair:0-1/loads/blocks:132/row:14336       latency/flag_round_trip/0-1, ...
#ifndef OCTET_BENCH_CEILING_BENCHMARKS_H_
#define OCTET_BENCH_CEILING_BENCHMARKS_H_

#include "bench/session.h"

namespace octet {

void RegisterCeilingBenchmarks(Session& session);

}  // namespace octet

#endif  // OCTET_BENCH_CEILING_BENCHMARKS_H_
