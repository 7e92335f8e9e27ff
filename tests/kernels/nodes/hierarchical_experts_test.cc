// RoutedExperts over several nodes in one process.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <random>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "octet/domain.h"
#include "octet/expert_parallel.h"
#include "octet/moe_layer.h"
#include "octet/routed_experts.h"
#include "runtime/base/status_macros.h"
#include "tests/kernels/nodes/experts_harness.h"
#include "tests/support/node/node_fixture.h"
#include "tests/support/nodes/joined_nodes.h"
#include "tests/support/random_step.h"

namespace octet {
namespace {

using ::testing::HasSubstr;

class HierarchicalExpertsTest : public ::testing::Test {
 protected:
  void Join(const NodesOfRanks& shape, absl::Duration timeout = absl::Seconds(60)) {
    harness_.reset();
    auto nodes = JoinedNodes::Create(shape, timeout);
    ASSERT_OK(nodes.status());
    nodes_ = *std::move(nodes);
  }
  void Make(const ExpertsProblem& problem) {
    auto harness = ExpertsHarness::Create(*nodes_, problem);
    ASSERT_OK(harness.status()) << problem.Text();
    harness_ = *std::move(harness);
  }

  std::unique_ptr<JoinedNodes> nodes_;
  std::unique_ptr<ExpertsHarness> harness_;  // gone before the nodes
};

ExpertsProblem SmallProblem() {
  ExpertsProblem problem;
  problem.config.ep = {.num_experts = 8,
                       .topk = 3,
                       .hidden = 64,
                       .max_tokens_per_rank = 6,
                       .strategy = Strategy::kHighThroughput,
                       .max_blocks = 2};
  problem.config.intermediate = 32;
  return problem;
}

// All combinations of 1 to 3 nodes with 1 to 3 ranks.
TEST_F(HierarchicalExpertsTest, RandomShapesEqualTheReference) {
  for (uint64_t seed = 1; seed <= 18; ++seed) {
    std::mt19937_64 rng(seed);
    const NodesOfRanks shape = {.num_nodes = static_cast<int>((seed - 1) / 3 % 3) + 1,
                                .ranks_per_node = static_cast<int>((seed - 1) % 3) + 1};
    const ExpertsProblem problem = DrawExpertsProblem(rng, shape);
    SCOPED_TRACE(absl::StrCat(shape.num_nodes, " nodes of ", shape.ranks_per_node, ", seed ", seed,
                              ": ", problem.Text()));
    Join(shape);
    ASSERT_FALSE(HasFatalFailure());
    Make(problem);
    ASSERT_FALSE(HasFatalFailure());
    const EpConfig& ep = problem.config.ep;
    std::vector<int> some_idle = RandomTokens(rng, ep, nodes_->num_ranks());
    some_idle[seed % some_idle.size()] = 0;
    const std::vector<int> full(some_idle.size(), ep.max_tokens_per_rank);
    ASSERT_OK(harness_->Check({harness_->Draw(rng, full), harness_->Draw(rng, some_idle, 0.3),
                               harness_->Draw(rng, full, 0.05)}));
  }
}

TEST_F(HierarchicalExpertsTest, NobodyHasTokens) {
  Join({.num_nodes = 2, .ranks_per_node = 2});
  ASSERT_FALSE(HasFatalFailure());
  std::mt19937_64 rng(2);
  for (const RailRows rows : {RailRows::kBlocks, RailRows::kCounted}) {
    ExpertsProblem problem = SmallProblem();
    problem.rows = rows;
    Make(problem);
    ASSERT_FALSE(HasFatalFailure());
    const StepInput none = harness_->Draw(rng, {0, 0, 0, 0});
    EXPECT_OK(harness_->Check({none, harness_->Draw(rng, {0, 6, 0, 1}), none}));
  }
}

// A batch of as many rows as there can be: every token of every rank goes to one node's expert.
TEST_F(HierarchicalExpertsTest, AllRowsGoToOneExpert) {
  Join({.num_nodes = 3, .ranks_per_node = 2});
  ASSERT_FALSE(HasFatalFailure());
  ExpertsProblem problem = SmallProblem();
  problem.config.ep.num_experts = 6;
  problem.config.ep.topk = 2;
  std::mt19937_64 rng(4);
  for (const Strategy strategy : {Strategy::kHighThroughput, Strategy::kLowLatency}) {
    problem.config.ep.strategy = strategy;
    Make(problem);
    ASSERT_FALSE(HasFatalFailure());
    for (const int32_t expert : {0, 3, 5}) {
      StepInput input = harness_->Draw(rng, {6, 6, 6, 6, 6, 6});
      for (StepInput::PerRank& rank : input.ranks) {
        for (size_t i = 0; i < rank.topk_idx.size(); ++i) {
          rank.topk_idx[i] = i % 2 == 0 ? expert : -1;
        }
      }
      EXPECT_OK(harness_->Check({input}));
    }
  }
}

TEST_F(HierarchicalExpertsTest, RefusesFusion) {
  Join({.num_nodes = 2, .ranks_per_node = 1});
  ASSERT_FALSE(HasFatalFailure());
  Domain& domain = *nodes_->nodes().front().domain;
  for (const Fusion fusion : {Fusion::kTiles, Fusion::kSerial}) {
    RoutedExpertsConfig config = SmallProblem().config;
    config.gemm_combine = fusion;
    EXPECT_THAT(RoutedExperts::Create(domain, config).status(),
                StatusIs(absl::StatusCode::kInvalidArgument,
                         HasSubstr("over several nodes it must be auto or none")));
    config.gemm_combine = Fusion::kAuto;
    config.dispatch_gemm = fusion;
    EXPECT_THAT(RoutedExperts::Create(domain, config).status(),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("dispatch_gemm")));
  }
  const auto made = RoutedExperts::Create(domain, SmallProblem().config);
  ASSERT_OK(made.status());
  EXPECT_EQ((*made)->config().dispatch_gemm, Fusion::kNone);
  EXPECT_EQ((*made)->config().gemm_combine, Fusion::kNone);
  EXPECT_EQ((*made)->config().ep.combine_order, CombineOrder::kPerNode);
  EXPECT_EQ((*made)->config().ep.num_experts, 8);
}

TEST_F(HierarchicalExpertsTest, RefusesCallsThatCannotBeRight) {
  Join({.num_nodes = 2, .ranks_per_node = 1});
  ASSERT_FALSE(HasFatalFailure());
  Make(SmallProblem());
  ASSERT_FALSE(HasFatalFailure());
  std::mt19937_64 rng(5);
  const StepInput input = harness_->Draw(rng, {6, 3});
  EXPECT_OK(nodes_->Run([&](Rank& rank, int global) -> absl::Status {
    RoutedExperts& experts = harness_->experts(global);
    EXPECT_THAT(
        experts.DispatchGemm(rank, {}).status(),
        StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(" is null; the call needs ")));
    EXPECT_EQ(experts.GemmCombine(rank, {}, {}).code(), absl::StatusCode::kInvalidArgument);
    return harness_->Call(rank, global, input);
  }));
}

// Products wait behind a dispatch that fails, and end with it.
TEST_F(HierarchicalExpertsTest, AWrongChoiceEndsTheCall) {
  Join({.num_nodes = 2, .ranks_per_node = 2}, absl::Seconds(2));
  ASSERT_FALSE(HasFatalFailure());
  Make(SmallProblem());
  ASSERT_FALSE(HasFatalFailure());
  std::mt19937_64 rng(6);
  StepInput wrong = harness_->Draw(rng, {6, 6, 6, 6});
  wrong.ranks[0].topk_idx[3] = 8;
  const std::vector<absl::Status> statuses =
      nodes_->RunAll([&](Rank& rank, int global) { return harness_->Call(rank, global, wrong); });
  EXPECT_THAT(statuses[0], StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("token 1")));
}

}  // namespace
}  // namespace octet
