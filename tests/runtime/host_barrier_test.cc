#include "runtime/node/host_barrier.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "tests/support/node/node_fixture.h"

namespace octet {
namespace {

using ::testing::HasSubstr;
using ::testing::MatchesRegex;

constexpr absl::Duration kLong = absl::Seconds(60);

// Calls body(rank) on a thread for each of the ranks and returns what they returned.
std::vector<absl::Status> OnThreads(const std::vector<int>& ranks,
                                    const std::function<absl::Status(int)>& body) {
  std::vector<absl::Status> statuses(ranks.size());
  std::vector<std::thread> threads;
  for (size_t i = 0; i < ranks.size(); ++i) {
    threads.emplace_back([&, i] { statuses[i] = body(ranks[i]); });
  }
  for (std::thread& thread : threads) thread.join();
  return statuses;
}

std::vector<int> Ranks(int n) {
  std::vector<int> ranks(n);
  for (int rank = 0; rank < n; ++rank) ranks[rank] = rank;
  return ranks;
}

class HostBarrierOf : public ::testing::TestWithParam<int> {};

// Nobody leaves a round before all have come to it, and what they did before is visible.
TEST_P(HostBarrierOf, KeepsRanksInStep) {
  const int n = GetParam();
  constexpr int kRounds = 300;
  HostBarrier barrier(n, kLong);
  std::vector<int> plain(n, 0);  // not atomic: the barrier alone orders these
  const auto statuses = OnThreads(Ranks(n), [&](int rank) -> absl::Status {
    for (int round = 1; round <= kRounds; ++round) {
      plain[rank] = round;
      if (absl::Status s = barrier.Arrive(rank); !s.ok()) return s;
      for (int peer = 0; peer < n; ++peer) {
        if (plain[peer] != round) return absl::DataLossError("a rank is out of step");
      }
      if (absl::Status s = barrier.Arrive(rank); !s.ok()) return s;
    }
    return absl::OkStatus();
  });
  for (const absl::Status& status : statuses) EXPECT_OK(status);
}

INSTANTIATE_TEST_SUITE_P(Sizes, HostBarrierOf, ::testing::Range(1, 17));

TEST(HostBarrier, AbortReleasesThoseWhoWaitAndThoseWhoCome) {
  HostBarrier barrier(4, kLong);
  const auto statuses = OnThreads(Ranks(4), [&](int rank) -> absl::Status {
    if (rank == 3) {
      absl::SleepFor(absl::Milliseconds(20));
      barrier.Abort(absl::DataLossError("first"));
      barrier.Abort(absl::InternalError("second"));
    }
    return barrier.Arrive(rank);
  });
  for (const absl::Status& status : statuses) {
    EXPECT_THAT(status, StatusIs(absl::StatusCode::kDataLoss, "first"));
  }
  EXPECT_THAT(barrier.Arrive(0), StatusIs(absl::StatusCode::kDataLoss, "first"));

  barrier.Reset();
  for (const absl::Status& status :
       OnThreads(Ranks(4), [&](int rank) { return barrier.Arrive(rank); })) {
    EXPECT_OK(status);
  }
}

TEST(HostBarrier, TimeoutNamesAllWhoAreMissing) {
  HostBarrier barrier(5, absl::Milliseconds(100));
  const absl::Time start = absl::Now();
  const auto statuses =
      OnThreads({0, 2, 4}, [&](int rank) { return barrier.Arrive(rank, "dispatch"); });
  EXPECT_GE(absl::Now() - start, absl::Milliseconds(100));
  for (const absl::Status& status : statuses) {
    EXPECT_THAT(status,
                StatusIs(absl::StatusCode::kDeadlineExceeded,
                         MatchesRegex("rank [024]: host barrier before dispatch waited .* ms "
                                      "for ranks 1, 3")));
  }
  // The late ones learn of it, too.
  EXPECT_THAT(barrier.Arrive(1),
              StatusIs(absl::StatusCode::kDeadlineExceeded, HasSubstr("ranks 1, 3")));
}

TEST(HostBarrier, TimeoutOfOneIsSingular) {
  HostBarrier barrier(2, absl::Milliseconds(10));
  EXPECT_THAT(barrier.Arrive(0),
              StatusIs(absl::StatusCode::kDeadlineExceeded,
                       MatchesRegex("rank 0: host barrier waited .* ms for rank 1")));
}

TEST(HostBarrier, ARankThatLeavesWhileOthersWaitIsNamed) {
  HostBarrier barrier(3, kLong);
  const auto statuses = OnThreads(Ranks(3), [&](int rank) -> absl::Status {
    if (rank != 1) return barrier.Arrive(rank);
    absl::SleepFor(absl::Milliseconds(20));
    barrier.Leave(1);
    return absl::OkStatus();
  });
  for (const int rank : {0, 2}) {
    EXPECT_THAT(statuses[rank],
                StatusIs(absl::StatusCode::kAborted,
                         MatchesRegex("rank [02]: host barrier: rank 1 has left Run")));
  }
}

TEST(HostBarrier, CallersThatDifferAreNamed) {
  HostBarrier barrier(3, kLong, [](uint32_t caller) { return absl::StrCat("layer ", caller); });
  for (int round = 0; round < 100; ++round) {
    const auto statuses = OnThreads(Ranks(3), [&](int rank) -> absl::Status {
      for (uint32_t caller = 1; caller < 20; ++caller) {
        const absl::Status status = barrier.Arrive(rank, "dispatch", caller);
        if (!status.ok()) return status;
      }
      return barrier.Arrive(rank, "combine", rank == 1 ? 8 : 7);
    });
    for (const absl::Status& status : statuses) {
      EXPECT_THAT(status,
                  StatusIs(absl::StatusCode::kFailedPrecondition,
                           MatchesRegex("rank ([02]: host barrier before combine of layer 7: rank "
                                        "1 has come to a call of layer 8|1: host barrier before "
                                        "combine of layer 8: rank [02] has come to a call of layer "
                                        "7); all ranks make the same calls in the same order")));
    }
    barrier.Reset();
  }
}

TEST(HostBarrier, NoCallerComesWithAnyCaller) {
  HostBarrier barrier(2, kLong);
  const auto statuses =
      OnThreads(Ranks(2), [&](int rank) { return barrier.Arrive(rank, "x", rank == 0 ? 0 : 5); });
  for (const absl::Status& status : statuses) EXPECT_OK(status);
}

// The first rank that is missing is not the one that has left.
TEST(HostBarrier, ALeaverBehindAnotherMissingRankIsNamed) {
  HostBarrier barrier(3, kLong);
  barrier.Leave(2);
  EXPECT_THAT(barrier.Arrive(0, "combine"),
              StatusIs(absl::StatusCode::kAborted,
                       "rank 0: host barrier before combine: rank 2 has left Run"));
}

// A rank that has arrived and leaves at once has still arrived, for the slowest as well.
TEST(HostBarrier, LeavingAfterARoundDoesNotTakeItBack) {
  HostBarrier barrier(3, kLong);
  for (int i = 0; i < 500; ++i) {
    const auto statuses = OnThreads(Ranks(3), [&](int rank) {
      const absl::Status status = barrier.Arrive(rank);
      barrier.Leave(rank);
      return status;
    });
    for (const absl::Status& status : statuses) ASSERT_OK(status);
    barrier.Reset();
  }
}

TEST(HostBarrier, ArrivingAfterLeavingIsAnError) {
  HostBarrier barrier(2, kLong);
  barrier.Leave(0);
  EXPECT_THAT(barrier.Arrive(0),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("rank 0")));
}

}  // namespace
}  // namespace octet
