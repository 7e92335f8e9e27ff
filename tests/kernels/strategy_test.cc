// Every strategy against the reference, to the bit: random shapes and the corner cases by name.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <initializer_list>
#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "kernels/ep/ep_calls.h"
#include "runtime/base/status_macros.h"
#include "tests/support/ep_harness.h"
#include "tests/support/host_copy.h"
#include "tests/support/strategy_variants.h"
#include "tools/step/step_executor.h"

namespace octet {
namespace {

using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::SizeIs;

#define EXPECT_OK(expr)                                      \
  do {                                                       \
    const absl::Status& status_ = (expr);                    \
    EXPECT_TRUE(status_.ok()) << status_ << "\n" << Where(); \
  } while (false)
#define ASSERT_OK(expr)                                      \
  do {                                                       \
    const absl::Status& status_ = (expr);                    \
    ASSERT_TRUE(status_.ok()) << status_ << "\n" << Where(); \
  } while (false)

class StrategyTest : public ::testing::TestWithParam<StrategyCase> {
 protected:
  EpConfig Config(int num_experts, int topk, int hidden, int max_tokens,
                  DType dtype = DType::kBFloat16) const {
    EpConfig config;
    config.num_experts = num_experts;
    config.topk = topk;
    config.hidden = hidden;
    config.max_tokens_per_rank = max_tokens;
    config.dtype = dtype;
    GetParam().ApplyTo(config);
    // In emulation every lane takes its time, used or not: the grids that are chosen by default are
    // for RandomShapes.
    if (OCTET_TEST_EMULATED) config.tuning = {.blocks = 3, .waves_per_block = 3};
    return config;
  }

  void SetUp() override {
    if (NumGpus() == 0) GTEST_SKIP() << "no GPU";
  }

  // The GPUs of this machine. The emulation has all that a test asks for.
  static int NumGpus() {
    const absl::StatusOr<Topology> topology = DiscoverTopology();
    return topology.ok() ? static_cast<int>(topology->gpus.size()) : 0;
  }

  void Make(int num_ranks, const EpConfig& config, NodeOptions options = {}) {
    if (num_ranks > NumGpus()) GTEST_SKIP() << num_ranks << " ranks on " << NumGpus() << " GPUs";
    num_ranks_ = num_ranks;
    config_ = config;
    harness_.reset();
    absl::StatusOr<std::unique_ptr<EpHarness>> harness =
        EpHarness::Create(num_ranks, config, std::move(options));
    ASSERT_OK(harness.status());
    harness_ = *std::move(harness);
  }

  std::vector<int> Tokens(int each) const {
    return std::vector<int>(static_cast<size_t>(num_ranks_), each);
  }

  StepInput Random(const std::vector<int>& tokens, double drop = 0.0) {
    return RandomStep(rng_, config_, tokens, drop);
  }

  std::string Where() const {
    return absl::StrCat("seed ", seed_, ", ranks ", num_ranks_, ", E ", config_.num_experts, ", K ",
                        config_.topk, ", H ", config_.hidden, ", M ", config_.max_tokens_per_rank,
                        ", ", EnumName(config_.dtype).data(), ", blocks ", config_.tuning.blocks,
                        ", send_blocks ", config_.tuning.send_blocks, ", waves ",
                        config_.tuning.waves_per_block, ", row_parts ", config_.tuning.row_parts);
  }

  uint64_t seed_ = 20261121;
  std::mt19937_64 rng_{seed_};
  int num_ranks_ = 0;
  EpConfig config_;
  std::unique_ptr<EpHarness> harness_;
};

// ---- random shapes

TEST_P(StrategyTest, RandomShapes) {
  const auto one_of = [this](std::initializer_list<int> values) {
    return *(values.begin() + static_cast<ptrdiff_t>(rng_() % values.size()));
  };
  for (int round = 0; round < 12; ++round) {
    seed_ = 1000 + static_cast<uint64_t>(round);
    rng_.seed(seed_);
    const int ranks = 1 + static_cast<int>(rng_() % static_cast<uint64_t>(std::min(8, NumGpus())));
    const int num_experts = ranks * one_of({1, 2, 3, 4, 8, 13});
    const int topk =
        1 + static_cast<int>(rng_() % static_cast<uint64_t>(std::min(32, num_experts)));
    EpConfig config =
        Config(num_experts, topk, one_of({8, 16, 24, 120, 256, 520, 1032}),
               one_of({1, 2, 5, 17, 40}), rng_() % 2 == 0 ? DType::kFloat16 : DType::kBFloat16);
    config.tuning.blocks = one_of({0, 2, 3});
    config.tuning.send_blocks = one_of({0, 1});
    config.tuning.waves_per_block = one_of({0, 1, 2, 3});
    config.tuning.row_parts = one_of({0, 1, 2, 3});
    // With few waves in a block a compute unit has room for dozens.
    if (OCTET_TEST_EMULATED) config.max_blocks = 6;
    Make(ranks, config);
    if (HasFatalFailure() || IsSkipped()) return;
    const double drop = one_of({0, 0, 3}) / 10.0;
    for (const std::vector<Form>& forms :
         {std::vector{Form::kFused}, std::vector{Form::kSplit},
          std::vector{Form::kSeparateExpert, Form::kFused, Form::kSplit}}) {
      ASSERT_OK(harness_->Step(Random(RandomTokens(rng_, config_, ranks), drop), forms));
    }
  }
}

// ---- corner cases by name

TEST_P(StrategyTest, NoTokensAnywhere) {
  Make(4, Config(8, 2, 64, 4));
  if (HasFatalFailure() || IsSkipped()) return;
  EXPECT_OK(harness_->Step(Random(Tokens(0))));
  EXPECT_OK(harness_->Step(Random(Tokens(4))));
}

TEST_P(StrategyTest, NoTokensOnSomeRanks) {
  Make(4, Config(8, 2, 64, 8));
  if (HasFatalFailure() || IsSkipped()) return;
  EXPECT_OK(harness_->Step(Random({0, 8, 0, 1})));
}

TEST_P(StrategyTest, AllDropped) {
  Make(3, Config(6, 3, 64, 5));
  if (HasFatalFailure() || IsSkipped()) return;
  EXPECT_OK(harness_->Step(Random(Tokens(5), 1.0)));
  EXPECT_OK(harness_->Step(Random(Tokens(5), 0.5)));
}

TEST_P(StrategyTest, AllTokensToOneExpert) {
  Make(4, Config(16, 4, 64, 9));
  if (HasFatalFailure() || IsSkipped()) return;
  StepInput input = Random(Tokens(9));
  for (StepInput::PerRank& rank : input.ranks) {
    for (size_t i = 0; i < rank.topk_idx.size(); ++i) rank.topk_idx[i] = i % 4 == 0 ? 5 : -1;
  }
  EXPECT_OK(harness_->Step(input));
}

TEST_P(StrategyTest, AllTokensToOneRank) {
  Make(4, Config(16, 4, 64, 9));
  if (HasFatalFailure() || IsSkipped()) return;
  StepInput input = Random(Tokens(9));
  for (StepInput::PerRank& rank : input.ranks) {
    for (size_t i = 0; i < rank.topk_idx.size(); ++i) {
      rank.topk_idx[i] = 8 + static_cast<int32_t>(i % 4);
    }
  }
  EXPECT_OK(harness_->Step(input));
}

TEST_P(StrategyTest, OneRank) {
  Make(1, Config(4, 2, 128, 7));
  if (HasFatalFailure() || IsSkipped()) return;
  EXPECT_OK(harness_->Step(Random(Tokens(7))));
}

TEST_P(StrategyTest, OddNumbersOfRanks) {
  for (const int ranks : {3, 5, 7}) {
    Make(ranks, Config(ranks * 3, 3, 72, 6));
    if (HasFatalFailure() || IsSkipped()) return;
    EXPECT_OK(harness_->Step(Random(RandomTokens(rng_, config_, ranks))));
  }
}

TEST_P(StrategyTest, SixteenRanks) {
  Make(16, Config(32, 5, 72, 6));
  if (HasFatalFailure() || IsSkipped()) return;
  EXPECT_OK(harness_->Step(Random(RandomTokens(rng_, config_, 16), 0.1)));
}

TEST_P(StrategyTest, RaggedHidden) {
  for (const int hidden : {8, 24, 1000, 2056}) {
    Make(2, Config(4, 2, hidden, 5, DType::kFloat16));
    if (HasFatalFailure() || IsSkipped()) return;
    EXPECT_OK(harness_->Step(Random(Tokens(5))));
  }
}

TEST_P(StrategyTest, EveryExpertChosen) {
  Make(4, Config(8, 8, 64, 6));
  if (HasFatalFailure() || IsSkipped()) return;
  EXPECT_OK(harness_->Step(Random(Tokens(6))));
}

TEST_P(StrategyTest, TopkOfThirtyTwo) {
  Make(2, Config(64, 32, 64, 9, DType::kFloat16));
  if (HasFatalFailure() || IsSkipped()) return;
  EXPECT_OK(harness_->Step(Random(Tokens(9), 0.2)));
}

TEST_P(StrategyTest, ThirtyTwoChoicesOfOneRank) {
  Make(1, Config(32, 32, 64, 5));
  if (HasFatalFailure() || IsSkipped()) return;
  EXPECT_OK(harness_->Step(Random(Tokens(5))));
}

TEST_P(StrategyTest, OneTokenAtMost) {
  Make(4, Config(8, 2, 64, 1));
  if (HasFatalFailure() || IsSkipped()) return;
  EXPECT_OK(harness_->Step(Random({1, 0, 1, 1})));
}

TEST_P(StrategyTest, RanksThatReceiveNothing) {
  Make(4, Config(8, 2, 64, 6));
  if (HasFatalFailure() || IsSkipped()) return;
  StepInput input = Random(Tokens(6));
  for (StepInput::PerRank& rank : input.ranks) {
    for (size_t i = 0; i < rank.topk_idx.size(); ++i) {
      rank.topk_idx[i] = static_cast<int32_t>(i % 2);  // experts 0 and 1 live on rank 0
    }
  }
  EXPECT_OK(harness_->Step(input));
}

TEST_P(StrategyTest, AlternatingSizes) {
  Make(4, Config(16, 4, 64, 33));
  if (HasFatalFailure() || IsSkipped()) return;
  for (const int tokens : {33, 0, 1, 33, 7, 32}) EXPECT_OK(harness_->Step(Random(Tokens(tokens))));
}

TEST_P(StrategyTest, ManyCallsOnTheSameBuffers) {
  Make(3, Config(6, 2, 64, 4));
  if (HasFatalFailure() || IsSkipped()) return;
  for (int call = 0; call < 40; ++call) {
    ASSERT_OK(
        harness_->Step(Random(RandomTokens(rng_, config_, 3), 0.1), {Form::kFused, Form::kSplit}));
  }
}

// Calls that follow one another without the host looking: a fast rank may be a call ahead.
TEST_P(StrategyTest, BackToBackWithoutSynchronizing) {
  Make(4, Config(8, 4, 256, 16));
  if (HasFatalFailure() || IsSkipped()) return;
  const StepInput input = Random(RandomTokens(rng_, config_, 4));
  ASSERT_OK(harness_->Upload(input));
  ASSERT_OK(harness_->node().Run([&](Rank& rank) -> absl::Status {
    const StepBuffers& buffers = harness_->buffers(rank.rank());
    const StepExecutor executor(harness_->ep(), {.fuse_experts = true});
    for (int call = 0; call < 20; ++call) {
      OCTET_ASSIGN_OR_RETURN(const Received received,
                             harness_->ep().Dispatch(rank, buffers.dispatch_args()));
      if (call % 3 == 2) continue;  // a dispatch without a combine
      OCTET_RETURN_IF_ERROR(executor.EnqueueExperts(rank, buffers, received));
      OCTET_RETURN_IF_ERROR(ScaledCombine(harness_->ep(), rank, received.handle,
                                          executor.combine_args(buffers, received)));
    }
    return absl::OkStatus();
  }));
  EXPECT_OK(harness_->CheckY(input));
  EXPECT_OK(harness_->Step(input));
}

// A rank may be as far ahead of one that is still to receive as calls can be in flight, without a
// combine that would hold it back: the counts of the first of them must survive that.
TEST_P(StrategyTest, CountsOutliveASenderThatIsAhead) {
  Make(2, Config(4, 2, 64, 8));
  if (HasFatalFailure() || IsSkipped()) return;
  const StepInput input = Random({8, 3});
  EXPECT_OK(harness_->LateReceiver(input, 1, absl::Milliseconds(50)));
  EXPECT_OK(harness_->Step(input));
}

// ---- wrong input, found on the device

TEST_P(StrategyTest, ExpertOutOfRangeIsRefused) {
  Make(4, Config(8, 2, 64, 6));
  if (HasFatalFailure() || IsSkipped()) return;
  for (const int32_t bad : {8, -2, 1 << 30}) {
    StepInput input = Random(Tokens(6));
    input.ranks[2].topk_idx[2 * 3 + 1] = bad;
    ASSERT_OK(harness_->Upload(input));
    const absl::Status status = harness_->node().Run([&](Rank& rank) -> absl::Status {
      return harness_->ep().Dispatch(rank, harness_->dispatch_args(rank.rank())).status();
    });
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
    EXPECT_THAT(std::string(status.message()),
                HasSubstr("rank 2: topk_idx of token 3, k 1 is " + std::to_string(bad)));
    EXPECT_OK(harness_->Step(Random(Tokens(6))));
  }
}

// So many rows are announced that there is no room for them, and an expert and a combine wait
// behind.
TEST_P(StrategyTest, MoreRowsThanThereIsRoomForAreRefused) {
  Make(2, Config(2, 2, 64, 6));
  if (HasFatalFailure() || IsSkipped()) return;
  StepInput input = Random(Tokens(6));
  for (StepInput::PerRank& rank : input.ranks) {
    for (int32_t& id : rank.topk_idx) id = 0;
  }
  const absl::Status status = harness_->Step(input, {Form::kSeparateExpert, Form::kFused});
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("which the token has chosen before"));
  EXPECT_OK(harness_->Step(Random(Tokens(6))));
}

TEST_P(StrategyTest, ExpertChosenTwiceIsRefused) {
  Make(4, Config(8, 3, 64, 6));
  if (HasFatalFailure() || IsSkipped()) return;
  StepInput input = Random(Tokens(6));
  int32_t* ids = &input.ranks[1].topk_idx[3 * 4];
  ids[0] = 7;
  ids[1] = 2;
  ids[2] = 7;
  ASSERT_OK(harness_->Upload(input));
  const absl::Status status = harness_->node().Run([&](Rank& rank) -> absl::Status {
    return harness_->ep().Dispatch(rank, harness_->dispatch_args(rank.rank())).status();
  });
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("rank 1: topk_idx of token 4, k 2 is 7, which the token has chosen"));
  EXPECT_OK(harness_->Step(Random(Tokens(6))));
}

// ---- a peer that does not come

TEST_P(StrategyTest, SilentPeerEndsInADeadlineThatNamesIt) {
  Make(4, Config(8, 2, 64, 6), {.timeout = absl::Seconds(1)});
  if (HasFatalFailure() || IsSkipped()) return;
  const StepInput input = Random(Tokens(6));
  ASSERT_OK(harness_->Upload(input));
  std::vector<Received> received;
  const absl::Status status = harness_->node().Run([&](Rank& rank) -> absl::Status {
    for (int call = 0; call < 2; ++call) {
      // Rank 3 takes part in the launch's barrier and then launches nothing.
      if (rank.rank() == 3) {
        OCTET_RETURN_IF_ERROR(rank.Barrier());
        continue;
      }
      OCTET_RETURN_IF_ERROR(PoisonReceived(harness_->ep(), rank, 1));
      OCTET_ASSIGN_OR_RETURN(const Received one,
                             harness_->ep().Dispatch(rank, harness_->dispatch_args(rank.rank())));
      if (rank.rank() == 0) received.push_back(one);
    }
    return absl::OkStatus();
  });
  EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("dispatch-receive waited"));
  EXPECT_THAT(std::string(status.message()), HasSubstr("for rank 3's"));
  EXPECT_THAT(std::string(status.message()), HasSubstr("expected epoch 1, seen 0"));
  EXPECT_THAT(std::string(status.message()), HasSubstr("\n  rank 3: no wait\n"));
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("\nrow counts: epoch seen from each rank, * behind\n"
                        "          expected  0   1   2   3\n"
                        "  rank 0         1  1   1   1   0*\n"
                        "  rank 1         1  1   1   1   0*\n"
                        "  rank 2         1  1   1   1   0*"));
  // Whoever has enqueued work behind these dispatches must not find rows in memory that was never
  // written: neither of the one that failed, nor of the one after it, which did nothing.
  ASSERT_THAT(received, SizeIs(2));
  for (const Received& one : received) {
    EXPECT_THAT(*ToHost<int32_t>(one.expert_counts, 2), Each(0));
    if (one.expert_offsets == nullptr) continue;
    EXPECT_THAT(*ToHost<int32_t>(one.expert_offsets, 3), Each(0));
  }
  EXPECT_OK(harness_->Step(input));
}

TEST_P(StrategyTest, SilentPeerInCombine) {
  Make(3, Config(6, 6, 64, 4), {.timeout = absl::Seconds(1)});
  if (HasFatalFailure() || IsSkipped()) return;
  const StepInput input = Random(Tokens(4));
  ASSERT_OK(harness_->Upload(input));
  const absl::Status status = harness_->node().Run([&](Rank& rank) -> absl::Status {
    const StepBuffers& buffers = harness_->buffers(rank.rank());
    const StepExecutor executor(harness_->ep(), {.fuse_experts = true});
    OCTET_ASSIGN_OR_RETURN(const Received received,
                           harness_->ep().Dispatch(rank, buffers.dispatch_args()));
    if (rank.rank() == 1) return rank.Barrier();
    OCTET_RETURN_IF_ERROR(executor.EnqueueExperts(rank, buffers, received));
    return ScaledCombine(harness_->ep(), rank, received.handle,
                         executor.combine_args(buffers, received));
  });
  EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded) << status;
  // Each token has two experts on each rank.
  const bool per_rank = harness_->ep().config().combine_order == CombineOrder::kPerRank;
  EXPECT_THAT(std::string(status.message()), HasSubstr("combine-receive waited"));
  EXPECT_THAT(std::string(status.message()), HasSubstr("for rank 1's"));
  EXPECT_THAT(std::string(status.message()),
              GetParam().variant.flags == Flags::kToken
                  ? HasSubstr(absl::StrReplaceAll(
                        "\ncombined rows: arrived / to be returned by each rank, * behind\n"
                        "            0     1     2\n"
                        "  rank 0  N/N   0/N*  N/N\n"
                        "  rank 2  N/N   0/N*  N/N",
                        {{"N", per_rank ? "4" : "8"}}))
                  : HasSubstr("\ncombine source flags: epoch seen from each rank, * behind\n"
                              "          expected  0   1   2\n"
                              "  rank 0         1  1   0*  1\n"
                              "  rank 2         1  1   0*  1"));
  EXPECT_OK(harness_->Step(input));
}

// ---- wrong calls, found on the host

TEST_P(StrategyTest, WrongArgumentsAreRefusedBeforeALaunch) {
  Make(2, Config(4, 2, 64, 4));
  if (HasFatalFailure() || IsSkipped()) return;
  ASSERT_OK(harness_->Upload(Random(Tokens(4))));
  const auto dispatch = [&](auto change) {
    return harness_->node().Run([&](Rank& rank) -> absl::Status {
      DispatchArgs args = harness_->dispatch_args(rank.rank());
      change(args);
      return harness_->ep().Dispatch(rank, args).status();
    });
  };
  absl::Status status = dispatch([](DispatchArgs& args) { args.num_tokens = 5; });
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("num_tokens is 5"));
  EXPECT_EQ(dispatch([](DispatchArgs& args) { args.x = nullptr; }).code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(
      dispatch([](DispatchArgs& args) { args.x = static_cast<const char*>(args.x) + 2; }).code(),
      absl::StatusCode::kInvalidArgument);
  status = harness_->node().Run([&](Rank& rank) -> absl::Status {
    ScaledCombineArgs args = harness_->combine_args(rank.rank());
    args.expert_out = args.y;
    return ScaledCombine(harness_->ep(), rank, DispatchHandle{}, args);
  });
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition) << status;
  EXPECT_OK(harness_->Step(Random(Tokens(4))));
}

INSTANTIATE_TEST_SUITE_P(All, StrategyTest, ::testing::ValuesIn(AllVariants()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace octet
