#include "tools/measure/probe/ceilings.h"

#include <memory>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "runtime/base/status_macros.h"
#include "tools/measure/probe/latency_test.h"
#include "tools/measure/probe/link_test.h"
#include "tools/support/statistics.h"

namespace octet {
namespace {

constexpr int kRepetitions = 15;

absl::Status Median(absl::FunctionRef<absl::StatusOr<double>()> measure, double& median) {
  std::vector<double> values;
  for (int i = 0; i < kRepetitions; ++i) {
    OCTET_ASSIGN_OR_RETURN(const double value, measure());
    values.push_back(value);
  }
  median = Summarize(std::move(values)).median;
  return absl::OkStatus();
}

absl::Status MeasureLinks(Node& node, Ceilings& ceilings) {
  OCTET_ASSIGN_OR_RETURN(const std::unique_ptr<LinkTest> links, LinkTest::Create(node));
  const int many = 2 * node.topology().gpus[0].num_compute_units;
  const std::pair<LinkLoad, double*> loads[] = {
      {{.mover = Mover::kStores, .blocks = many}, &ceilings.all_to_all_gbps},
      {{.mover = Mover::kLoads, .blocks = many}, &ceilings.loads_gbps},
      {{.mover = Mover::kBulk}, &ceilings.bulk_gbps},
      {{.mover = Mover::kCopyEngine}, &ceilings.copy_engine_gbps},
      {{.mover = Mover::kStores, .from = 0, .to = 1, .blocks = many}, &ceilings.pair_gbps},
  };
  for (const auto& [load, gbps] : loads) {
    OCTET_ASSIGN_OR_RETURN(*gbps, links->Gbps(load));
  }
  return absl::OkStatus();
}

absl::Status MeasureLatencies(Node& node, Ceilings& ceilings) {
  OCTET_ASSIGN_OR_RETURN(const std::unique_ptr<LatencyTest> test, LatencyTest::Create(node));
  OCTET_RETURN_IF_ERROR(Median([&] { return test->EmptyLaunch(); }, ceilings.empty_launch_us));
  OCTET_RETURN_IF_ERROR(Median([&] { return test->NodeBarrier(); }, ceilings.node_barrier_us));
  OCTET_RETURN_IF_ERROR(Median([&] { return test->LaunchSkew(); }, ceilings.launch_skew_us));
  OCTET_ASSIGN_OR_RETURN(ceilings.host_barrier_us, test->HostBarrier());
  ceilings.clock_round_trip_us = test->clock_round_trip();
  if (node.num_ranks() == 1) return absl::OkStatus();
  return Median([&] { return test->FlagRoundTrip(0, 1); }, ceilings.flag_round_trip_us);
}

}  // namespace

absl::StatusOr<Ceilings> MeasureCeilings(Node& node) {
  Ceilings ceilings;
  if (node.num_ranks() > 1) OCTET_RETURN_IF_ERROR(MeasureLinks(node, ceilings));
  OCTET_RETURN_IF_ERROR(MeasureLatencies(node, ceilings));
  return ceilings;
}

}  // namespace octet
