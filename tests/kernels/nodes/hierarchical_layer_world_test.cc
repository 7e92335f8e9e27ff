// Experts and layers over the nodes of a World: as many as the launcher has started processes.
// Every process checks its own ranks.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "kernels/ep/on_all_nodes.h"
#include "kernels/layer/layer_config.h"
#include "octet/domain.h"
#include "octet/expert_parallel.h"
#include "octet/moe_layer.h"
#include "octet/routed_experts.h"
#include "octet/world.h"
#include "runtime/base/status_macros.h"
#include "runtime/failure/failure.h"
#include "tests/kernels/nodes/experts_harness.h"
#include "tests/kernels/nodes/layer_harness.h"
#include "tests/support/node/node_fixture.h"
#include "tests/support/nodes/joined_nodes.h"
#include "tests/support/random_step.h"

namespace octet {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class HierarchicalLayerWorldTest : public ::testing::Test {
 protected:
  void Join(int ranks_per_node) {
    nodes_.reset();
    world_.reset();
    auto world = World::Create(
        {.node = {
             .num_ranks = ranks_per_node, .timeout = absl::Seconds(60), .on_failure = nullptr}});
    ASSERT_OK(world.status());
    world_ = *std::move(world);
    nodes_ = JoinedNodes::Join(*world_);
  }

  static LayerHarness::Make LayerOf(RailRows rows) {
    return [rows](Domain& domain, const MoeLayerConfig& config) {
      return MoeLayer::Create(domain, config, {.rails = {.rows = rows}});
    };
  }

  std::unique_ptr<World> world_;
  std::unique_ptr<JoinedNodes> nodes_;  // gone before the World
};

MoeLayerConfig SmallLayer(int ranks) {
  MoeLayerConfig config;
  config.num_experts = 4 * ranks;
  config.topk = 3;
  config.hidden = 64;
  config.intermediate = 48;
  config.shared_intermediate = 40;
  config.router.normalize = true;
  config.max_tokens_per_rank = 9;
  config.max_blocks = 2;
  return config;
}

TEST_F(HierarchicalLayerWorldTest, ExpertsOfRandomShapesEqualTheReference) {
  for (uint64_t seed = 1; seed <= 6; ++seed) {
    std::mt19937_64 rng(seed);  // alike in all processes
    Join(1 + static_cast<int>(rng() % 2));
    ASSERT_FALSE(HasFatalFailure());
    const ExpertsProblem problem = DrawExpertsProblem(rng, nodes_->shape());
    SCOPED_TRACE(absl::StrCat("seed ", seed, ": ", problem.Text()));
    const auto harness = ExpertsHarness::Create(*nodes_, problem);
    ASSERT_OK(harness.status());
    const EpConfig& ep = problem.config.ep;
    const std::vector<int> some = RandomTokens(rng, ep, nodes_->num_ranks());
    const std::vector<int> full(some.size(), ep.max_tokens_per_rank);
    ASSERT_OK((*harness)->Check({(*harness)->Draw(rng, full), (*harness)->Draw(rng, some, 0.3)}));
  }
}

TEST_F(HierarchicalLayerWorldTest, LayersOfRandomShapes) {
  for (uint64_t seed = 1; seed <= 6; ++seed) {
    std::mt19937_64 rng(seed);
    Join(1 + static_cast<int>(rng() % 2));
    ASSERT_FALSE(HasFatalFailure());
    const MoeLayerConfig config = DrawLayer(rng, nodes_->shape());
    SCOPED_TRACE(absl::StrCat("seed ", seed, ": ", TextOf(config)));
    const RailRows rows = rng() % 2 == 0 ? RailRows::kBlocks : RailRows::kCounted;
    const auto harness = LayerHarness::Create(*nodes_, config, LayerOf(rows));
    ASSERT_OK(harness.status());
    ASSERT_OK((*harness)->Check(DrawLayerTokens(rng, config, nodes_->num_ranks())));
    if (rows == RailRows::kCounted) continue;
    ASSERT_OK((*harness)->CheckReplays(DrawLayerTokens(rng, config, nodes_->num_ranks())));
  }
}

TEST_F(HierarchicalLayerWorldTest, CountedRowsCannotBeCaptured) {
  Join(1);
  ASSERT_FALSE(HasFatalFailure());
  MoeLayerConfig config = SmallLayer(nodes_->num_ranks());
  config.path = LayerPath::kLaunches;  // also on a node by itself
  const auto harness = LayerHarness::Create(*nodes_, config, LayerOf(RailRows::kCounted));
  ASSERT_OK(harness.status());
  std::mt19937_64 rng(3);
  const LayerTokens tokens = DrawLayerTokens(rng, config, nodes_->num_ranks());
  EXPECT_THAT((*harness)->CheckReplays(tokens),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("RailRows::kBlocks")));
  EXPECT_OK((*harness)->Check(tokens));
}

TEST_F(HierarchicalLayerWorldTest, NodesThatAskForDifferentThingsAreRefused) {
  Join(1);
  ASSERT_FALSE(HasFatalFailure());
  MoeLayerConfig config = SmallLayer(nodes_->num_ranks());
  const auto good = MoeLayer::Create(*world_, config);
  ASSERT_OK(good.status());
  EXPECT_EQ((*good)->config().fusion, Fusion::kNone);
  const bool odd = world_->num_nodes() > 1 && world_->node_index() == 1;
  config.fusion = Fusion::kTiles;
  EXPECT_THAT(MoeLayer::Create(*world_, config).status(),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("auto or none")));
  config.fusion = Fusion::kAuto;
  if (world_->num_nodes() == 1) return;
  config.router.scaling = odd ? 2 : 1;
  EXPECT_THAT(MoeLayer::Create(*world_, config).status(),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       AllOf(HasSubstr("scaling 1"), HasSubstr("scaling 2"))));
  config.router.scaling = 1;
  std::vector<Rail*> rails;
  for (int r = 0; r < world_->ranks_per_node(); ++r) rails.push_back(world_->rail(r));
  LocalDomain alone(world_->node(), rails);
  const auto make = [&](const std::function<absl::StatusOr<std::unique_ptr<MoeLayer>>()>& here) {
    return MakeOnAllNodes<MoeLayer>(
        *world_, "this call", [] { return std::string(); }, here,
        [](const MoeLayer& made) { return TextOf(made.config(), MoeLayerOptions()); });
  };
  // Choices that nodes make differently.
  const auto differ = make([&] {
    MoeLayerConfig chosen = config;
    chosen.strategy = odd ? Strategy::kLowLatency : Strategy::kHighThroughput;
    return MoeLayer::Create(alone, chosen);
  });
  EXPECT_THAT(differ.status(),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       AllOf(HasSubstr("the choices of this call"), HasSubstr("low_latency"))));
  // An error of one node is that of all, with all that it reports.
  const absl::Status lost = make([&]() -> absl::StatusOr<std::unique_ptr<MoeLayer>> {
                              if (odd) {
                                return WithLostNode(absl::UnavailableError("node 7 has died"));
                              }
                              return MoeLayer::Create(alone, config);
                            }).status();
  EXPECT_THAT(lost, StatusIs(absl::StatusCode::kUnavailable, "node 1: node 7 has died"));
  EXPECT_TRUE(IsLostNode(lost));
  EXPECT_OK(MoeLayer::Create(*world_, config).status());
}

// A call that one node does not make ends on all of them, and the next one is correct.
TEST_F(HierarchicalLayerWorldTest, TheNextCallAfterAFailureIsCorrect) {
  Join(2);
  ASSERT_FALSE(HasFatalFailure());
  const MoeLayerConfig config = SmallLayer(nodes_->num_ranks());
  const auto harness = LayerHarness::Create(*nodes_, config, LayerOf(RailRows::kAuto));
  ASSERT_OK(harness.status());
  std::mt19937_64 rng(4);
  const LayerTokens tokens = DrawLayerTokens(rng, config, nodes_->num_ranks());
  const int left_out = nodes_->num_ranks() - 1;
  for (int i = 0; i < 2; ++i) {
    const absl::Status failed = nodes_->Run([&](Rank& rank, int global) -> absl::Status {
      if (global == left_out) return absl::DataLossError("left out");
      return (*harness)->layer(0).Forward(rank, nullptr, 0, nullptr);
    });
    EXPECT_THAT(failed, StatusIs(absl::StatusCode::kDataLoss, HasSubstr("left out")));
    EXPECT_OK((*harness)->Check(tokens));
  }
}

}  // namespace
}  // namespace octet
