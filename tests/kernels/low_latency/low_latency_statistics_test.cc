// What low_latency counts and measures on request.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "kernels/oracle/reference.h"
#include "octet/expert_parallel.h"
#include "octet/node.h"
#include "runtime/base/status_macros.h"
#include "tests/kernels/low_latency/low_latency_mask_fixture.h"
#include "tests/support/ep_harness.h"
#include "tests/support/node/node_fixture.h"

namespace octet {
namespace {

using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::Lt;

class LowLatencyStatisticsTest : public LowLatencyMaskTest {
 protected:
  static EpConfig WithoutMasks(EpConfig config) {
    config.low_latency.failure_policy = FailurePolicy::kAbort;
    config.low_latency.mask_timeout = absl::ZeroDuration();
    return config;
  }

  // Adds what a dispatch of `input` brings to each rank's experts.
  void AddRows(const StepInput& input, std::vector<std::vector<int64_t>>& rows) {
    const std::vector<RankInput> views = input.sent();
    for (int r = 0; r < kRanks; ++r) {
      const ReferenceReceived received = ReferenceDispatch(config(), views, r);
      std::vector<int64_t>& mine = rows[static_cast<size_t>(r)];
      mine.resize(received.expert_counts.size());
      for (size_t e = 0; e < mine.size(); ++e) mine[e] += received.expert_counts[e];
    }
  }
};

// What a silent rank costs the others is its time, once.
TEST_F(LowLatencyStatisticsTest, ASilentRankIsWaitedForOnce) {
  Make(Config());
  if (IsSkipped()) return;
  Step(RankSet{0});
  ASSERT_OK(ResetStatistics());
  for (int step = 0; step < 3; ++step) Step(Only(2));
  const std::vector<EpStatistics> statistics = Statistics();
  for (int r : {0, 1, 3}) {
    const EpStatistics& mine = statistics[static_cast<size_t>(r)];
    EXPECT_GE(mine.dispatch_waits[2], MaskTimeout());
    EXPECT_LT(mine.dispatch_waits[2], 1.5 * MaskTimeout());
    EXPECT_EQ(mine.combine_waits[2], absl::ZeroDuration());
  }
}

// Delayed before its dispatch, or between that and its combine; whether or not ranks may be masked,
// for which there are words that tell who has begun, and are waited for before the rows.
TEST_F(LowLatencyStatisticsTest, WaitsAreThoseForADelayedRank) {
  const absl::Duration delay = 0.5 * MaskTimeout();
  for (const bool mask : {true, false}) {
    Make(mask ? Config() : WithoutMasks(Config()));
    if (IsSkipped()) return;
    for (const bool in_dispatch : {true, false}) {
      ASSERT_OK(ResetStatistics());
      ASSERT_OK(harness_->Upload(RandomStep(rng_, config(), {9, 9, 9, 9})));
      *signals_ = {};
      ASSERT_OK(OnRanks([&](Rank& rank, ExpertParallel& ep) -> absl::Status {
        const bool late = rank.rank() == 2;
        if (late && in_dispatch) OCTET_RETURN_IF_ERROR(EnqueueWait(rank, delay));
        OCTET_ASSIGN_OR_RETURN(const Received received,
                               ep.Dispatch(rank, harness_->dispatch_args(rank.rank())));
        if (late && !in_dispatch) OCTET_RETURN_IF_ERROR(EnqueueWait(rank, delay));
        ScaledCombineArgs combine = harness_->combine_args(rank.rank());
        combine.expert_out = received.x;
        return ScaledCombine(ep, rank, received.handle, combine);
      }));
      const std::vector<EpStatistics> statistics = Statistics();
      for (int r = 0; r < kRanks; ++r) {
        for (int peer = 0; peer < kRanks; ++peer) {
          const EpStatistics& mine = statistics[static_cast<size_t>(r)];
          const auto p = static_cast<size_t>(peer);
          SCOPED_TRACE(absl::StrCat("mask ", mask, ", in dispatch ", in_dispatch, ", rank ", r,
                                    " for rank ", peer));
          const auto& waits = in_dispatch ? mine.dispatch_waits : mine.combine_waits;
          const auto& others = in_dispatch ? mine.combine_waits : mine.dispatch_waits;
          if (peer == 2 && r != 2) {
            EXPECT_GT(waits[p], 0.8 * delay);
          } else {
            EXPECT_LT(waits[p], 0.5 * delay);
          }
          EXPECT_LT(others[p], 0.5 * delay);
        }
      }
    }
  }
}

TEST_F(LowLatencyStatisticsTest, RowsAreCounted) {
  for (const Output output : {Output::kPackedExperts, Output::kRankMajor}) {
    Make(WithoutMasks(Config(output)));
    if (IsSkipped()) return;
    for (int round = 0; round < 2; ++round) {
      ASSERT_OK(ResetStatistics());
      std::vector<std::vector<int64_t>> want(kRanks);
      for (int step = 0; step < 3; ++step) {
        const StepInput input = Random();
        ASSERT_OK(harness_->Step(input, {Form::kFused, Form::kSplit}));
        AddRows(input, want);
      }
      const std::vector<EpStatistics> statistics = Statistics();
      for (size_t r = 0; r < kRanks; ++r) EXPECT_EQ(statistics[r].expert_rows, want[r]) << r;
    }
  }
}

// What a call that failed has waited is in none, also not in that of the next.
TEST_F(LowLatencyStatisticsTest, ACallThatFailsIsNotMeasured) {
  Make(WithoutMasks(Config()), MaskTimeout());
  if (IsSkipped()) return;
  ASSERT_OK(harness_->Upload(Random()));
  *signals_ = {};
  EXPECT_THAT(OnRanks([&](Rank& rank, ExpertParallel&) -> absl::Status {
                if (rank.rank() == 2) OCTET_RETURN_IF_ERROR(EnqueueWait(rank, kNodeTimeout));
                return harness_->RunStep(rank, Form::kFused);
              }),
              StatusIs(absl::StatusCode::kDeadlineExceeded, HasSubstr("rank 2's row count")));
  ASSERT_OK(
      OnRanks([&](Rank& rank, ExpertParallel&) { return harness_->RunStep(rank, Form::kFused); }));
  for (const EpStatistics& rank : Statistics()) {
    for (const auto* waits : {&rank.dispatch_waits, &rank.combine_waits}) {
      EXPECT_THAT(*waits, Each(Lt(0.5 * MaskTimeout())));
    }
  }
}

// Also in the call in which a rank is masked, part of which is done twice.
TEST_F(LowLatencyStatisticsTest, RowsOfACallThatMasksAreCountedOnce) {
  Make(Config());
  if (IsSkipped()) return;
  StepInput input = RandomStep(rng_, config(), {9, 9, 9, 9});
  ASSERT_OK(harness_->Upload(input));
  ASSERT_OK(ResetStatistics());
  ASSERT_OK(OnRanks([&](Rank& rank, ExpertParallel&) {
    return rank.rank() == 2 ? absl::OkStatus() : harness_->RunStep(rank, Form::kFused);
  }));
  absent_ = Only(2);
  ExpectMasks(Only(2));
  input.ranks[2] = {};
  std::vector<std::vector<int64_t>> want(kRanks);
  AddRows(input, want);
  const std::vector<EpStatistics> statistics = Statistics();
  for (const size_t r : {0, 1, 3}) EXPECT_EQ(statistics[r].expert_rows, want[r]) << r;
}

}  // namespace
}  // namespace octet
