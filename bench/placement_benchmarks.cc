#include "bench/placement_benchmarks.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "bench/measured.h"
#include "octet/placement.h"
#include "runtime/base/status_macros.h"

namespace octet {
namespace {

struct Shape {
  int experts;
  int ranks;
  int slots;
};
constexpr auto kShapes = std::to_array<Shape>({{256, 8, 40}, {256, 64, 5}, {2048, 64, 40}});

// The n-th expert has n^-S rows. The order of experts is of no importance to the planner.
std::vector<double> Zipf(int num_experts) {
  constexpr double kExponent = 1.1;
  std::vector<double> loads;
  for (int n = 1; n <= num_experts; ++n) loads.push_back(1e6 * std::pow(n, -kExponent));
  return loads;
}

absl::StatusOr<double> Measure(benchmark::State& state, const Shape& shape) {
  const std::vector<double> loads = Zipf(shape.experts);
  const absl::Time begin = absl::Now();
  OCTET_ASSIGN_OR_RETURN(const Placement placement, PlanPlacement(loads, shape.ranks, shape.slots));
  const absl::Duration time = absl::Now() - begin;
  const std::vector<double> of_ranks = placement.LoadsOfRanks(loads);
  state.counters["max_of_mean"] = *std::max_element(of_ranks.begin(), of_ranks.end()) /
                                  std::accumulate(loads.begin(), loads.end(), 0.0) * shape.ranks;
  return absl::ToDoubleMicroseconds(time);
}

}  // namespace

void RegisterPlacementBenchmarks(Session& session) {
  for (const Shape& shape : kShapes) {
    RegisterMeasured(
        session,
        absl::StrCat("placement/plan_E", shape.experts, "_R", shape.ranks, "_S", shape.slots),
        [shape](benchmark::State& state) { return Measure(state, shape); });
  }
}

}  // namespace octet
