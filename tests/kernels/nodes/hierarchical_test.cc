// Several nodes in one process, each with its own threads, against the reference.
#include "kernels/nodes/options.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <latch>
#include <memory>
#include <random>
#include <string>
#include <tuple>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "kernels/oracle/reference.h"
#include "octet/expert_parallel.h"
#include "octet/placement.h"
#include "runtime/base/status_macros.h"
#include "runtime/node/node_client.h"
#include "tests/support/node/node_fixture.h"
#include "tests/support/nodes/several_nodes.h"
#include "tests/support/random_step.h"
#include "tools/workload/step_input.h"

namespace octet {
namespace {

EpConfig SmallConfig(Strategy strategy) {
  return {.num_experts = 16,
          .topk = 2,
          .hidden = 64,
          .max_tokens_per_rank = 6,
          .strategy = strategy,
          .max_blocks = 2};
}

class HierarchicalTest
    : public ::testing::TestWithParam<std::tuple<Strategy, RailRows, DispatchFormat>> {
 protected:
  EpConfig Config() const {
    EpConfig config = SmallConfig(std::get<0>(GetParam()));
    config.dispatch_format = std::get<2>(GetParam());
    config.scale_group = 32;
    return config;
  }
  RailRows rows() const { return std::get<1>(GetParam()); }
};

TEST_P(HierarchicalTest, RandomShapesEqualTheReference) {
  for (uint64_t seed = 1; seed <= 8; ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    std::mt19937_64 rng(seed);
    NodesOfRanks shape = {.num_nodes = static_cast<int>(seed % 4) + 1,
                          .ranks_per_node = static_cast<int>(rng() % 4) + 1};
    const int ranks = shape.num_nodes * shape.ranks_per_node;
    EpConfig config = Config();
    config.num_experts = ranks * (1 + static_cast<int>(rng() % 4));
    config.topk =
        1 + static_cast<int>(rng() % static_cast<uint64_t>(std::min(9, config.num_experts)));
    if (config.strategy != Strategy::kDirect && rng() % 2 == 0) {
      shape.intranode_order = CombineOrder::kFlat;
    }
    if (rng() % 2 == 0) config.combine_order = CombineOrder::kPerNode;
    config.hidden = 32 * (1 + static_cast<int>(rng() % 5));
    config.max_tokens_per_rank = 1 + static_cast<int>(rng() % 12);
    config.dtype = rng() % 2 == 0 ? DType::kBFloat16 : DType::kFloat16;
    const int chunk = static_cast<int>(rng() % static_cast<uint64_t>(config.max_tokens_per_rank));
    auto nodes =
        SeveralNodes::Create(shape, config, {.rows = rows(), .chunk_tokens = seed > 4 ? chunk : 0});
    ASSERT_OK(nodes.status());
    for (int step = 0; step < 3; ++step) {
      StepInput input =
          RandomStep(rng, config, RandomTokens(rng, config, ranks), step == 1 ? 0.5 : 0.0);
      SendRandomBytes(rng, config, input);
      if (step == 2) input.ranks[0].topk_weights.clear();
      ASSERT_OK((*nodes)->Step(input));
    }
  }
}

// A token goes to a replica on its own rank, else to any of all nodes.
TEST_P(HierarchicalTest, PlacementsOverAllNodes) {
  for (const NodesOfRanks& shape : {NodesOfRanks{.num_nodes = 2, .ranks_per_node = 2},
                                    NodesOfRanks{.num_nodes = 3, .ranks_per_node = 1}}) {
    const int ranks = shape.num_nodes * shape.ranks_per_node;
    EpConfig config = Config();
    config.num_experts = 7;
    config.topk = 3;
    config.placement = *PlanPlacement({90, 10, 30, 10, 10, 5, 5}, ranks, 4);
    for (const int chunk : {0, 2}) {
      SCOPED_TRACE(absl::StrCat(shape.num_nodes, " nodes, chunk_tokens ", chunk));
      auto nodes = SeveralNodes::Create(shape, config, {.rows = rows(), .chunk_tokens = chunk});
      ASSERT_OK(nodes.status());
      std::mt19937_64 rng(8);
      for (const double drop : {0.0, 0.4}) {
        StepInput input = RandomStep(rng, config, RandomTokens(rng, config, ranks), drop);
        SendRandomBytes(rng, config, input);
        EXPECT_OK((*nodes)->Step(input));
      }
    }
  }
}

TEST_P(HierarchicalTest, NoTokensAndSkewToOneNode) {
  const NodesOfRanks shape = {.num_nodes = 2, .ranks_per_node = 2};
  for (const int chunk : {0, 2}) {
    SCOPED_TRACE(absl::StrCat("chunk_tokens ", chunk));
    auto nodes = SeveralNodes::Create(shape, Config(), {.rows = rows(), .chunk_tokens = chunk});
    ASSERT_OK(nodes.status());
    std::mt19937_64 rng(7);
    StepInput none = RandomStep(rng, Config(), {0, 0, 0, 0});
    SendRandomBytes(rng, Config(), none);
    EXPECT_OK((*nodes)->Step(none));
    StepInput skewed = RandomStep(rng, Config(), {6, 0, 6, 3});
    SendRandomBytes(rng, Config(), skewed);
    for (StepInput::PerRank& rank : skewed.ranks) {
      for (size_t i = 0; i < rank.topk_idx.size(); ++i) {
        rank.topk_idx[i] = 8 + static_cast<int32_t>(i % 8);
      }
    }
    EXPECT_OK((*nodes)->Step(skewed));
  }
}

class HierarchicalCallsTest : public ::testing::Test {
 protected:
  void Make(RailRows rows, absl::Duration timeout = absl::Seconds(60),
            Strategy strategy = Strategy::kHighThroughput, int chunk_tokens = 0) {
    auto nodes =
        SeveralNodes::Create(kShape, SmallConfig(strategy),
                             {.rows = rows, .chunk_tokens = chunk_tokens, .timeout = timeout});
    ASSERT_OK(nodes.status());
    nodes_ = *std::move(nodes);
    std::mt19937_64 rng(3);
    input_ = RandomStep(rng, nodes_->config(), {6, 2, 0, 5});
  }

  static constexpr NodesOfRanks kShape = {.num_nodes = 2, .ranks_per_node = 2};
  std::unique_ptr<SeveralNodes> nodes_;
  StepInput input_;
};

TEST_F(HierarchicalCallsTest, ATokenCrossesToANodeOnce) {
  Make(RailRows::kCounted);
  for (StepInput::PerRank& rank : input_.ranks) {  // both choices of all tokens are of node 1
    for (size_t i = 0; i < rank.topk_idx.size(); ++i) {
      rank.topk_idx[i] = 8 + static_cast<int32_t>(i % 8);
    }
  }
  ASSERT_OK(nodes_->Step(input_));
  // Of node 0, 6 + 2 tokens: x and record there, y back. Between all pairs of ranks a count each
  // way.
  const EpConfig& c = nodes_->config();
  const int64_t record_bytes = int64_t{4} * 2 * c.topk;
  const auto row_bytes = static_cast<int64_t>(c.dtype_row_bytes());
  EXPECT_EQ(nodes_->bytes(), 8 * (row_bytes + record_bytes + row_bytes) + 4 * 4);
  const Traffic traffic = nodes_->ep(0).DispatchTraffic(0, input_.ranks[0].topk_idx);
  EXPECT_EQ(traffic.rows, 6);
  EXPECT_EQ(traffic.wire_bytes, 6 * (row_bytes + record_bytes) + 4);
  EXPECT_EQ(nodes_->ep(1).DispatchTraffic(0, input_.ranks[2].topk_idx).rows, 0);
  EXPECT_EQ(nodes_->ep(0).CombineTraffic(1, input_.ranks[1].topk_idx).wire_bytes, 2 * row_bytes);
}

TEST_F(HierarchicalCallsTest, BlocksCrossWhole) {
  Make(RailRows::kBlocks);
  ASSERT_OK(nodes_->Step(input_));
  const EpConfig& c = nodes_->config();
  const int64_t row_bytes = 2 * static_cast<int64_t>(c.dtype_row_bytes()) + int64_t{8} * c.topk;
  EXPECT_EQ(nodes_->bytes(), 4 * c.max_tokens_per_rank * row_bytes);
}

TEST_F(HierarchicalCallsTest, AWrongChoiceIsNamedWhereItWasMade) {
  for (const RailRows rows : {RailRows::kBlocks, RailRows::kCounted}) {
    for (const int32_t wrong : {16, -2, 12}) {
      Make(rows, absl::Seconds(2));
      input_.ranks[0].topk_idx[4] = 12;
      input_.ranks[0].topk_idx[5] = wrong;  // of token 2; 12 is chosen twice
      ASSERT_OK(nodes_->Upload(input_));
      const std::vector<absl::Status> statuses = nodes_->RunAll(
          [&](Rank& rank, int global) { return nodes_->Dispatch(rank, global).status(); });
      EXPECT_THAT(statuses[0], StatusIs(absl::StatusCode::kInvalidArgument,
                                        ::testing::AllOf(::testing::HasSubstr("rank 0"),
                                                         ::testing::HasSubstr("token 2"))));
    }
  }
}

TEST_F(HierarchicalCallsTest, ANodeThatStaysAwayEndsTheCallWithinTheDeadline) {
  Make(RailRows::kCounted, absl::Seconds(1));
  ASSERT_OK(nodes_->Upload(input_));
  const std::vector<absl::Status> statuses =
      nodes_->RunAll([&](Rank& rank, int global) -> absl::Status {
        return global < 2 ? nodes_->Dispatch(rank, global).status() : absl::OkStatus();
      });
  EXPECT_THAT(statuses[0],
              StatusIs(absl::StatusCode::kDeadlineExceeded, ::testing::HasSubstr("of node 1")));
  EXPECT_OK(statuses[1]);
}

// Node 1 sends only the first of several chunks. Node 0's rails know whose rows are missing, and
// report before the dispatch that waits for them.
TEST_F(HierarchicalCallsTest, AChunkThatDoesNotComeIsReportedByItsRail) {
  for (const Strategy strategy :
       {Strategy::kLowLatency, Strategy::kHighThroughput, Strategy::kDirect}) {
    SCOPED_TRACE(EnumName(strategy));
    Make(RailRows::kBlocks, absl::Seconds(1), strategy, 2);
    ASSERT_OK(nodes_->Step(input_));
    ASSERT_OK(nodes_->Upload(input_));
    const std::vector<absl::Status> statuses =
        nodes_->RunAll([&](Rank& rank, int global) -> absl::Status {
          if (global < kShape.ranks_per_node) return nodes_->Dispatch(rank, global).status();
          return nodes_->SendFirstChunk(rank, global, {.rows = 2, .chunks = 3});
        });
    EXPECT_THAT(statuses[0],
                StatusIs(absl::StatusCode::kDeadlineExceeded, ::testing::HasSubstr("of node 1")));
    EXPECT_OK(statuses[1]);
  }
}

// Waits are told to end before anything has ever arrived, as a World does when another node has
// failed. What the intranode dispatch finds then is no choice of a token.
TEST_F(HierarchicalCallsTest, BlocksThatDoNotArriveAreNotTakenForChoices) {
  for (const Strategy strategy :
       {Strategy::kLowLatency, Strategy::kHighThroughput, Strategy::kDirect}) {
    Make(RailRows::kBlocks, absl::Seconds(60), strategy);
    ASSERT_OK(nodes_->Upload(input_));
    const std::vector<absl::Status> statuses =
        nodes_->RunAll([&](Rank& rank, int global) -> absl::Status {
          if (global >= kShape.ranks_per_node) return absl::OkStatus();
          const absl::Status status = nodes_->Dispatch(rank, global).status();
          if (global == 0) NodeClient::Release(rank.node(), absl::CancelledError("told to end"));
          return status;
        });
    EXPECT_THAT(statuses[0],
                StatusIs(absl::StatusCode::kCancelled, ::testing::HasSubstr("told to end")));
  }
}

TEST_F(HierarchicalCallsTest, RefusesWhatItDoesNotHave) {
  Make(RailRows::kCounted);
  ASSERT_OK(nodes_->Upload(input_));
  ASSERT_OK(nodes_->Run([&](Rank& rank, int global) -> absl::Status {
    ExpertParallel& ep = nodes_->ep(global / 2);
    EXPECT_EQ(ep.DispatchSend(rank, {}).status().code(), absl::StatusCode::kUnimplemented);
    EXPECT_EQ(ep.CombineReceive(rank, {}, {}).code(), absl::StatusCode::kUnimplemented);
    EXPECT_EQ(ep.Combine(rank, {}, {}).code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(ep.Dispatch(rank, {.num_tokens = 7}).status(),
                StatusIs(absl::StatusCode::kInvalidArgument, ::testing::HasSubstr("num_tokens")));
    const DispatchHandle handle;
    EXPECT_THAT(ep.Dispatch(rank, {.high_throughput = {.cached = &handle}}).status(),
                StatusIs(absl::StatusCode::kInvalidArgument, ::testing::HasSubstr("cached")));
    OCTET_ASSIGN_OR_RETURN(const Received first, nodes_->Dispatch(rank, global));
    OCTET_RETURN_IF_ERROR(nodes_->Dispatch(rank, global).status());
    EXPECT_FALSE(ep.Combine(rank, first.handle, {}).ok());
    return absl::OkStatus();
  }));
}

// Returns 1, -1 or 2^-30 of `x`, by node: the order of additions decides the sum.
float FactorOfNode(int node) {
  return std::array{1.0F, -1.0F, 0x1p-30F}[static_cast<size_t>(node)];
}

TEST(HierarchicalOrderTest, NodesAreAddedInAscendingOrder) {
  const NodesOfRanks shape = {.num_nodes = 3, .ranks_per_node = 1};
  EpConfig config = SmallConfig(Strategy::kHighThroughput);
  config.num_experts = 3;
  config.topk = 3;
  auto nodes = SeveralNodes::Create(shape, config, {});
  ASSERT_OK(nodes.status());
  EXPECT_EQ((*nodes)->config().combine_order, CombineOrder::kPerNode);
  std::mt19937_64 rng(5);
  StepInput input = RandomStep(rng, config, {1, 1, 1});
  for (StepInput::PerRank& rank : input.ranks) {
    std::ranges::fill(rank.x, BitsFromFloat(config.dtype, 1.0F));
    std::ranges::fill(rank.topk_weights, 1.0F);
    rank.topk_idx = {2, 0, 1};
  }
  input.expert_scale = {FactorOfNode(0), FactorOfNode(1), FactorOfNode(2)};
  for (const RankInput& mine : input.sent()) {
    const std::vector<uint16_t> y =
        ReferenceCombine((*nodes)->config(), shape, mine, input.expert_scale);
    EXPECT_EQ(y.front(), BitsFromFloat(config.dtype, FactorOfNode(2)));  // (1 - 1) + 2^-30
  }
  EXPECT_OK((*nodes)->Step(input));
}

TEST_F(HierarchicalCallsTest, BlocksAreDispatchedBeforeOtherNodesTakePart) {
  Make(RailRows::kBlocks);
  ASSERT_OK(nodes_->Upload(input_));
  std::latch dispatched(kShape.ranks_per_node);
  EXPECT_OK(nodes_->Run([&](Rank& rank, int global) -> absl::Status {
    if (global >= kShape.ranks_per_node) dispatched.wait();
    const absl::Status status = nodes_->Dispatch(rank, global).status();
    if (global < kShape.ranks_per_node) dispatched.count_down();
    return status;
  }));
}

TEST(HierarchicalValidationTest, NamesWhatIsWrong) {
  const NodesOfRanks two = {.num_nodes = 2, .ranks_per_node = 2};
  const EpConfig config = SmallConfig(Strategy::kLowLatency);
  const auto refuses = [](const EpConfig& refused, const NodesOfRanks& nodes, const char* text) {
    EXPECT_THAT(ValidateHierarchical(refused, nodes),
                StatusIs(absl::StatusCode::kInvalidArgument, ::testing::HasSubstr(text)));
  };
  EXPECT_OK(ValidateHierarchical(config, two));
  refuses(config, {.num_nodes = 3}, "3 nodes");
  refuses(config, {.num_nodes = 33}, "num_nodes");
  EpConfig other = config;
  other.topk = 16;
  EXPECT_OK(ValidateHierarchical(other, two));
  other.topk = 17;
  refuses(other, two, "topk is 17; it must be from 1 to 16");
  other = config;
  other.low_latency.failure_policy = FailurePolicy::kMask;
  refuses(other, two, "mask");
  other = config;
  other.combine_order = CombineOrder::kPerNode;
  EXPECT_OK(ValidateHierarchical(other, two));
  other.combine_order = CombineOrder::kFlat;
  refuses(other, two, "combine_order is flat");
  NodesOfRanks nested = two;
  nested.intranode_order = CombineOrder::kPerNode;
  refuses(config, nested, "combine_order is per_node");
  other = config;
  other.max_tokens_per_rank = 64;
  EXPECT_OK(ValidateHierarchical(other, two, 2));
  EXPECT_OK(ValidateHierarchical(other, two, 65));
  EXPECT_THAT(ValidateHierarchical(other, two, 1),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       ::testing::HasSubstr("chunk_tokens is 1, which makes 64 chunks")));
  EXPECT_THAT(ValidateHierarchical(other, two, -1),
              StatusIs(absl::StatusCode::kInvalidArgument, ::testing::HasSubstr("chunk_tokens")));
}

std::string NameOf(const ::testing::TestParamInfo<HierarchicalTest::ParamType>& info) {
  const auto& [strategy, rows, format] = info.param;
  return absl::StrCat(EnumName(strategy), rows == RailRows::kBlocks ? "_blocks_" : "_counted_",
                      EnumName(format));
}

INSTANTIATE_TEST_SUITE_P(
    All, HierarchicalTest,
    ::testing::Combine(::testing::Values(Strategy::kDirect, Strategy::kHighThroughput,
                                         Strategy::kLowLatency),
                       ::testing::Values(RailRows::kBlocks, RailRows::kCounted),
                       ::testing::Values(DispatchFormat::kSame)),
    NameOf);
INSTANTIATE_TEST_SUITE_P(Fp8, HierarchicalTest,
                         ::testing::Combine(::testing::Values(Strategy::kHighThroughput),
                                            ::testing::Values(RailRows::kBlocks,
                                                              RailRows::kCounted),
                                            ::testing::Values(DispatchFormat::kFp8)),
                         NameOf);

}  // namespace
}  // namespace octet
