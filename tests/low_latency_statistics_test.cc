// What low_latency counts and measures on request.
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "kernels/expert_parallel.h"
#include "kernels/reference.h"
#include "runtime/node.h"
#include "runtime/status_macros.h"
#include "tests/ep_harness.h"
#include "tests/low_latency_mask_fixture.h"
#include "tests/node_fixture.h"

namespace octet {
namespace {

using LowLatencyStatisticsTest = LowLatencyMaskTest;

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

TEST_F(LowLatencyStatisticsTest, WaitsAreThoseForADelayedRank) {
  Make(Config());
  if (IsSkipped()) return;
  ASSERT_OK(ResetStatistics());
  ASSERT_OK(harness_->Upload(Random()));
  const absl::Duration delay = 0.5 * MaskTimeout();
  *signals_ = {};
  ASSERT_OK(OnRanks([&](Rank& rank, ExpertParallel&) -> absl::Status {
    if (rank.rank() == 2) OCTET_RETURN_IF_ERROR(EnqueueWait(rank, delay));
    return harness_->RunStep(rank, Form::kFused);
  }));
  ExpectMasks(0);
  const std::vector<EpStatistics> statistics = Statistics();
  for (int r = 0; r < kRanks; ++r) {
    for (int peer = 0; peer < kRanks; ++peer) {
      const EpStatistics& mine = statistics[static_cast<size_t>(r)];
      const auto p = static_cast<size_t>(peer);
      SCOPED_TRACE(absl::StrCat("rank ", r, " for rank ", peer));
      if (peer == 2 && r != 2) {
        EXPECT_GT(mine.dispatch_waits[p], 0.8 * delay);
      } else {
        EXPECT_LT(mine.dispatch_waits[p], 0.5 * delay);
      }
      EXPECT_LT(mine.combine_waits[p], 0.5 * delay);
    }
  }
}

TEST_F(LowLatencyStatisticsTest, RowsAreCounted) {
  for (const Output output : {Output::kPackedExperts, Output::kRankMajor}) {
    EpConfig config = Config(output);
    config.failure_policy = FailurePolicy::kAbort;
    config.mask_timeout = absl::ZeroDuration();
    Make(config);
    if (IsSkipped()) return;
    for (int round = 0; round < 2; ++round) {
      ASSERT_OK(ResetStatistics());
      std::vector<std::vector<int64_t>> want(kRanks);
      for (int step = 0; step < 3; ++step) {
        const StepInput input = Random();
        ASSERT_OK(harness_->Step(input, {Form::kFused, Form::kSplit}));
        const std::vector<RankInput> views = input.views();
        for (int r = 0; r < kRanks; ++r) {
          const ReferenceReceived received = ReferenceDispatch(this->config(), views, r);
          std::vector<int64_t>& mine = want[static_cast<size_t>(r)];
          mine.resize(received.expert_counts.size());
          for (size_t e = 0; e < mine.size(); ++e) mine[e] += received.expert_counts[e];
        }
      }
      const std::vector<EpStatistics> statistics = Statistics();
      for (size_t r = 0; r < kRanks; ++r) EXPECT_EQ(statistics[r].expert_rows, want[r]) << r;
    }
  }
}

}  // namespace
}  // namespace octet
