// Handles of high_throughput: layouts that are used again, and several calls on their way.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <hip/hip_runtime.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "octet/expert_parallel.h"
#include "runtime/base/status_macros.h"
#include "runtime/gpu/gpu_status.h"
#include "runtime/memory/device_memory.h"
#include "tests/kernels/high_throughput/high_throughput_fixture.h"
#include "tests/support/host_copy.h"

namespace octet {
namespace {

using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::Each;
using ::testing::HasSubstr;

TEST_F(HighThroughputTest, CachedLayoutAfterADifferentRouting) {
  for (const Duplicates duplicates : {Duplicates::kFill, Duplicates::kIndex}) {
    EpConfig config = Config(12, 4, 72, 9);
    config.high_throughput.kept_layouts = 2;
    config.high_throughput.expert_alignment = 4;
    config.high_throughput.duplicates = duplicates;
    MAKE_OR_SKIP(3, config);
    const StepInput first = RandomStepOf({9, 4, 7}, 0.2);
    RunStep(first);
    const std::vector<DispatchHandle> handles = harness_->Handles();
    RunStep(RandomStepOf({1, 9, 8}));
    // The same routing with other rows, as in a next layer or a backward pass.
    StepInput again = RandomStepOf({9, 4, 7});
    for (size_t r = 0; r < again.ranks.size(); ++r) {
      again.ranks[r].topk_idx = first.ranks[r].topk_idx;
    }
    EXPECT_OK(harness_->Dispatch(again, handles));
    EXPECT_OK(harness_->CheckReceived(again));
    EXPECT_OK(harness_->Combine(again, harness_->Handles()));
  }
}

// The backward pass of combine is a dispatch without weights, that of dispatch a combine.
TEST_F(HighThroughputTest, BothBackwardPassesSkipTheLayout) {
  MAKE_OR_SKIP(3, Config(12, 4, 72, 9));
  const StepInput forward = RandomStepOf({9, 4, 7}, 0.2);
  RunStep(forward);
  StepInput gradients = RandomStepOf({9, 4, 7});
  for (size_t r = 0; r < gradients.ranks.size(); ++r) {
    gradients.ranks[r].topk_idx = forward.ranks[r].topk_idx;
    gradients.ranks[r].topk_weights.clear();
  }
  EXPECT_OK(harness_->Dispatch(gradients, harness_->Handles()));
  EXPECT_OK(harness_->CheckReceived(gradients));
  EXPECT_OK(harness_->Combine(gradients, harness_->Handles()));
  EXPECT_OK(harness_->Combine(gradients, harness_->Handles()));
}

TEST_F(HighThroughputTest, HandleOfALayoutThatIsGoneIsRefused) {
  EpConfig config = Config(4, 2, 64, 4);
  config.high_throughput.kept_layouts = 2;
  MAKE_OR_SKIP(2, config);
  const StepInput step = RandomStepOf({4, 4});
  RunStep(step);
  const std::vector<DispatchHandle> handles = harness_->Handles();
  RunStep(step);
  EXPECT_OK(harness_->Combine(step, handles));
  RunStep(step);
  const absl::Status status = harness_->Combine(step, handles);
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition) << status;
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("only the last kept_layouts, 2, can be used"));
  EXPECT_EQ(harness_->Dispatch(step, handles).code(), absl::StatusCode::kFailedPrecondition);
  RunStep(step);
}

TEST_F(HighThroughputTest, HandleFromBeforeAFailureIsRefused) {
  EpConfig config = Config(4, 2, 64, 4);
  config.high_throughput.kept_layouts = 4;
  MAKE_OR_SKIP(2, config);
  const StepInput step = RandomStepOf({4, 4});
  RunStep(step);
  const std::vector<DispatchHandle> handles = harness_->Handles();
  EXPECT_FALSE(harness_->node()
                   .Run([](Rank& rank) {
                     return rank.rank() == 0 ? absl::UnknownError("no") : absl::OkStatus();
                   })
                   .ok());
  for (const absl::Status& status :
       {harness_->Combine(step, handles), harness_->Dispatch(step, handles)}) {
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr("it is void"));
  }
  RunStep(step);
}

// An earlier delivery in the same places is not delivered again.
TEST_F(HighThroughputTest, ALayoutThatIsUsedAgainDeliversNothingWithoutItsPeers) {
  MAKE_OR_SKIP(2, Config(4, 2, 64, 4), absl::Milliseconds(500));
  const StepInput step = RandomStepOf({4, 4});
  RunStep(step);
  const std::vector<DispatchHandle> handles = harness_->Handles();
  Received alone;
  EXPECT_THAT(harness_->node().Run([&](Rank& rank) -> absl::Status {
    if (rank.rank() == 1) return rank.Barrier();
    DispatchArgs mine = args(rank);
    mine.high_throughput.cached = handles.data();
    OCTET_ASSIGN_OR_RETURN(alone, ep().Dispatch(rank, mine));
    return absl::OkStatus();
  }),
              StatusIs(absl::StatusCode::kDeadlineExceeded,
                       AllOf(HasSubstr("rank 0: dispatch-send waited"),
                             HasSubstr("for rank 1's dispatch credit 0: expected epoch 2, seen 1"),
                             HasSubstr("\ndispatch credits: epoch seen from each rank, * behind\n"
                                       "          expected  0   1\n"
                                       "  rank 0         2  2   1*"))));
  EXPECT_THAT(*ToHost<int32_t>(alone.expert_counts, 2), Each(0));
  EXPECT_THAT(*ToHost<int32_t>(alone.expert_offsets, 3), Each(0));
  EXPECT_THAT(*ToHost<int32_t>(alone.high_throughput.source_offsets, 3), Each(0));
  RunStep(step);
}

TEST_F(HighThroughputTest, CachedHandlesOfOtherLayoutsAreNamed) {
  EpConfig config = Config(4, 2, 64, 4);
  config.high_throughput.kept_layouts = 2;
  MAKE_OR_SKIP(2, config, absl::Seconds(2));
  // The same routing twice: all counts coincide.
  const StepInput step = RandomStepOf({4, 4});
  uint64_t failures = 0;
  for (const bool fresh : {false, true}) {
    SCOPED_TRACE(fresh ? "a layout of its own" : "another layout");
    ASSERT_OK(harness_->Dispatch(step));
    const std::vector<DispatchHandle> first = harness_->Handles();
    ASSERT_OK(harness_->Dispatch(step));
    const std::vector<DispatchHandle> second = harness_->Handles();
    const absl::Status status = harness_->node().Run([&](Rank& rank) -> absl::Status {
      DispatchArgs mine = args(rank);
      if (rank.rank() == 0) mine.high_throughput.cached = first.data();
      if (rank.rank() == 1 && !fresh) mine.high_throughput.cached = &second[1];
      return ep().Dispatch(rank, mine).status();
    });
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
    // Whichever rank has noticed it first.
    const std::string theirs = fresh ? "3" : "2";
    EXPECT_THAT(
        std::string(status.message()),
        AnyOf(HasSubstr(absl::StrCat("rank 0: `cached` is of layout 1, while rank 1 dispatches "
                                     "with layout ",
                                     theirs, "; all ranks must give the handle of the same")),
              HasSubstr(absl::StrCat("rank 1: `cached` is of layout ", theirs,
                                     ", while rank 0 dispatches with layout 1; all ranks"))))
        << "after " << failures++ << " failures";
    RunStep(step);
    ASSERT_OK(harness_->Dispatch(step, harness_->Handles()));
    EXPECT_OK(harness_->CheckReceived(step));
    // As many layouts on each rank as there were failures on it do not matter.
    EXPECT_FALSE(harness_->node()
                     .Run([&](Rank& rank) -> absl::Status {
                       if (rank.rank() == 0) return absl::UnknownError("no");
                       return ep().Dispatch(rank, args(rank)).status();
                     })
                     .ok());
  }
}

// What has been sent is received with its own handle, not with that of another layout.
TEST_F(HighThroughputTest, HalvesOfOtherCallsAreRefused) {
  EpConfig config = Config(8, 2, 64, 6);
  config.high_throughput.kept_layouts = 2;
  MAKE_OR_SKIP(2, config);
  const StepInput first = RandomStepOf({6, 6});
  ASSERT_OK(harness_->Dispatch(first));
  const std::vector<DispatchHandle> before = harness_->Handles();
  const StepInput second = RandomStepOf({5, 3});
  ASSERT_OK(harness_->Upload(second));
  ASSERT_OK(harness_->RunExperts(second));
  EXPECT_OK(harness_->node().Run([&](Rank& rank) -> absl::Status {
    const auto r = static_cast<size_t>(rank.rank());
    const auto refused = [](const absl::Status& status) {
      EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition) << status;
      EXPECT_THAT(std::string(status.message()), HasSubstr("is to be received first"));
    };
    OCTET_ASSIGN_OR_RETURN(const DispatchHandle sent, ep().DispatchSend(rank, args(rank)));
    refused(ep().DispatchReceive(rank, before[r]).status());
    OCTET_RETURN_IF_ERROR(ep().DispatchReceive(rank, sent).status());
    const CombineArgs combine = buffers(rank).combine_args();
    OCTET_RETURN_IF_ERROR(ep().CombineSend(rank, sent, combine));
    refused(ep().CombineReceive(rank, before[r], combine));
    return ep().CombineReceive(rank, sent, combine);
  }));
  EXPECT_OK(harness_->CheckY(second));
}

TEST_F(HighThroughputTest, AlternatingSizesAndSeveralCallsInFlight) {
  MAKE_OR_SKIP(5, Config(15, 6, 72, 33));
  for (const int tokens : {33, 0, 1, 33, 7}) RunStep(RandomStepOf(std::vector<int>(5, tokens)));
  const StepInput step = RandomStepOf({33, 2, 17, 0, 5});
  ASSERT_OK(harness_->Upload(step));
  ASSERT_OK(harness_->RunExperts(step));
  // Of each combine.
  std::vector<std::vector<DeviceMemory>> ys(5);
  ASSERT_OK(harness_->node().Run([&](Rank& rank) -> absl::Status {
    const auto r = static_cast<size_t>(rank.rank());
    for (int i = 0; i < 12; ++i) {
      OCTET_ASSIGN_OR_RETURN(DeviceMemory y, DeviceMemory::Allocate(buffers(rank).y.bytes()));
      OCTET_RETURN_IF_GPU_ERROR(hipMemset(y.as<void>(), 0xff, y.bytes()));
      ys[r].push_back(std::move(y));
    }
    return absl::OkStatus();
  }));
  ASSERT_OK(harness_->node().Run([&](Rank& rank) -> absl::Status {
    const auto r = static_cast<size_t>(rank.rank());
    size_t combines = 0;
    for (int call = 0; call < 12; ++call) {
      DispatchArgs mine = args(rank);
      const DispatchHandle last = received(rank).handle;
      if (call % 3 == 1) mine.high_throughput.cached = &last;
      OCTET_ASSIGN_OR_RETURN(received(rank), ep().Dispatch(rank, mine));
      for (int combine = 0; combine < call % 3; ++combine) {
        OCTET_RETURN_IF_ERROR(ep().Combine(rank, received(rank).handle,
                                           {.expert_out = buffers(rank).expert_out.as<void>(),
                                            .y = ys[r][combines++].as<void>()}));
      }
    }
    return absl::OkStatus();
  }));
  EXPECT_OK(harness_->node().Run([&](Rank& rank) -> absl::Status {
    for (const DeviceMemory& y : ys[static_cast<size_t>(rank.rank())]) {
      OCTET_RETURN_IF_ERROR(harness_->CheckY(rank, step, y.as<void>()));
    }
    return absl::OkStatus();
  }));
  RunStep(step);
}

}  // namespace
}  // namespace octet
