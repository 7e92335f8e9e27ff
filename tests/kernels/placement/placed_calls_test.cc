// Dispatch and combine with placements, by every strategy, against the reference to the bit.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <hip/hip_runtime.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "octet/expert_parallel.h"
#include "octet/graph.h"
#include "octet/placement.h"
#include "runtime/base/status_macros.h"
#include "tests/kernels/placement/random_placement.h"
#include "tests/support/ep_harness.h"
#include "tests/support/node/node_fixture.h"
#include "tests/support/random_step.h"
#include "tests/support/strategy_variants.h"
#include "tools/workload/expert_loads.h"
#include "tools/workload/philox.h"
#include "tools/workload/routing.h"

namespace octet {
namespace {

using ::testing::HasSubstr;

// Gives the tokens choices by popularity.
void ChooseByZipf(uint64_t seed, const EpConfig& config, StepInput& input) {
  const RoutingGenerator routing(*ParseRouting("zipf:1.2"), config.num_experts, seed);
  RoutingGenerator::Scratch scratch;
  const auto topk = static_cast<size_t>(config.topk);
  for (size_t rank = 0; rank < input.ranks.size(); ++rank) {
    std::vector<int32_t>& ids = input.ranks[rank].topk_idx;
    for (size_t i = 0; i < ids.size(); i += topk) {
      PhiloxStream stream(seed, static_cast<uint32_t>(rank), static_cast<uint32_t>(i), 0);
      const auto of_token = absl::MakeSpan(ids).subspan(i, topk);
      const bool all_dropped =
          std::all_of(of_token.begin(), of_token.end(), [](int32_t id) { return id < 0; });
      if (!all_dropped) routing.Draw(stream, scratch, of_token);
    }
  }
}

class PlacedCallsTest : public ::testing::TestWithParam<StrategyCase> {
 protected:
  EpConfig Config(int num_experts, int topk, int hidden, int max_tokens) const {
    EpConfig config = {.num_experts = num_experts,
                       .topk = topk,
                       .hidden = hidden,
                       .max_tokens_per_rank = max_tokens};
    GetParam().ApplyTo(config);
    config.tuning = {.blocks = 3, .waves_per_block = 3};
    return config;
  }

  void Make(int num_ranks, const EpConfig& config) {
    const absl::StatusOr<Topology> topology = DiscoverTopology();
    const int gpus = topology.ok() ? static_cast<int>(topology->gpus.size()) : 0;
    if (num_ranks > gpus) GTEST_SKIP() << num_ranks << " ranks on " << gpus << " GPUs";
    harness_.reset();
    absl::StatusOr<std::unique_ptr<EpHarness>> harness = EpHarness::Create(num_ranks, config);
    ASSERT_OK(harness.status());
    harness_ = *std::move(harness);
  }

  StepInput ZipfStep(const EpConfig& config, const std::vector<int>& tokens, double drop = 0.0) {
    StepInput input = RandomStep(rng_, config, tokens, drop);
    ChooseByZipf(17, config, input);
    return input;
  }

  std::mt19937_64 rng_{20261126};
  std::unique_ptr<EpHarness> harness_;
};

TEST_P(PlacedCallsTest, SixtyExpertsOnEightRanks) {
  EpConfig config = Config(60, 4, 64, 12);
  const std::vector<int> tokens = {12, 5, 0, 12, 9, 1, 12, 7};
  const StepInput popular = ZipfStep(config, tokens);
  config.placement = *PlanPlacement(LoadsOf(popular.sent(), 60), 8, 9);
  Make(8, config);
  if (HasFatalFailure() || IsSkipped()) return;
  EXPECT_EQ(harness_->ep().config().num_experts, 60);
  EXPECT_EQ(harness_->ep().config().num_local_experts(8), 9);
  EXPECT_OK(harness_->Step(popular));
  EXPECT_OK(harness_->Step(RandomStep(rng_, config, tokens, 0.3),
                           {Form::kSplit, Form::kSeparateExpert, Form::kFused}));
  EXPECT_OK(harness_->Step(RandomStep(rng_, config, std::vector<int>(8))));
}

TEST_P(PlacedCallsTest, AnyTable) {
  const auto from = [this](int low, int high) {
    return low + static_cast<int>(rng_() % static_cast<uint64_t>(high - low + 1));
  };
  for (int round = 0; round < 6; ++round) {
    const int ranks = from(1, 8);
    const int experts = from(1, 24);
    const int slots = from((experts + ranks - 1) / ranks, (experts + ranks - 1) / ranks + 3);
    EpConfig config = Config(experts, from(1, std::min(experts, 6)), 8 * from(1, 20), from(1, 14));
    config.placement = RandomPlacement(rng_, experts, ranks, slots, from(0, 2) / 2.0);
    SCOPED_TRACE(absl::StrCat("round ", round, ": E ", experts, ", R ", ranks, ", S ", slots));
    Make(ranks, config);
    if (HasFatalFailure() || IsSkipped()) return;
    for (const double drop : {0.0, 0.3}) {
      ASSERT_OK(harness_->Step(ZipfStep(config, RandomTokens(rng_, config, ranks), drop),
                               {Form::kFused, Form::kSplit}));
    }
  }
}

TEST_P(PlacedCallsTest, ManyStepsWithNothingOnTheHostBetween) {
  EpConfig config = Config(10, 3, 64, 8);
  config.placement = RandomPlacement(rng_, 10, 4, 4, 1.0);
  Make(4, config);
  if (HasFatalFailure() || IsSkipped()) return;
  std::vector<StepInput> inputs;
  for (int i = 0; i < 8; ++i) inputs.push_back(ZipfStep(config, RandomTokens(rng_, config, 4)));
  EXPECT_OK(harness_->Steps(inputs));
}

// The order of sums is that of k, wherever experts are.
TEST_P(PlacedCallsTest, FlatSumsDoNotDependOnThePlacement) {
  EpConfig config = Config(12, 4, 72, 9);
  config.combine_order = CombineOrder::kFlat;
  if (!Validate(config, 4).ok()) GTEST_SKIP() << "rows that are received once are summed by rank";
  const StepInput input = ZipfStep(config, {9, 4, 7, 9}, 0.1);
  std::vector<std::vector<uint16_t>> without;
  for (const Placement& placement :
       {Placement(), *Placement::InOrder(12, 4), RandomPlacement(rng_, 12, 4, 5, 1.0),
        RandomPlacement(rng_, 12, 4, 12, 1.0)}) {
    config.placement = placement;
    Make(4, config);
    if (HasFatalFailure() || IsSkipped()) return;
    ASSERT_OK(harness_->Step(input));
    for (size_t rank = 0; rank < 4; ++rank) {
      const absl::StatusOr<std::vector<uint16_t>> y = harness_->Y(static_cast<int>(rank));
      ASSERT_OK(y.status());
      if (placement.empty()) {
        without.push_back(*y);
      } else {
        EXPECT_EQ(*y, without[rank]) << "rank " << rank;
      }
    }
  }
}

// An id may be that of a slot and still be no expert.
TEST_P(PlacedCallsTest, WrongChoicesAreNamedAsTheyWereGiven) {
  EpConfig config = Config(10, 3, 64, 8);
  config.placement = RandomPlacement(rng_, 10, 4, 4, 1.0);
  Make(4, config);
  if (HasFatalFailure() || IsSkipped()) return;
  for (const int32_t bad : {10, 15, 16, 1000, -2, INT32_MIN}) {
    StepInput input = ZipfStep(config, {8, 8, 8, 8});
    input.ranks[2].topk_idx[3 * 3 + 1] = bad;
    EXPECT_THAT(harness_->Step(input),
                StatusIs(absl::StatusCode::kInvalidArgument,
                         HasSubstr(absl::StrCat("rank 2: topk_idx of token 3, k 1 is ", bad,
                                                "; it must be -1 (dropped) or from 0 to 9"))));
  }
  StepInput input = ZipfStep(config, {8, 8, 8, 8});
  std::copy_n(std::vector<int32_t>{7, 6, 7}.begin(), 3, input.ranks[1].topk_idx.begin() + 4 * 3);
  EXPECT_THAT(harness_->Step(input),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("rank 1: topk_idx of token 4, k 2 is 7, which the token has")));
  EXPECT_OK(harness_->Step(ZipfStep(config, {8, 0, 3, 8})));
}

TEST_P(PlacedCallsTest, ArgumentsAreCheckedBeforeAnythingIsLaunched) {
  EpConfig config = Config(10, 3, 64, 8);
  config.placement = RandomPlacement(rng_, 10, 2, 6, 1.0);
  Make(2, config);
  if (HasFatalFailure() || IsSkipped()) return;
  const StepInput input = ZipfStep(config, {8, 5});
  ASSERT_OK(harness_->Upload(input));
  const auto dispatch = [&](auto change) {
    return harness_->node().Run([&](Rank& rank) {
      DispatchArgs args = harness_->dispatch_args(rank.rank());
      change(args);
      return harness_->ep().Dispatch(rank, args).status();
    });
  };
  EXPECT_THAT(dispatch([](DispatchArgs& args) { args.topk_idx = nullptr; }),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("topk_idx")));
  EXPECT_THAT(dispatch([](DispatchArgs& args) { args.num_tokens = 9; }),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("num_tokens is 9")));
  EXPECT_OK(harness_->Step(input));
}

// Rows to the same ranks take the same bytes.
TEST_P(PlacedCallsTest, TrafficIsThatOfTheReplicas) {
  EpConfig config = Config(8, 3, 64, 8);
  const StepInput input = ZipfStep(config, {8, 8, 8, 8});
  Make(4, config);
  if (HasFatalFailure() || IsSkipped()) return;
  const Traffic dispatch = harness_->ep().DispatchTraffic(1, input.ranks[1].topk_idx);
  const Traffic combine = harness_->ep().CombineTraffic(1, input.ranks[1].topk_idx);
  config.placement = *Placement::InOrder(8, 4);
  Make(4, config);
  EXPECT_EQ(harness_->ep().DispatchTraffic(1, input.ranks[1].topk_idx).rows, dispatch.rows);
  EXPECT_EQ(harness_->ep().CombineTraffic(1, input.ranks[1].topk_idx).wire_bytes,
            combine.wire_bytes);
  // Every expert on every rank: nothing crosses a link but counts and flags.
  config.placement = *PlanPlacement(std::vector<double>(8, 1.0), 4, 8);
  Make(4, config);
  const std::vector<int32_t> dropped(input.ranks[1].topk_idx.size(), -1);
  EXPECT_EQ(harness_->ep().DispatchTraffic(1, input.ranks[1].topk_idx).wire_bytes,
            harness_->ep().DispatchTraffic(1, dropped).wire_bytes);
}

// The kernel that looks up replicas is captured with the dispatch. Between the launches of a graph
// are calls that no graph has.
TEST_P(PlacedCallsTest, GraphsFollowTheRouting) {
  EpConfig config = Config(10, 3, 64, 8);
  config.placement = RandomPlacement(rng_, 10, 2, 6, 1.0);
  Make(2, config);
  if (HasFatalFailure() || IsSkipped()) return;
  const std::vector<int> tokens = {8, 6};
  ASSERT_OK(harness_->Upload(ZipfStep(config, tokens)));
  std::vector<std::unique_ptr<Graph>> graphs(2);
  const absl::Status captured = harness_->node().Run([&](Rank& rank) -> absl::Status {
    const StepExecutor executor(harness_->ep(), {.fuse_experts = true});
    OCTET_ASSIGN_OR_RETURN(Graph graph, Graph::Capture(rank, [&] {
                             Received received;
                             return executor.Enqueue(rank, harness_->buffers(rank.rank()),
                                                     received);
                           }));
    graphs[static_cast<size_t>(rank.rank())] = std::make_unique<Graph>(std::move(graph));
    return absl::OkStatus();
  });
  if (absl::IsUnimplemented(captured)) GTEST_SKIP() << captured;
  ASSERT_OK(captured);
  for (int step = 0; step < 3; ++step) {
    const StepInput input = RandomStep(rng_, config, tokens, 0.1);
    ASSERT_OK(harness_->Upload(input));
    ASSERT_OK(harness_->node().Run(
        [&](Rank& rank) { return graphs[static_cast<size_t>(rank.rank())]->Launch(rank); }));
    EXPECT_OK(harness_->CheckY(input));
    EXPECT_OK(harness_->Step(ZipfStep(config, tokens)));
  }
}

INSTANTIATE_TEST_SUITE_P(All, PlacedCallsTest, ::testing::ValuesIn(AllVariants()),
                         [](const auto& info) { return info.param.name; });

TEST(PlacedConfigTest, PlacementsThatDoNotFitAreRefused) {
  EpConfig config = {.num_experts = 60, .topk = 4, .hidden = 64, .max_tokens_per_rank = 8};
  config.placement = *Placement::InOrder(60, 8);
  EXPECT_OK(Validate(config, 8));
  EXPECT_THAT(Validate(config, 4),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("placement is of 60 experts on 8 ranks; there are 60 experts and "
                                 "4 ranks")));
  config.num_experts = 64;
  EXPECT_THAT(Validate(config, 8), StatusIs(absl::StatusCode::kInvalidArgument,
                                            HasSubstr("there are 64 experts and 8 ranks")));
  // Tokens choose among logical experts.
  config = {.num_experts = 3, .topk = 4, .hidden = 64, .max_tokens_per_rank = 8};
  config.placement = *PlanPlacement({1, 1, 1}, 4, 3);
  EXPECT_THAT(Validate(config, 4), StatusIs(absl::StatusCode::kInvalidArgument,
                                            HasSubstr("topk is 4; it must be from 1 to 3")));
  // A strategy is limited by its slots.
  config = {.num_experts = 600, .topk = 4, .hidden = 64, .max_tokens_per_rank = 8};
  config.placement = *PlanPlacement(std::vector<double>(600, 1.0), 8, 200);
  config.strategy = Strategy::kLowLatency;
  EXPECT_THAT(Validate(config, 8),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("with the 1600 slots of the placement as experts")));
  config.placement = *PlanPlacement(std::vector<double>(600, 1.0), 8, 300);
  EXPECT_THAT(Validate(config, 8),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("placement has 2400 slots")));
}

}  // namespace
}  // namespace octet
