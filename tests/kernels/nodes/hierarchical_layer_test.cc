// MoeLayer over several nodes in one process.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <random>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/ep/layer_parts.h"
#include "octet/domain.h"
#include "octet/expert_parallel.h"
#include "octet/moe_layer.h"
#include "octet/node.h"
#include "octet/placement.h"
#include "octet/routed_experts.h"
#include "runtime/base/status_macros.h"
#include "tests/kernels/nodes/layer_harness.h"
#include "tests/support/node/node_fixture.h"
#include "tests/support/nodes/joined_nodes.h"
#include "tools/step/layer_calls.h"

namespace octet {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

MoeLayerConfig SmallLayer() {
  MoeLayerConfig config;
  config.num_experts = 12;
  config.topk = 3;
  config.hidden = 64;
  config.intermediate = 48;
  config.shared_intermediate = 40;
  config.shared_gate = true;
  config.router.normalize = true;
  config.max_tokens_per_rank = 9;
  config.strategy = Strategy::kHighThroughput;
  config.max_blocks = 2;
  return config;
}

LayerHarness::Make OnRails(RailRows rows, int chunk_tokens = 0) {
  return [=](Domain& domain, const MoeLayerConfig& config) {
    return MoeLayer::Create(domain, config,
                            {.rails = {.rows = rows, .chunk_tokens = chunk_tokens}});
  };
}

class HierarchicalLayerTest : public ::testing::Test {
 protected:
  void Join(const NodesOfRanks& shape) {
    harness_.reset();
    auto nodes = JoinedNodes::Create(shape, absl::Seconds(60));
    ASSERT_OK(nodes.status());
    nodes_ = *std::move(nodes);
  }
  void Make(const MoeLayerConfig& config, const LayerHarness::Make& make) {
    auto harness = LayerHarness::Create(*nodes_, config, make);
    ASSERT_OK(harness.status()) << TextOf(config);
    harness_ = *std::move(harness);
  }
  // Returns y of all ranks, in order.
  std::vector<uint16_t> OutputOf(const LayerTokens& tokens) {
    const auto outputs = harness_->Call(tokens);
    EXPECT_OK(outputs.status());
    std::vector<uint16_t> y;
    if (!outputs.ok()) return y;
    for (const LayerOutput& output : *outputs) y.insert(y.end(), output.y.begin(), output.y.end());
    return y;
  }

  std::unique_ptr<JoinedNodes> nodes_;
  std::unique_ptr<LayerHarness> harness_;  // gone before the nodes
};

// All combinations of 1 to 3 nodes with 1 to 3 ranks.
TEST_F(HierarchicalLayerTest, RandomShapes) {
  for (uint64_t seed = 1; seed <= 18; ++seed) {
    std::mt19937_64 rng(seed);
    const NodesOfRanks shape = {.num_nodes = static_cast<int>((seed - 1) / 3 % 3) + 1,
                                .ranks_per_node = static_cast<int>((seed - 1) % 3) + 1};
    const MoeLayerConfig config = DrawLayer(rng, shape);
    SCOPED_TRACE(absl::StrCat(shape.num_nodes, " nodes of ", shape.ranks_per_node, ", seed ", seed,
                              ": ", TextOf(config)));
    Join(shape);
    ASSERT_FALSE(HasFatalFailure());
    const RailRows rows = rng() % 2 == 0 ? RailRows::kBlocks : RailRows::kCounted;
    Make(config, OnRails(rows, static_cast<int>(rng() % 6)));
    ASSERT_FALSE(HasFatalFailure());
    for (int call = 0; call < 2; ++call) {
      ASSERT_OK(harness_->Check(DrawLayerTokens(rng, config, nodes_->num_ranks())));
    }
  }
}

// With a single rank a node's sum is its rank's, so that P nodes of a rank and a node of P ranks
// add in the same order.
TEST_F(HierarchicalLayerTest, NodesOfOneRankGiveTheBitsOfOneNode) {
  const auto on_one_node = [](Domain& domain, const MoeLayerConfig& config) {
    return MoeLayer::Create(domain.node(), config);
  };
  for (const GemmFormat weights : {GemmFormat::kSame, GemmFormat::kFp8, GemmFormat::kMxfp4}) {
    for (const Strategy strategy : {Strategy::kHighThroughput, Strategy::kLowLatency}) {
      MoeLayerConfig config = SmallLayer();
      config.weights = weights;
      config.fp8_rows = weights == GemmFormat::kMxfp4;
      if (config.fp8_rows) config.intermediate = 64;
      config.strategy = strategy;
      SCOPED_TRACE(TextOf(config));
      std::mt19937_64 rng(8);
      const LayerTokens tokens = DrawLayerTokens(rng, config, 3);
      Join({.num_nodes = 1, .ranks_per_node = 3});
      ASSERT_FALSE(HasFatalFailure());
      Make(config, on_one_node);
      ASSERT_FALSE(HasFatalFailure());
      const std::vector<uint16_t> want = OutputOf(tokens);
      for (const RailRows rows : {RailRows::kBlocks, RailRows::kCounted}) {
        Make(config, OnRails(rows));  // one node again
        ASSERT_FALSE(HasFatalFailure());
        EXPECT_EQ(OutputOf(tokens), want);
      }
      for (const RailRows rows : {RailRows::kBlocks, RailRows::kCounted}) {
        Join({.num_nodes = 3, .ranks_per_node = 1});
        ASSERT_FALSE(HasFatalFailure());
        Make(config, OnRails(rows, 4));
        ASSERT_FALSE(HasFatalFailure());
        EXPECT_EQ(OutputOf(tokens), want);
      }
    }
  }
}

TEST_F(HierarchicalLayerTest, RanksWithoutTokens) {
  Join({.num_nodes = 2, .ranks_per_node = 2});
  ASSERT_FALSE(HasFatalFailure());
  Make(SmallLayer(), OnRails(RailRows::kAuto));
  ASSERT_FALSE(HasFatalFailure());
  std::mt19937_64 rng(9);
  LayerTokens tokens = DrawLayerTokens(rng, SmallLayer(), 4);
  tokens.rows[1].clear();
  tokens.rows[2].clear();
  EXPECT_OK(harness_->Check(tokens));
  for (std::vector<uint16_t>& rows : tokens.rows) rows.clear();
  EXPECT_OK(harness_->Check(tokens));
}

// Records the parts of rank 0's calls.
class Parts : public LayerPartObserver {
 public:
  absl::Status PartEnqueued(Rank& rank, LayerPart part) override {
    if (rank.rank() == 0) parts_.push_back(part);
    return absl::OkStatus();
  }
  const std::vector<LayerPart>& parts() const { return parts_; }

 private:
  std::vector<LayerPart> parts_;
};

TEST_F(HierarchicalLayerTest, ReportsItsPartsAsOnOneNode) {
  Join({.num_nodes = 2, .ranks_per_node = 2});
  ASSERT_FALSE(HasFatalFailure());
  Make(SmallLayer(), OnRails(RailRows::kAuto));
  ASSERT_FALSE(HasFatalFailure());
  Parts parts;
  LayerInternals::Observe(harness_->layer(1), &parts);
  std::mt19937_64 rng(10);
  LayerTokens tokens = DrawLayerTokens(rng, SmallLayer(), 4);
  tokens.rows[2].resize(64, 0);  // of the observed rank: at least one
  EXPECT_OK(harness_->Check(tokens));
  EXPECT_THAT(parts.parts(),
              ElementsAre(LayerPart::kRouter, LayerPart::kDispatch, LayerPart::kFirstProduct,
                          LayerPart::kSecondProduct, LayerPart::kCombine, LayerPart::kShared));
}

TEST_F(HierarchicalLayerTest, LayersThatShareMemory) {
  Join({.num_nodes = 2, .ranks_per_node = 2});
  ASSERT_FALSE(HasFatalFailure());
  const MoeLayerConfig config = SmallLayer();
  Make(config, OnRails(RailRows::kBlocks));
  ASSERT_FALSE(HasFatalFailure());
  std::mt19937_64 rng(11);
  const LayerTokens tokens = DrawLayerTokens(rng, config, 4);
  const std::vector<uint16_t> want = OutputOf(tokens);
  std::vector<std::unique_ptr<LayerHarness>> others;
  others.push_back(std::move(harness_));
  Make(config, [&](Domain& domain, const MoeLayerConfig& same) {
    const MoeLayer& share = others.front()->layer(static_cast<size_t>(domain.node_index()));
    return MoeLayer::Create(domain, same, {.share = &share, .rails = {.rows = RailRows::kBlocks}});
  });
  ASSERT_FALSE(HasFatalFailure());
  EXPECT_EQ(OutputOf(tokens), want);
  Node& node = nodes_->nodes().front().domain->node();
  EXPECT_THAT(MoeLayer::Create(node, config, {.share = &harness_->layer(0)}).status(),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("one of 2 nodes")));
  others.clear();
  EXPECT_EQ(OutputOf(tokens), want);
}

// Experts stay where the placement has them.
TEST_F(HierarchicalLayerTest, Placements) {
  Join({.num_nodes = 2, .ranks_per_node = 2});
  ASSERT_FALSE(HasFatalFailure());
  MoeLayerConfig config = SmallLayer();
  config.num_experts = 7;
  config.placement =
      *Placement::Create(7, 4, {0, 1, 2, -1, 3, 0, 4, -1, 5, -1, 0, 3, 6, -1, -1, -1});
  Make(config, OnRails(RailRows::kBlocks));
  ASSERT_FALSE(HasFatalFailure());
  std::mt19937_64 rng(12);
  EXPECT_OK(harness_->Check(DrawLayerTokens(rng, config, 4)));
  Node& node = nodes_->nodes().front().domain->node();
  EXPECT_THAT(
      node.Run([&](Rank& rank) { return harness_->layer(0).Prepare(rank, config.placement, 0); }),
      StatusIs(absl::StatusCode::kUnimplemented, HasSubstr("over several nodes")));
}

TEST_F(HierarchicalLayerTest, RefusesWhatCannotBeRight) {
  Join({.num_nodes = 2, .ranks_per_node = 2});
  ASSERT_FALSE(HasFatalFailure());
  Domain& domain = *nodes_->nodes().front().domain;
  const auto refused = [&](const MoeLayerConfig& config, const char* text) {
    EXPECT_THAT(MoeLayer::Create(domain, config).status(),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(text)));
  };
  MoeLayerConfig config = SmallLayer();
  config.fusion = Fusion::kTiles;
  refused(config, "fusion is tiles; over several nodes it must be auto or none");
  config.fusion = Fusion::kSerial;
  refused(config, "fusion is serial");
  config = SmallLayer();
  config.num_experts = 13;
  refused(config, "2 nodes");
  config.num_experts = 14;
  refused(config, "num_experts");
  config = SmallLayer();
  config.intermediate = 50;
  refused(config, "intermediate is 50");
}

}  // namespace
}  // namespace octet
