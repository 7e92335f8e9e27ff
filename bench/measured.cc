#include "bench/measured.h"

#include <utility>
#include <vector>

#include "tools/support/statistics.h"

namespace octet {
namespace {

constexpr double kSecondsPerMicro = 1e-6;

double Least(const std::vector<double>& values) { return Summarize(values).min; }
double Percentile99(const std::vector<double>& values) { return Summarize(values).p99; }

}  // namespace

void RegisterMeasured(Session& session, const std::string& name,
                      std::function<absl::StatusOr<double>(benchmark::State&)> measure) {
  benchmark::RegisterBenchmark(name.c_str(),
                               [&session, measure = std::move(measure)](benchmark::State& state) {
                                 for ([[maybe_unused]] auto _ : state) {
                                   const absl::StatusOr<double> us = measure(state);
                                   if (!us.ok()) {
                                     session.Fail(state, us.status());
                                     return;
                                   }
                                   state.SetIterationTime(*us * kSecondsPerMicro);
                                 }
                               })
      ->UseManualTime()
      ->Iterations(1)
      ->Unit(benchmark::kMicrosecond)
      ->ComputeStatistics("min", Least)
      ->ComputeStatistics("p99", Percentile99);
}

}  // namespace octet
