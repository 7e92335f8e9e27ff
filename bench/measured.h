// Benchmarks that measure themselves, one measurement in each repetition.
#ifndef OCTET_BENCH_MEASURED_H_
#define OCTET_BENCH_MEASURED_H_

#include <benchmark/benchmark.h>

#include <functional>
#include <string>

#include "absl/status/statusor.h"
#include "bench/session.h"

namespace octet {

// `measure` gives microseconds and may set counters. An error ends the benchmark and is the
// session's. The session must outlive the benchmark.
void RegisterMeasured(Session& session, const std::string& name,
                      std::function<absl::StatusOr<double>(benchmark::State&)> measure);

}  // namespace octet

#endif  // OCTET_BENCH_MEASURED_H_
