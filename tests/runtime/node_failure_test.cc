// Failures of bodies and of kernels: what Node::Run returns, and that the node recovers.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <hip/hip_runtime.h>

#include <atomic>
#include <cstdint>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "octet/node.h"
#include "octet/node_failure.h"
#include "runtime/base/status_macros.h"
#include "runtime/gpu/gpu_status.h"
#include "runtime/memory/device_memory.h"
#include "runtime/node/node_client.h"
#include "tests/runtime/node_run_fixture.h"
#include "tests/support/node/node_fixture.h"
#include "tests/support/node/node_kernels.h"

namespace octet {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::MatchesRegex;
using ::testing::StartsWith;

// ---- failures of bodies

TEST_F(NodeRunTest, AFailedBodyReleasesBarriers) {
  Make();
  if (IsSkipped()) return;
  std::vector<absl::Status> seen(kRanks);
  const absl::Time start = absl::Now();
  EXPECT_THAT(node_->Run([&](Rank& rank) -> absl::Status {
    if (rank.rank() == 2) {
      absl::SleepFor(absl::Milliseconds(20));
      return absl::NotFoundError("no such file");
    }
    return seen[rank.rank()] = rank.Barrier();
  }),
              StatusIs(absl::StatusCode::kNotFound, "rank 2: no such file"));
  EXPECT_LT(absl::Now() - start, absl::Seconds(5));
  for (const int rank : {0, 1, 3}) {
    EXPECT_THAT(seen[rank],
                StatusIs(absl::StatusCode::kCancelled, HasSubstr("rank 2: no such file")));
  }
  EXPECT_EQ(ring_->recoveries(), kRanks);
  EXPECT_OK(GoodRun());
}

TEST_F(NodeRunTest, AFailedBodyReleasesWaitsOnTheGpu) {
  Make(absl::Seconds(60));
  if (IsSkipped()) return;
  std::vector<absl::Status> seen(kRanks);
  const absl::Time start = absl::Now();
  EXPECT_THAT(node_->Run([&](Rank& rank) -> absl::Status {
    OCTET_RETURN_IF_ERROR(rank.Barrier());
    if (rank.rank() == 1) {
      absl::SleepFor(absl::Milliseconds(50));
      return absl::DataLossError("out of tokens");
    }
    OCTET_RETURN_IF_ERROR(ring_->Enqueue(rank, 1));
    if (rank.rank() == 3) return absl::OkStatus();  // waits only in Run's end
    return seen[rank.rank()] = rank.Synchronize();
  }),
              StatusIs(absl::StatusCode::kDataLoss, "rank 1: out of tokens"));
  EXPECT_LT(absl::Now() - start, absl::Seconds(20));
  EXPECT_THAT(seen[2], StatusIs(absl::StatusCode::kCancelled, HasSubstr("released")));
  EXPECT_OK(GoodRun());
}

TEST_F(NodeRunTest, ACallThatFailsIsNamedWithItsRank) {
  Make();
  if (IsSkipped()) return;
  EXPECT_THAT(
      node_->Run([&](Rank& rank) -> absl::Status {
        OCTET_RETURN_IF_ERROR(rank.Barrier());
        if (rank.rank() == 3) OCTET_RETURN_IF_GPU_ERROR(hipSetDevice(9999));
        return rank.Barrier();
      }),
      StatusIs(absl::StatusCode::kInvalidArgument,
               AllOf(StartsWith("rank 3: hipSetDevice(9999): "),
                     HasSubstr(absl::StrCat("(device ", node_->topology().gpus[3].device, ")")))));
  EXPECT_OK(GoodRun());
}

TEST_F(NodeRunTest, WhatAllRanksSayIsSaidByTheFirst) {
  Make();
  if (IsSkipped()) return;
  for (int i = 0; i < 10; ++i) {
    EXPECT_THAT(node_->Run([](Rank&) { return absl::InvalidArgumentError("bad hidden size"); }),
                StatusIs(absl::StatusCode::kInvalidArgument, "rank 0: bad hidden size"));
  }
}

TEST_F(NodeRunTest, ARankThatLeavesEarlyIsNamed) {
  Make();
  if (IsSkipped()) return;
  const absl::Time start = absl::Now();
  EXPECT_THAT(node_->Run([](Rank& rank) -> absl::Status {
    OCTET_RETURN_IF_ERROR(rank.Barrier());
    return rank.rank() == 1 ? absl::OkStatus() : rank.Barrier();
  }),
              StatusIs(absl::StatusCode::kAborted,
                       MatchesRegex("rank [023]: host barrier: rank 1 has left Run")));
  EXPECT_LT(absl::Now() - start, absl::Seconds(5));
  EXPECT_OK(GoodRun());
}

TEST_F(NodeRunTest, ARankThatIsLateForABarrierIsNamed) {
  Make(absl::Milliseconds(100));
  if (IsSkipped()) return;
  // The late one waits for the others to give up, which on a busy machine takes its time.
  std::atomic<int> gave_up{0};
  const absl::Time latest = absl::Now() + absl::Seconds(60);
  EXPECT_THAT(node_->Run([&](Rank& rank) -> absl::Status {
    while (rank.rank() == 2 && gave_up < kRanks - 1 && absl::Now() < latest) {
      absl::SleepFor(absl::Milliseconds(1));
    }
    const absl::Status status = rank.Barrier();
    ++gave_up;
    return status;
  }),
              StatusIs(absl::StatusCode::kDeadlineExceeded,
                       MatchesRegex("rank [013]: host barrier waited .* ms for rank 2")));
  EXPECT_OK(node_->Run([](Rank& rank) { return rank.Barrier(); }));
}

// ---- failures of kernels

TEST_F(NodeRunTest, AnExpiredWaitSaysWhoWaitedForWhat) {
  Make(absl::Milliseconds(300));
  if (IsSkipped()) return;
  std::vector<absl::Status> seen(kRanks);
  const absl::Status status = node_->Run([&](Rank& rank) -> absl::Status {
    OCTET_RETURN_IF_ERROR(
        rank.CoordinatedLaunch([&] { return ring_->Enqueue(rank, 3, rank.rank() != 1); }));
    return seen[rank.rank()] = rank.Synchronize();
  });
  // Of the ring only rank 2 waits for somebody who has not sent.
  EXPECT_THAT(status, StatusIs(absl::StatusCode::kDeadlineExceeded,
                               MatchesRegex("rank 2: ring site 7 waited [0-9.]+ m?s for rank 1's "
                                            "token flag 101: expected epoch 3, seen 0\n"
                                            "all ranks:\n"
                                            "  rank 0: no wait\n"
                                            "  rank 1: (no wait|ring site 7 [^\n]*)\n"
                                            "  rank 2: ring site 7 [^\n]*\n"
                                            "  rank 3: (no wait|ring site 7 [^\n]*)")));
  EXPECT_THAT(std::string(status.message()), StartsWith(std::string(seen[2].message()) + "\n"));
  EXPECT_EQ(ring_->recoveries(), kRanks);
  EXPECT_OK(GoodRun());
}

TEST_F(NodeRunTest, AnExpiredWaitIsReportedByABodyThatDoesNotSynchronize) {
  Make(absl::Milliseconds(200));
  if (IsSkipped()) return;
  EXPECT_THAT(node_->Run([&](Rank& rank) { return ring_->Enqueue(rank, 1, rank.rank() != 0); }),
              StatusIs(absl::StatusCode::kDeadlineExceeded, StartsWith("rank 1: ring site 7")));
  EXPECT_OK(GoodRun());
}

TEST_F(NodeRunTest, TheStatusOfARunCarriesTheFailure) {
  Make(absl::Milliseconds(200));
  if (IsSkipped()) return;
  const auto expire = [&](Rank& rank) -> absl::Status {
    OCTET_RETURN_IF_ERROR(ring_->Enqueue(rank, 1, rank.rank() != 0));
    return rank.Synchronize();  // the other ranks return rank 1's failure as well
  };
  const NodeFailure wait = FailureOf(node_->Run(expire)).value_or(NodeFailure{});
  EXPECT_EQ(wait.kind, NodeFailure::Kind::kWait);
  EXPECT_EQ(wait.rank, 1);
  EXPECT_EQ(wait.peer, 0);
  EXPECT_GE(wait.waited, absl::Milliseconds(200));

  const NodeFailure refusal =
      FailureOf(node_->Run([&](Rank& rank) {
        return rank.rank() == 3 ? ring_->EnqueueRefusal(rank, 4711) : absl::OkStatus();
      })).value_or(NodeFailure{});
  EXPECT_EQ(refusal.kind, NodeFailure::Kind::kInput);
  EXPECT_EQ(refusal.rank, 3);
  EXPECT_EQ(refusal.seen, 4711U);

  const NodeFailure late = FailureOf(node_->Run([](Rank& rank) {
                             return rank.rank() == 2 ? absl::OkStatus() : rank.Barrier("the step");
                           })).value_or(NodeFailure{});
  EXPECT_EQ(late.peer, 2);
  EXPECT_EQ(late.phase, "host barrier before the step");
  EXPECT_OK(GoodRun());
}

TEST_F(NodeRunTest, AnExpiredWaitIsNotHiddenByWhatTheBodyMakesOfIt) {
  Make(absl::Milliseconds(200));
  if (IsSkipped()) return;
  EXPECT_THAT(node_->Run([&](Rank& rank) -> absl::Status {
    OCTET_RETURN_IF_ERROR(
        rank.CoordinatedLaunch([&] { return ring_->Enqueue(rank, 1, rank.rank() != 0); }));
    return rank.Synchronize().ok() ? absl::OkStatus() : absl::UnknownError("layer 7 failed");
  }),
              StatusIs(absl::StatusCode::kDeadlineExceeded, StartsWith("rank 1: ring site 7")));
  EXPECT_OK(GoodRun());
}

TEST_F(NodeRunTest, RefusedInputReleasesTheOthers) {
  Make(absl::Seconds(60));
  if (IsSkipped()) return;
  const absl::Time start = absl::Now();
  EXPECT_THAT(
      node_->Run([&](Rank& rank) -> absl::Status {
        OCTET_RETURN_IF_ERROR(rank.Barrier());
        if (rank.rank() == 0) return ring_->EnqueueRefusal(rank, 4711);
        return ring_->Enqueue(rank, 1);
      }),
      StatusIs(absl::StatusCode::kInvalidArgument, "rank 0: site 8 refused token 3: value 4711"));
  EXPECT_LT(absl::Now() - start, absl::Seconds(20));
  EXPECT_OK(GoodRun());
}

TEST_F(NodeRunTest, RefusedInputComesBeforeAnExpiredWait) {
  Make(absl::Milliseconds(100));
  if (IsSkipped()) return;
  EXPECT_THAT(node_->Run([&](Rank& rank) -> absl::Status {
    if (rank.rank() != 3) return ring_->Enqueue(rank, 1);
    absl::SleepFor(absl::Milliseconds(500));
    return ring_->EnqueueRefusal(rank, 1);
  }),
              StatusIs(absl::StatusCode::kInvalidArgument, StartsWith("rank 3: ")));
  EXPECT_OK(GoodRun());
}

TEST_F(NodeRunTest, AKernelOfNobodyIsStillReported) {
  Make(absl::Milliseconds(100), 1);
  if (IsSkipped()) return;
  DeviceMemory flag;
  EXPECT_THAT(node_->Run([&](Rank& rank) -> absl::Status {
    OCTET_ASSIGN_OR_RETURN(flag, DeviceMemory::Allocate(2 * sizeof(uint64_t)));
    OCTET_RETURN_IF_GPU_ERROR(hipMemsetAsync(flag.as<void>(), 0, flag.bytes(), rank.stream()));
    return OCTET_GPU(LaunchExchange({.port = NodeClient::PortOf(rank, 999),
                                     .site = {5, -1, 2},
                                     .to = nullptr,
                                     .flag = flag.as<uint64_t>(),
                                     .epoch = 1,
                                     .passed = flag.as<uint64_t>() + 1},
                                    rank.stream()));
  }),
              StatusIs(absl::StatusCode::kDeadlineExceeded,
                       StartsWith("rank 0: site 5 of client 999 waited ")));
}

// Every cause in turn, each followed by a Run that works.
TEST_F(NodeRunTest, RecoversFiftyTimes) {
  Make(absl::Milliseconds(100));
  if (IsSkipped()) return;
  for (int i = 0; i < 50; ++i) {
    const int culprit = i % kRanks;
    const absl::Status status = node_->Run([&](Rank& rank) -> absl::Status {
      const bool fails = rank.rank() == culprit;
      OCTET_RETURN_IF_ERROR(rank.Barrier());
      switch (i % 4) {
        case 0:
          if (fails) return absl::InternalError("own error");
          OCTET_RETURN_IF_ERROR(ring_->Enqueue(rank, 2));
          return rank.Synchronize();
        case 1:
          OCTET_RETURN_IF_ERROR(ring_->Enqueue(rank, 2, !fails));
          return rank.Synchronize();
        case 2:
          return fails ? ring_->EnqueueRefusal(rank, i) : ring_->Enqueue(rank, 2);
        default:
          return fails ? absl::OkStatus() : rank.Barrier();
      }
    });
    constexpr absl::StatusCode kExpected[] = {
        absl::StatusCode::kInternal, absl::StatusCode::kDeadlineExceeded,
        absl::StatusCode::kInvalidArgument, absl::StatusCode::kAborted};
    ASSERT_EQ(status.code(), kExpected[i % 4]) << i << ": " << status;
    ASSERT_EQ(ring_->recoveries(), kRanks * (i + 1));
    ASSERT_OK(GoodRun()) << i;
  }
}

// ---- failures from outside

TEST_F(NodeRunTest, ReleaseEndsAllWaits) {
  Make(absl::Seconds(60));
  if (IsSkipped()) return;
  const absl::Status why = absl::CancelledError("released, since node 1 has failed");
  NodeClient::Release(*node_, why);  // no Run: nothing happens
  EXPECT_OK(GoodRun());
  std::atomic<bool> waiting = false;
  std::thread outside([&] {
    while (!waiting) absl::SleepFor(absl::Milliseconds(1));
    NodeClient::Release(*node_, why);
    NodeClient::Release(*node_, absl::InternalError("only the first counts"));
  });
  const absl::Time start = absl::Now();
  EXPECT_EQ(node_->Run([&](Rank& rank) -> absl::Status {
    OCTET_RETURN_IF_ERROR(ring_->Enqueue(rank, 2, /*send=*/false));
    waiting = true;
    return rank.rank() == 0 ? rank.Barrier() : rank.Synchronize();
  }),
            why);
  EXPECT_LT(absl::Now() - start, absl::Seconds(20));
  outside.join();
  EXPECT_THAT(Noted(), ::testing::ElementsAre(why));
  EXPECT_OK(GoodRun());
}

TEST_F(NodeRunTest, AFailureOfARanksOwnComesBeforeARelease) {
  Make(absl::Seconds(60));
  if (IsSkipped()) return;
  EXPECT_THAT(node_->Run([&](Rank& rank) -> absl::Status {
    if (rank.rank() != 1) return rank.Barrier();
    NodeClient::Release(*node_, absl::CancelledError("released"));
    return absl::DataLossError("my own");
  }),
              StatusIs(absl::StatusCode::kDataLoss, "rank 1: my own"));
  EXPECT_OK(GoodRun());
}

// A Release at any time leaves a node that works.
TEST_F(NodeRunTest, ReleaseMayComeAtAnyTime) {
  Make(absl::Seconds(60));
  if (IsSkipped()) return;
  std::atomic<bool> stop = false;
  std::thread outside([&] {
    for (int i = 0; !stop; ++i) {
      absl::SleepFor(absl::Microseconds(i * 37 % 2000));
      NodeClient::Release(*node_, absl::CancelledError("at any time"));
    }
  });
  int released = 0;
  uint64_t epoch = 0;
  for (int run = 0; run < 200; ++run) {
    const absl::Status status = GoodRun(++epoch);
    if (status.ok()) continue;
    ++released;
    epoch = 0;
    ASSERT_THAT(status, StatusIs(absl::StatusCode::kCancelled, "at any time")) << run;
  }
  stop = true;
  outside.join();
  EXPECT_GT(released, 0);
  EXPECT_OK(GoodRun(++epoch));
}

TEST_F(NodeRunTest, AFailedRecoveryIsRemembered) {
  Make();
  if (IsSkipped()) return;
  ring_->set_recover_status(absl::ResourceExhaustedError("no way back"));
  EXPECT_THAT(node_->Run([](Rank&) { return absl::InternalError("first"); }),
              StatusIs(absl::StatusCode::kInternal, "rank 0: first"));
  EXPECT_THAT(node_->Run([](Rank&) { return absl::OkStatus(); }),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       AllOf(HasSubstr("rank 0: first"), HasSubstr("rank 0: no way back"))));
}

TEST_F(NodeRunTest, SynchronizeGivesUpOnAKernelThatDoesNotEnd) {
  Make(absl::Milliseconds(10), 2);
  if (IsSkipped()) return;
  EXPECT_THAT(node_->Run([&](Rank& rank) -> absl::Status {
    if (rank.rank() == 0) return absl::OkStatus();
    uint32_t* word = nullptr;
    OCTET_RETURN_IF_GPU_ERROR(hipHostMalloc(reinterpret_cast<void**>(&word), sizeof(*word),
                                            hipHostMallocPortable | hipHostMallocMapped));
    *word = 0;
    OCTET_RETURN_IF_GPU_ERROR(LaunchStubborn(word, rank.stream()));
    absl::Status status = rank.Synchronize();
    std::atomic_ref<uint32_t>(*word).store(1);
    (void)rank.Synchronize();
    OCTET_RETURN_IF_GPU_ERROR(hipHostFree(word));
    return status;
  }),
              StatusIs(absl::StatusCode::kDeadlineExceeded,
                       MatchesRegex("rank 1: the stream is not idle after 5\\.[0-9] s")));
  EXPECT_OK(node_->Run([](Rank& rank) { return rank.Barrier(); }));
}

}  // namespace
}  // namespace octet
