// Faults in the kernel that translates experts into their replicas, each of which the comparison
// with the reference must show. And the same kernel without a fault.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <ostream>
#include <random>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "octet/ep_config.h"
#include "octet/placement.h"
#include "tests/faults/placement_fault.h"
#include "tests/support/ep_harness.h"
#include "tests/support/node/node_fixture.h"
#include "tests/support/random_step.h"

namespace octet {
namespace {

using faults::PlacementFault;

struct Row {
  PlacementFault fault;
  std::string name;
};
void PrintTo(const Row& row, std::ostream* out) { *out << row.name; }

std::vector<Row> Table() {
  return {{PlacementFault::kTwoReplicasTakeAToken, "TwoReplicasTakeAToken"},
          {PlacementFault::kOneReplicaTakesAll, "OneReplicaTakesAll"},
          {PlacementFault::kShareOfAnotherRank, "ShareOfAnotherRank"},
          {PlacementFault::kBehindTheLast, "BehindTheLast"}};
}

// A step of tokens that all choose the experts 0, which ranks 0 and 1 have, and 1.
absl::Status RunFault(PlacementFault fault, Strategy strategy) {
  EpConfig config = {
      .num_experts = 6, .topk = 2, .hidden = 64, .max_tokens_per_rank = 8, .strategy = strategy};
  config.tuning = {.blocks = 3, .waves_per_block = 3};
  config.placement = *Placement::Create(6, 3, {0, 1, 2, 0, 3, -1, 4, 5, -1});
  faults::planted_placement = PlacementFault::kNone;
  const absl::StatusOr<std::unique_ptr<EpHarness>> harness = EpHarness::Create(3, config);
  if (!harness.ok()) return harness.status();
  std::mt19937_64 rng(3);
  StepInput input = RandomStep(rng, config, {8, 8, 8});
  for (StepInput::PerRank& rank : input.ranks) {
    for (size_t i = 0; i < rank.topk_idx.size(); ++i) {
      rank.topk_idx[i] = static_cast<int32_t>(i % 2);
    }
  }
  faults::planted_placement = fault;
  const absl::Status status = (*harness)->Step(input);
  faults::planted_placement = PlacementFault::kNone;
  return status;
}

constexpr Strategy kStrategies[] = {Strategy::kDirect, Strategy::kHighThroughput,
                                    Strategy::kLowLatency};

class PlacementFaultTest : public ::testing::TestWithParam<Row> {};

TEST_P(PlacementFaultTest, IsShown) {
  for (const Strategy strategy : kStrategies) {
    EXPECT_THAT(RunFault(GetParam().fault, strategy),
                StatusIs(absl::StatusCode::kDataLoss, ::testing::HasSubstr("rank ")));
  }
}

INSTANTIATE_TEST_SUITE_P(All, PlacementFaultTest, ::testing::ValuesIn(Table()),
                         [](const auto& info) { return info.param.name; });

TEST(CorrectPlacementTest, EqualsTheReference) {
  for (const Strategy strategy : kStrategies) {
    EXPECT_OK(RunFault(PlacementFault::kNone, strategy));
  }
}

}  // namespace
}  // namespace octet
