// low_latency with FailurePolicy::kMask: ranks that are silent are masked by those that wait for
// them, who go on to the bit as if the silent ones' tokens and experts did not exist; and what the
// strategy counts. In emulation under a schedule, whose virtual time lets waits expire at once.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <hip/hip_runtime.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "kernels/expert_parallel.h"
#include "runtime/graph.h"
#include "runtime/status_macros.h"
#include "tests/ep_harness.h"
#include "tests/node_fixture.h"

namespace octet {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr int kRanks = 4;
constexpr absl::Duration kMaskTimeout = absl::Seconds(1);
constexpr absl::Duration kNodeTimeout = absl::Seconds(20);

constexpr RankSet Only(int rank) { return RankSet{1} << rank; }
constexpr bool Has(RankSet ranks, int rank) { return ((ranks >> rank) & 1) != 0; }

// How far a rank comes in a step.
enum class Part { kAll, kDispatch, kNothing };

class LowLatencyMaskTest : public ::testing::Test {
 protected:
  static EpConfig Config(Output output = Output::kPackedExperts,
                         CombineOrder order = CombineOrder::kPerRank) {
    EpConfig config;
    config.num_experts = 3 * kRanks;
    config.topk = 3;
    config.hidden = 144;
    config.max_tokens_per_rank = 9;
    config.output = output;
    config.combine_order = order;
    config.strategy = Strategy::kLowLatency;
    config.failure_policy = FailurePolicy::kMask;
    config.mask_timeout = kMaskTimeout;
    config.tuning = {.blocks = 4, .waves_per_block = 2};
    return config;
  }

  // Skips the test where there are fewer GPUs: `if (IsSkipped()) return;`.
  void Make(const EpConfig& config) {
    const absl::StatusOr<Topology> topology = DiscoverTopology();
    const int gpus = topology.ok() ? static_cast<int>(topology->gpus.size()) : 0;
    if (gpus < kRanks) GTEST_SKIP() << kRanks << " ranks on " << gpus << " GPUs";
    harness_.reset();
    absl::StatusOr<std::unique_ptr<EpHarness>> harness =
        EpHarness::Create(kRanks, config, {.timeout = kNodeTimeout});
    ASSERT_OK(harness.status());
    harness_ = *std::move(harness);
    absent_ = 0;
  }

  const EpConfig& config() { return harness_->ep().config(); }
  StepInput Random() {
    return RandomStep(rng_, config(), RandomTokens(rng_, config(), kRanks), 0.1);
  }

  // What is left of a step for the others: nobody of `without` has tokens, and nothing is chosen
  // there.
  StepInput Without(StepInput input, RankSet without) {
    const int num_local = config().num_local_experts(kRanks);
    for (int r = 0; r < kRanks; ++r) {
      StepInput::PerRank& rank = input.ranks[static_cast<size_t>(r)];
      if (Has(without, r)) rank = {};
      for (int32_t& id : rank.topk_idx) {
        if (id >= 0 && Has(without, id / num_local)) id = -1;
      }
    }
    return input;
  }

  absl::Status OnRanks(const std::function<absl::Status(Rank&, ExpertParallel&)>& body) {
    return harness_->node().Run([&](Rank& rank) { return body(rank, harness_->ep()); });
  }

  // A step in which each rank does its part, and those that are absent already do nothing; what it
  // must have delivered to those that do all. From then on who has not done all is absent.
  void Step(const std::function<Part(int rank)>& part, Form form = Form::kFused) {
    const StepInput input = Random();
    ASSERT_OK(harness_->Upload(input));
    const RankSet before = absent_;
    RankSet no_dispatch = before;
    for (int r = 0; r < kRanks; ++r) {
      if (part(r) == Part::kNothing) no_dispatch |= Only(r);
      if (part(r) != Part::kAll) absent_ |= Only(r);
    }
    ASSERT_OK(OnRanks([&](Rank& rank, ExpertParallel& ep) -> absl::Status {
      if (Has(no_dispatch, rank.rank())) return absl::OkStatus();
      if (!Has(absent_, rank.rank())) return harness_->RunStep(rank, form);
      return ep.Dispatch(rank, harness_->dispatch_args(rank.rank())).status();
    }));
    const StepInput received = Without(input, no_dispatch);
    StepInput combined = Without(input, absent_);
    EXPECT_OK(harness_->node().Run([&](Rank& rank) {
      return Has(absent_, rank.rank())
                 ? absl::OkStatus()
                 : harness_->CheckReceived(ForReceiver(received, input, rank), rank.rank());
    }));
    EXPECT_OK(harness_->CheckY(combined));
    for (int r = 0; r < kRanks; ++r) {
      if (Has(absent_, r)) continue;
      const LeftOut& left_out = *harness_->received(r).left_out;
      EXPECT_EQ(left_out.dispatch, no_dispatch) << "rank " << r;
      EXPECT_EQ(left_out.combine, absent_) << "rank " << r;
    }
  }
  void Step(RankSet silent, Form form = Form::kFused) {
    Step([&](int rank) { return Has(silent, rank) ? Part::kNothing : Part::kAll; }, form);
  }

  // Rows of a rank depend only on who sends to it.
  StepInput ForReceiver(const StepInput& received, const StepInput& input, const Rank&) {
    StepInput result = input;
    for (int r = 0; r < kRanks; ++r) {
      if (received.ranks[static_cast<size_t>(r)].num_tokens == 0) {
        result.ranks[static_cast<size_t>(r)] = {};
      }
    }
    return result;
  }

  void ExpectMasks(RankSet masked) {
    EXPECT_OK(OnRanks([&](Rank& rank, ExpertParallel& ep) -> absl::Status {
      if (Has(absent_, rank.rank())) return absl::OkStatus();
      OCTET_ASSIGN_OR_RETURN(const RankSet mine, ep.MaskedRanks(rank));
      EXPECT_EQ(mine, masked) << "rank " << rank.rank();
      return absl::OkStatus();
    }));
  }

  // All ranks but `still_masked` are there again.
  void Unmask(RankSet still_masked = 0) {
    EXPECT_OK(
        OnRanks([&](Rank& rank, ExpertParallel& ep) { return ep.Unmask(rank, still_masked); }));
    absent_ = still_masked;
  }

  std::mt19937_64 rng_{20'261'122};
  std::unique_ptr<EpHarness> harness_;
  RankSet absent_ = 0;
};

// ---- silent ranks

struct Shape {
  Output output;
  CombineOrder order;
  DispatchFormat format = DispatchFormat::kSame;
};

class LowLatencyMaskShapeTest : public LowLatencyMaskTest,
                                public ::testing::WithParamInterface<Shape> {
 protected:
  void MakeShape() {
    EpConfig config = Config(GetParam().output, GetParam().order);
    config.dispatch_format = GetParam().format;
    Make(config);
  }
};

TEST_P(LowLatencyMaskShapeTest, ARankThatDoesNotComeToDispatch) {
  for (const Form form : {Form::kFused, Form::kSplit}) {
    MakeShape();
    if (IsSkipped()) return;
    Step(RankSet{0}, form);
    Step(Only(2), form);
    ExpectMasks(Only(2));
    Step(Only(2), form);
    Step(Only(2), form);
    Unmask();
    ExpectMasks(0);
    Step(RankSet{0}, form);
    Step(RankSet{0}, form);
  }
}

TEST_P(LowLatencyMaskShapeTest, ARankThatDoesNotComeToCombine) {
  for (const Form form : {Form::kFused, Form::kSplit}) {
    MakeShape();
    if (IsSkipped()) return;
    Step([](int rank) { return rank == 1 ? Part::kDispatch : Part::kAll; }, form);
    ExpectMasks(Only(1));
    Step(Only(1), form);
    Unmask();
    Step(RankSet{0}, form);
  }
}

INSTANTIATE_TEST_SUITE_P(All, LowLatencyMaskShapeTest,
                         ::testing::Values(Shape{Output::kPackedExperts, CombineOrder::kPerRank},
                                           Shape{Output::kPackedExperts, CombineOrder::kFlat},
                                           Shape{Output::kRankMajor, CombineOrder::kFlat},
                                           Shape{Output::kExpertMajor, CombineOrder::kPerRank,
                                                 DispatchFormat::kQuantizedFp8}),
                         [](const auto& info) { return absl::StrCat("Shape", info.index); });

}  // namespace
}  // namespace octet
