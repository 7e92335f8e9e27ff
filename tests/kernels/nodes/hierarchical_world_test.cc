// Calls over the nodes of a World: as many as the launcher has started processes. Every process
// checks its own ranks against the reference. On emulated GPUs rails are those of MPI and of a fake
// of NCCL, on others what World::Create chooses.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <hip/hip_runtime.h>

#include <algorithm>
#include <cstdint>
#include <latch>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "octet/expert_parallel.h"
#include "octet/symmetric_heap.h"
#include "octet/world.h"
#include "runtime/gpu/gpu_status.h"
#include "runtime/node/node_client.h"
#include "tests/support/fake_nccl/fake_nccl.h"
#include "tests/support/node/node_fixture.h"
#include "tests/support/nodes/several_nodes.h"
#include "tests/support/random_step.h"
#include "tools/workload/step_input.h"

namespace octet {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class HierarchicalWorldTest : public ::testing::Test {
 protected:
  // Before anything looks for NCCL.
  static void SetUpTestSuite() { LoadFakeNccl(); }

  void Join(int ranks_per_node, RailTransport transport = RailTransport::kAuto) {
    nodes_.reset();
    world_.reset();
    auto world = World::Create(
        {.node = {.num_ranks = ranks_per_node, .timeout = absl::Seconds(60), .on_failure = nullptr},
         .transport = transport});
    ASSERT_OK(world.status());
    world_ = *std::move(world);
    shape_ = {.num_nodes = world_->num_nodes(), .ranks_per_node = ranks_per_node};
  }
  void Make(const EpConfig& config, RailRows rows, int chunk_tokens = 0) {
    nodes_.reset();
    auto nodes = SeveralNodes::Create(JoinedNodes::Join(*world_), config,
                                      {.rows = rows, .chunk_tokens = chunk_tokens});
    ASSERT_OK(nodes.status());
    nodes_ = *std::move(nodes);
  }
  int ranks() const { return shape_.num_nodes * shape_.ranks_per_node; }
  static RailTransport NcclIfFake() {
    return LoadFakeNccl() ? RailTransport::kNccl : RailTransport::kAuto;
  }

  std::unique_ptr<World> world_;
  NodesOfRanks shape_;
  std::unique_ptr<SeveralNodes> nodes_;  // gone before the World
};

TEST_F(HierarchicalWorldTest, RandomShapesEqualTheReference) {
  for (uint64_t seed = 1; seed <= 8; ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    std::mt19937_64 rng(seed);  // alike in all processes
    Join(1 + static_cast<int>(rng() % 2), seed / 2 % 2 == 0 ? RailTransport::kAuto : NcclIfFake());
    ASSERT_FALSE(HasFatalFailure());
    constexpr Strategy kStrategies[] = {Strategy::kLowLatency, Strategy::kHighThroughput,
                                        Strategy::kDirect};
    EpConfig config;
    config.strategy = kStrategies[seed % 3];
    config.num_experts = ranks() * (1 + static_cast<int>(rng() % 4));
    config.topk =
        1 + static_cast<int>(rng() % static_cast<uint64_t>(std::min(9, config.num_experts)));
    config.hidden = 32 * (1 + static_cast<int>(rng() % 40));
    config.max_tokens_per_rank = 1 + static_cast<int>(rng() % 40);
    config.max_blocks = 2;
    config.scale_group = 32;
    if (seed % 3 == 1 && rng() % 2 == 0) config.dispatch_format = DispatchFormat::kFp8;
    const int chunk = 2 + static_cast<int>(rng() % 30);
    Make(config, seed % 2 == 0 ? RailRows::kBlocks : RailRows::kCounted, seed % 3 > 0 ? chunk : 0);
    ASSERT_FALSE(HasFatalFailure());
    for (int step = 0; step < 3; ++step) {
      StepInput input =
          RandomStep(rng, config, RandomTokens(rng, config, ranks()), step == 1 ? 0.5 : 0.0);
      SendRandomBytes(rng, config, input);
      ASSERT_OK(nodes_->Step(input));
    }
  }
}

TEST_F(HierarchicalWorldTest, NodesThatAskForDifferentThingsAreRefused) {
  Join(1);
  ASSERT_FALSE(HasFatalFailure());
  EpConfig config = {.num_experts = 4 * ranks(),
                     .topk = 2,
                     .hidden = 64,
                     .max_tokens_per_rank = 6,
                     .max_blocks = 2};
  const auto good = ExpertParallel::Create(*world_, config);
  ASSERT_OK(good.status());
  EXPECT_EQ((*good)->config().num_experts, 4 * ranks());
  if (shape_.num_nodes == 1) return;
  config.hidden += 8 * (world_->node_index() == 1 ? 1 : 0);
  EXPECT_THAT(ExpertParallel::Create(*world_, config).status(),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       AllOf(HasSubstr("hidden 64"), HasSubstr("hidden 72"))));
  config.hidden = 64;
  // What one node alone cannot have is refused on all of them.
  SymmetricHeap* const none = nullptr;
  auto heap = SymmetricHeap::Create(world_->node(), 4096);
  ASSERT_OK(heap.status());
  const auto made = ExpertParallel::Create(
      *world_, config, {.heap = world_->node_index() == 1 ? heap->get() : none});
  EXPECT_THAT(made.status(), StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("node 1: ")));
  EXPECT_OK(ExpertParallel::Create(*world_, config).status());
}

TEST_F(HierarchicalWorldTest, AWrongChoiceEndsTheCallOnAllNodesAndTheNextOneWorks) {
  for (const RailRows rows : {RailRows::kBlocks, RailRows::kCounted}) {
    Join(2, rows == RailRows::kBlocks ? RailTransport::kAuto : NcclIfFake());
    ASSERT_FALSE(HasFatalFailure());
    const EpConfig config = {.num_experts = 4 * ranks(),
                             .topk = 2,
                             .hidden = 64,
                             .max_tokens_per_rank = 6,
                             .strategy = Strategy::kHighThroughput,
                             .max_blocks = 2};
    Make(config, rows);
    ASSERT_FALSE(HasFatalFailure());
    std::mt19937_64 rng(3);
    const std::vector<int> tokens(static_cast<size_t>(ranks()), 6);
    StepInput wrong = RandomStep(rng, config, tokens);
    wrong.ranks[0].topk_idx[4] = config.num_experts;  // of token 2 of node 0's rank 0
    ASSERT_OK(nodes_->Upload(wrong));
    const absl::Status status = nodes_->Run(
        [&](Rank& rank, int global) { return nodes_->Dispatch(rank, global).status(); });
    EXPECT_THAT(status,
                StatusIs(absl::StatusCode::kInvalidArgument,
                         AllOf(HasSubstr("node 0: "), HasSubstr("rank 0"), HasSubstr("token 2"))));
    EXPECT_OK(nodes_->Step(RandomStep(rng, config, tokens)));
  }
}

// Blocks the stream, which is the argument's, until the latch opens.
void AwaitLatch(void* latch) { static_cast<std::latch*>(latch)->wait(); }

// A call that is told to end before its exchanges have begun: what came in earlier ones, outputs of
// experts among them, is not taken for choices.
TEST_F(HierarchicalWorldTest, ACallThatIsToldToEndReadsNothingOfEarlierOnes) {
  Join(2);
  ASSERT_FALSE(HasFatalFailure());
  if (shape_.num_nodes == 1) return;
  const EpConfig config = {.num_experts = 4 * ranks(),
                           .topk = 2,
                           .hidden = 64,
                           .max_tokens_per_rank = 6,
                           .strategy = Strategy::kLowLatency,
                           .max_blocks = 2};
  Make(config, RailRows::kBlocks);
  ASSERT_FALSE(HasFatalFailure());
  std::mt19937_64 rng(3);
  const StepInput input =
      RandomStep(rng, config, std::vector<int>(static_cast<size_t>(ranks()), 6));
  for (int i = 0; i < 2; ++i) {
    ASSERT_OK(nodes_->Step(input));
    std::latch told(1);
    const absl::Status status = nodes_->Run([&](Rank& rank, int global) -> absl::Status {
      // Another node may end the Run before this node's rank 0, which opens the latch, is here.
      absl::Status dispatched = rank.Barrier();
      if (dispatched.ok()) {
        dispatched.Update(OCTET_GPU(hipLaunchHostFunc(rank.stream(), AwaitLatch, &told)));
        dispatched.Update(nodes_->Dispatch(rank, global).status());
        dispatched.Update(rank.Barrier());
      }
      if (rank.rank() == 0) {
        NodeClient::Release(rank.node(), absl::CancelledError("told to end"));
        told.count_down();
      }
      return dispatched;
    });
    EXPECT_THAT(status, StatusIs(absl::StatusCode::kCancelled, HasSubstr("told to end")));
  }
  EXPECT_OK(nodes_->Step(input));
}

}  // namespace
}  // namespace octet
