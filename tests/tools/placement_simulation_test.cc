#include "tools/workload/placement_simulation.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "octet/placement.h"

namespace octet {
namespace {

// Numbers with which the times are easy to see: a row crosses in 1 us (and returns in 1 us) and is
// put in its place in 0.25 us, its products take 2 us, and reading an expert's weights takes 3 us.
SimulatedParts Parts() {
  const double weights = 3 * 1000.0 * 100;
  return {.call_us = 10,
          .link_gbps = 2,
          .rows_tbps = 0.008,
          .tflops = 2 * weights / 2e6,
          .weights_tbps = 2 * weights / 3e6,
          .hidden = 1000,
          .intermediate = 100};
}

TEST(PlacementSimulationTest, TheSlowestRankSaysHowLongAStepTakes) {
  const Placement placement = *Placement::InOrder(4, 2);
  // Rank 0 keeps expert 0's rows and sends two tokens, one of them for both experts there.
  const StepChoices choices = {{0, 1, 2, 3, 2, -1, 0, -1}, {2, -1, 3, -1}};
  const SimulatedStep step = SimulateStep(Parts(), placement, 2, choices);
  EXPECT_DOUBLE_EQ(step.link_us, 2 * 2);
  // Rank 0: two rows of expert 0, one of expert 1, whose weights take longer. Rank 1: three of
  // expert 2, two of expert 3.
  EXPECT_DOUBLE_EQ(step.product_us, 3 * 2 + 2 * 2);
  EXPECT_DOUBLE_EQ(step.us, 10 + 4 + 10);
  EXPECT_DOUBLE_EQ(step.imbalance, 5 / 4.0);
  const SimulatedStep even = SimulateEvenStep(Parts(), placement, 2, choices);
  EXPECT_DOUBLE_EQ(even.link_us, 2);
  EXPECT_DOUBLE_EQ(even.product_us, (4 + 3 + 6 + 4) / 2.0);
}

TEST(PlacementSimulationTest, ReplicasKeepTokensOnTheirRank) {
  const Placement everywhere = *PlanPlacement({1, 1, 1, 1}, 2, 4);
  const StepChoices choices = {{0, 1, 2, 3}, {2, 3, 0, 1}};
  // Nothing crosses, and four rows are put in their places and added.
  EXPECT_DOUBLE_EQ(SimulateStep(Parts(), everywhere, 2, choices).link_us, 2 * 4 * 0.25);
}

TEST(PlacementSimulationTest, PlansHelpUntilOtherExpertsArePopular) {
  SimulationSpec spec;
  spec.workload.num_ranks = 8;
  spec.workload.config = {.num_experts = 64, .topk = 4, .hidden = 8, .max_tokens_per_rank = 256};
  spec.workload.tokens.assign(8, 256);
  spec.workload.routing = *ParseRouting("zipf:1.2");
  spec.slots = 10;
  spec.steps = 8;
  spec.replan = 1;
  const absl::StatusOr<std::vector<SimulatedRun>> same = Simulate(spec);
  ASSERT_TRUE(same.ok()) << same.status();
  ASSERT_EQ(same->size(), 4);
  const double in_order = (*same)[0].mean.us;
  EXPECT_LT((*same)[1].mean.us, 0.9 * in_order);
  EXPECT_LT((*same)[2].mean.us, 0.9 * in_order);
  EXPECT_GT((*same)[2].moved, 0);
  EXPECT_EQ((*same)[1].moved, 0);
  EXPECT_LT((*same)[1].mean.imbalance, 1.2);
  for (const SimulatedRun& run : *same) {
    EXPECT_GE(run.mean.us, (*same)[3].mean.us);
    EXPECT_GE(run.most_us, run.mean.us);
  }
  spec.drift = 4;
  const absl::StatusOr<std::vector<SimulatedRun>> drifting = Simulate(spec);
  ASSERT_TRUE(drifting.ok()) << drifting.status();
  EXPECT_GT((*drifting)[1].mean.us, (*same)[1].mean.us);
  EXPECT_LT((*drifting)[2].mean.us, (*drifting)[1].mean.us);
}

TEST(PlacementSimulationTest, ARecordedRoutingIsCutIntoSteps) {
  RecordedRouting recorded;
  recorded.topk = 1;
  recorded.topk_idx = {{0, 0, 1, 1}, {0, 0, 1, 1}};
  SimulationSpec spec;
  spec.workload.num_ranks = 2;
  spec.workload.config = {.num_experts = 2, .topk = 1, .hidden = 8, .max_tokens_per_rank = 4};
  spec.workload.routing = *ParseRouting("file:recorded.npy");
  spec.workload.recorded = std::make_shared<RecordedRouting>(recorded);
  spec.slots = 1;
  spec.steps = 2;
  const absl::StatusOr<std::vector<SimulatedRun>> runs = Simulate(spec);
  ASSERT_TRUE(runs.ok()) << runs.status();
  // In each half all rows go to one of the two ranks.
  EXPECT_DOUBLE_EQ((*runs)[0].mean.imbalance, 2);
}

}  // namespace
}  // namespace octet
