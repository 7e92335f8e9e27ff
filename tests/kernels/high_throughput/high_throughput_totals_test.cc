// What high_throughput tells the host and the caller's kernels: totals, errors, and arrays to index
// with when nothing was received.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <hip/hip_runtime.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "kernels/oracle/pointwise_expert.h"
#include "kernels/oracle/reference.h"
#include "octet/expert_parallel.h"
#include "runtime/base/status_macros.h"
#include "runtime/gpu/gpu_status.h"
#include "tests/kernels/high_throughput/high_throughput_fixture.h"
#include "tests/support/host_copy.h"

namespace octet {
namespace {

using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::MatchesRegex;

TEST_F(HighThroughputTest, TotalsOnTheHost) {
  EpConfig config = Config(12, 4, 72, 9);
  config.high_throughput.host_totals = true;
  config.high_throughput.expert_alignment = 4;
  MAKE_OR_SKIP(3, config);
  const auto check = [&](const StepInput& step) {
    for (int r = 0; r < harness_->node().num_ranks(); ++r) {
      const ReferenceReceived want = ReferenceDispatch(this->config(), step.sent(), r);
      const Received& received = harness_->received(r);
      EXPECT_EQ(received.high_throughput.num_rows, want.expert_offsets.back());
      EXPECT_EQ(received.high_throughput.num_tokens, want.source_offsets.back());
      EXPECT_EQ(std::vector<int32_t>(received.high_throughput.host_expert_counts.begin(),
                                     received.high_throughput.host_expert_counts.end()),
                want.expert_counts);
    }
  };
  for (const std::vector<int>& tokens : {std::vector{9, 4, 7}, {0, 0, 0}, {1, 9, 0}}) {
    const StepInput step = RandomStepOf(tokens, 0.2);
    EXPECT_OK(harness_->Dispatch(step));
    check(step);
    EXPECT_OK(harness_->Dispatch(step, harness_->Handles()));
    check(step);
    EXPECT_OK(harness_->Combine(step, harness_->Handles()));
  }
}

TEST_F(HighThroughputTest, TotalsOfASilentPeerEndInItsDeadline) {
  EpConfig config = Config(4, 2, 64, 4);
  config.high_throughput.host_totals = true;
  MAKE_OR_SKIP(2, config, absl::Milliseconds(300));
  const StepInput step = RandomStepOf({4, 4});
  EXPECT_OK(harness_->Upload(step));
  const absl::Status status = harness_->node().Run([&](Rank& rank) -> absl::Status {
    if (rank.rank() == 1) return rank.Barrier();
    return ep().Dispatch(rank, args(rank)).status();
  });
  EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded) << status;
  RunStep(step);
}

// A function of the host that is stuck, ahead of the dispatch on the streams of `ranks`. Ends by
// itself after a minute.
class StuckFunction {
 public:
  ~StuckFunction() {
    release_ = true;
    while (running_ > 0) absl::SleepFor(absl::Milliseconds(1));
  }
  absl::Status Enqueue(hipStream_t stream) {
    ++running_;
    return OCTET_GPU(hipLaunchHostFunc(stream, &StuckFunction::Run, this));
  }
  int running() const { return running_; }

 private:
  static void Run(void* self) {
    auto* function = static_cast<StuckFunction*>(self);
    const absl::Time latest = absl::Now() + absl::Minutes(1);
    while (!function->release_ && absl::Now() < latest) absl::SleepFor(absl::Milliseconds(1));
    --function->running_;
  }

  std::atomic<bool> release_{false};
  std::atomic<int> running_{0};
};

TEST_F(HighThroughputTest, TotalsBehindWorkThatDoesNotEnd) {
  for (const std::vector<int>& stuck_ranks : {std::vector{0}, {0, 1}}) {
    EpConfig config = Config(4, 2, 64, 4);
    config.high_throughput.host_totals = true;
    MakeNode(2, absl::Milliseconds(100));
    if (HasFatalFailure() || IsSkipped()) return;
    absl::StatusOr<std::unique_ptr<ExpertParallel>> ep = ExpertParallel::Create(*node_, config);
    ASSERT_OK(ep.status());
    StuckFunction function;
    const absl::Status status = node_->Run([&](Rank& rank) -> absl::Status {
      for (const int stuck : stuck_ranks) {
        if (stuck == rank.rank()) OCTET_RETURN_IF_ERROR(function.Enqueue(rank.stream()));
      }
      return (*ep)->Dispatch(rank, {}).status();
    });
    EXPECT_GT(function.running(), 0) << "Run has waited for it";
    EXPECT_THAT(
        status,
        StatusIs(absl::StatusCode::kDeadlineExceeded,
                 stuck_ranks.size() == 1
                     ? MatchesRegex("rank 1: dispatch-[^\n]* for rank 0's [^\n]*\nall ranks:"
                                    "\n  rank 0: no wait; its stream is still busy with "
                                    "other work [^\n]*(\n[^\n]*)*")
                     : MatchesRegex("rank [01]: waited [^\n]* for the totals of its dispatch; "
                                    "its stream is still busy(\n[^\n]*)*")));
    EXPECT_TRUE(node_->stuck());
    ep->reset();
    node_.reset();
    EXPECT_GT(function.running(), 0) << "a destructor has waited for it";
  }
}

TEST_F(HighThroughputTest, WrongArgumentsAreRefusedBeforeALaunch) {
  EpConfig config = Config(4, 2, 64, 4);
  config.dispatch_format = DispatchFormat::kFp8;
  config.output = Output::kDeduplicated;
  MAKE_OR_SKIP(2, config);
  const StepInput step = RandomStepOf({4, 3});
  RunStep(step);
  const auto refused = [](const absl::Status& status, const std::string& words) {
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr(words));
  };
  EXPECT_OK(harness_->node().Run([&](Rank& rank) -> absl::Status {
    DispatchArgs wrong = args(rank);
    wrong.high_throughput.x_scales = nullptr;
    refused(ep().Dispatch(rank, wrong).status(), "x_scales is null");
    wrong = args(rank);
    wrong.high_throughput.cached = &received(rank).handle;
    wrong.num_tokens = 2;
    refused(ep().Dispatch(rank, wrong).status(),
            "num_tokens is 2; the layout in `cached` is of " + std::to_string(4 - rank.rank()));
    refused(ScaledCombine(ep(), rank, received(rank).handle,
                          buffers(rank).fused_combine_args(received(rank))),
            "expert_scale must be null");
    return absl::OkStatus();
  }));
  EXPECT_OK(harness_->Combine(step, harness_->Handles()));
  RunStep(step);
}

TEST_F(HighThroughputTest, ScatterIndexOutOfRangeIsRefused) {
  MAKE_OR_SKIP(2, Config(2, 1, 64, 4));
  StepInput step = RandomStepOf({4, 4}, 0, true);
  for (StepInput::PerRank& rank : step.ranks) rank.topk_idx = {0, 0, 1, 1};
  step.ranks[0].scatter_idx = {0, 1, 0, 1};
  for (const int bad : {2, -1, 1 << 30}) {
    step.ranks[1].scatter_idx = {0, bad, 0, 1};
    EXPECT_OK(harness_->Upload(step));
    const absl::Status status =
        harness_->node().Run([&](Rank& rank) { return ep().Dispatch(rank, args(rank)).status(); });
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
    EXPECT_THAT(std::string(status.message()),
                HasSubstr(absl::StrCat("rank 1: scatter_idx of token 1, k 0 is ", bad,
                                       "; it must be from 0 to 1")));
  }
  step.ranks[1].scatter_idx = {1, 0, 0, 1};
  RunStep(step);
}

// Leftovers that name an expert that exists and rows that do not: the experts' kernel behind a
// dispatch whose rows do not come must not look at them.
TEST_F(HighThroughputTest, NothingRunsOnWhatARefusedPeerDidNotSend) {
  for (const bool index : {true, false}) {
    SCOPED_TRACE(index ? "index" : "deduplicated");
    EpConfig config = Config(6, 3, 64, 6);
    config.high_throughput.duplicates = index ? Duplicates::kIndex : Duplicates::kFill;
    config.output = index ? Output::kPackedExperts : Output::kDeduplicated;
    MAKE_OR_SKIP(3, config);
    RunStep(RandomStepOf({6, 6, 6}));
    StepInput step = RandomStepOf({6, 6, 6}, 0, /*scatter=*/true);
    for (StepInput::PerRank& rank : step.ranks) {
      for (size_t i = 0; i < rank.topk_idx.size(); ++i) {
        rank.topk_idx[i] = 2 * static_cast<int32_t>(i % 3);  // one expert of each rank
      }
    }
    for (size_t r = 0; r < 3; ++r) {
      for (size_t i = 0; i < step.ranks[r].scatter_idx.size(); ++i) {
        step.ranks[r].scatter_idx[i] = static_cast<int32_t>(i / 3);
      }
    }
    step.ranks[1].scatter_idx[3 * 3 + 2] = 6;  // of token 3, for rank 2
    ASSERT_OK(harness_->Upload(step));
    EXPECT_THAT(harness_->node().Run([&](Rank& rank) -> absl::Status {
      const Received& before = received(rank);
      const size_t rows = index ? static_cast<size_t>(before.max_rows) : 3 * 6;
      OCTET_RETURN_IF_GPU_ERROR(hipMemsetAsync(const_cast<RowSource*>(before.sources), 0,
                                               rows * sizeof(RowSource), rank.stream()));
      if (index) {
        OCTET_RETURN_IF_GPU_ERROR(
            hipMemsetAsync(const_cast<int32_t*>(before.high_throughput.row_index), 0x7e,
                           rows * sizeof(int32_t), rank.stream()));
      }
      OCTET_ASSIGN_OR_RETURN(received(rank), ep().Dispatch(rank, args(rank)));
      return PointwiseExpert(rank, ep().config(), received(rank),
                             buffers(rank).expert_scale.as<float>(),
                             buffers(rank).expert_out.as<void>());
    }),
                StatusIs(absl::StatusCode::kInvalidArgument,
                         HasSubstr("rank 1: scatter_idx of token 3, k 2 is 6")));
    EXPECT_THAT(*ToHost<int32_t>(harness_->received(2).expert_offsets, 3), Each(0));
    RunStep(RandomStepOf({6, 6, 6}));
  }
}

// Whatever a kernel of the caller indexes with is in range before anything has been received.
TEST_F(HighThroughputTest, WhatIsIndexedWithNamesNoRowAtFirst) {
  for (const bool deduplicated : {false, true}) {
    EpConfig config = Config(4, 2, 64, 4);
    config.output = deduplicated ? Output::kDeduplicated : Output::kPackedExperts;
    config.high_throughput.duplicates = deduplicated ? Duplicates::kFill : Duplicates::kIndex;
    MAKE_OR_SKIP(2, config);
    const StepInput nothing = RandomStepOf({0, 0});
    ASSERT_OK(harness_->Upload(nothing));
    ASSERT_OK(harness_->node().Run([&](Rank& rank) -> absl::Status {
      OCTET_ASSIGN_OR_RETURN(received(rank), ep().Dispatch(rank, args(rank)));
      return absl::OkStatus();
    }));
    const Received& received = harness_->received(0);
    const auto rows = static_cast<size_t>(deduplicated ? 2 * 4 : received.max_rows);
    EXPECT_THAT(*ToHost<int32_t>(received.sources, 4 * rows), Each(-1));
    if (deduplicated) {
      EXPECT_THAT(*ToHost<int32_t>(received.high_throughput.recv_topk_idx, 2 * rows), Each(-1));
    } else {
      EXPECT_THAT(*ToHost<int32_t>(received.high_throughput.row_index, rows), Each(-1));
    }
  }
}

}  // namespace
}  // namespace octet
