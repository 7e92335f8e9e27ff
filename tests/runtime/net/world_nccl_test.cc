// A World whose rails are those of NCCL.
#include "octet/world.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <hip/hip_runtime.h>
#include <mpi.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "octet/enum_names.h"
#include "octet/graph.h"
#include "octet/node.h"
#include "runtime/base/status_macros.h"
#include "runtime/failure/failure.h"
#include "runtime/gpu/gpu_status.h"
#include "runtime/memory/device_memory.h"
#include "runtime/net/rails/nccl_rails.h"
#include "runtime/net/rails/rail.h"
#include "tests/runtime/net/world_fixture.h"
#include "tests/support/fake_nccl/fake_nccl.h"
#include "tests/support/host_copy.h"
#include "tests/support/node/node_fixture.h"

namespace octet {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::MatchesRegex;

// What the fake of NCCL does wrong.
class NcclTest : public WorldTest {
 protected:
  void SetUp() override {
    transport_ = RailTransport::kNccl;
    if (!LoadFakeNccl()) GTEST_SKIP() << "there is no fake of NCCL";
  }
  void TearDown() override { EndAfterGraphs(); }
  // One process has the fault.
  static void SetFaultsOfLast(const fake::NcclFaults& faults) {
    if (Index() == Last()) SetNcclFaults(faults);
  }
};

TEST_F(NcclTest, IsNotTakenUnasked) {
  transport_ = RailTransport::kAuto;
  MakeWorld(1, OptionsOf(absl::Seconds(20)));
  ASSERT_OK(world_.status());
  EXPECT_EQ(world().transport(), RailTransport::kMpi);
}

TEST_F(NcclTest, RefusesVersionsThatDiffer) {
  SetFaultsOfLast({.version = 21903});
  MakeWorld(2, OptionsOf(absl::Seconds(20)));
  if (IsSkipped()) return;
  EXPECT_THAT(world_.status(),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       absl::StrCat("the nodes differ in the version of NCCL: 2.28.9 on node 0, "
                                    "2.19.3 on node ",
                                    Last())));
  ExpectSameEverywhere(world_.status());
}

TEST_F(NcclTest, ACommunicatorThatDoesNotComeUpIsNamed) {
  for (const bool hangs : {false, true}) {
    WorldOptions options = OptionsOf(absl::Seconds(20));
    options.arrival_timeout = absl::Seconds(3);
    SetFaultsOfLast({.init_fails = !hangs, .init_hangs = hangs});
    MakeWorld(2, options);
    if (IsSkipped()) return;
    // Those that wait for the one may be the first to give up.
    EXPECT_THAT(world_.status(),
                StatusIs(absl::StatusCode::kUnavailable,
                         MatchesRegex("node [0-9]: rank 0: nccl: ncclCommInitRankConfig.*")));
    ExpectSameEverywhere(world_.status());
    SetNcclFaults({});
    Make(2);
    EXPECT_OK(GoodRun(1, 3));
    world_ = absl::UnknownError("the World has ended");
  }
}

// A kernel of the library does not end on one node, which cannot use its GPU any more.
TEST_F(NcclTest, AKernelThatOutlivesItsAbortIsLeftBehind) {
  WorldOptions options = OptionsOf(absl::Seconds(1));
  options.arrival_timeout = absl::Seconds(3);
  if (Index() == 0) SetNcclFaults({.never_ends = true});
  const absl::Time start = absl::Now();
  MakeWorld(2, options);
  if (IsSkipped()) return;
  EXPECT_THAT(
      world_.status(),
      StatusIs(absl::StatusCode::kUnavailable,
               MatchesRegex("node 0: rank 0: nccl: .*; a kernel of nccl has not ended either "
                            "5.0 s after ncclCommAbort: .*")));
  EXPECT_LT(absl::Now() - start, absl::Seconds(40));
  ExpectSameEverywhere(world_.status());
  SetNcclFaults({});
  Make(2);
  EXPECT_OK(GoodRun(1, 3));
}

// The library's call does not return on any node.
TEST_F(NcclTest, ACallThatDoesNotReturnIsLeftBehind) {
  WorldOptions options = OptionsOf(absl::Seconds(20));
  options.arrival_timeout = absl::Seconds(3);
  SetFaultsOfLast({.connect_hangs = true});
  const absl::Time start = absl::Now();
  MakeWorld(2, options);
  if (IsSkipped()) return;
  EXPECT_THAT(world_.status(),
              StatusIs(absl::StatusCode::kUnavailable,
                       MatchesRegex("node [0-9]: rank 0: nccl: ncclGroupEnd has not ended.*")));
  EXPECT_LT(absl::Now() - start, absl::Seconds(15));
  ExpectSameEverywhere(world_.status());
  SetNcclFaults({});
  Make(2);
  EXPECT_OK(GoodRun(1, 3));
}

TEST_F(NcclTest, AnExchangeThatDoesNotEndIsAborted) {
  Make(2, absl::Seconds(2));
  if (IsSkipped()) return;
  for (int round = 0; round < 2; ++round) {
    SetFaultsOfLast({.never_sends = true});
    const absl::Time start = absl::Now();
    const absl::Status status = world().Run([&](Rank& rank) -> absl::Status {
      OCTET_RETURN_IF_ERROR(Exchange(rank, 7).status());
      return rank.Synchronize();
    });
    EXPECT_THAT(status, StatusIs(absl::StatusCode::kDeadlineExceeded,
                                 HasSubstr("exchange between nodes waited ")));
    EXPECT_LT(absl::Now() - start, absl::Seconds(15));
    ExpectSameEverywhere(status);
    SetNcclFaults({});
    EXPECT_OK(GoodRun(100 * round, 4));
  }
}

TEST_F(NcclTest, AnErrorOfTheLibraryEndsTheRunOnAllNodes) {
  Make(2);
  if (IsSkipped()) return;
  SetFaultsOfLast({.never_sends = true, .reports_error = true});
  const absl::Time start = absl::Now();
  const absl::Status status = world().Run([&](Rank& rank) -> absl::Status {
    OCTET_RETURN_IF_ERROR(Exchange(rank, 7).status());
    return rank.Synchronize();
  });
  EXPECT_THAT(status, StatusIs(absl::StatusCode::kAborted,
                               HasSubstr("remote process exited or there was a network error")));
  EXPECT_LT(absl::Now() - start, absl::Seconds(15)) << "the deadline is 20 s";
  ExpectSameEverywhere(status);
  SetNcclFaults({});
  EXPECT_OK(GoodRun(1, 4));
}

TEST_F(NcclTest, AGraphIsVoidAfterAFailedRun) {
  Make(2);
  if (IsSkipped()) return;
  std::vector<std::optional<Graph>> graphs(kRanks);
  const auto capture = [&] {
    return world().Run([&](Rank& rank) -> absl::Status {
      OCTET_ASSIGN_OR_RETURN(graphs[rank.rank()], Graph::Capture(rank, [&] {
                               return world()
                                   .rail(rank.rank())
                                   ->Exchange(rank, std::vector<RailPart>(world().num_nodes()));
                             }));
      return absl::OkStatus();
    });
  };
  const auto launch = [&] {
    return world().Run([&](Rank& rank) { return graphs[rank.rank()]->Launch(rank); });
  };
  EXPECT_OK(capture());
  EXPECT_OK(launch());
  // The graphs keep the library from freeing the communicator, for which nobody waits.
  EXPECT_THAT(world().Run([&](Rank& /*rank*/) -> absl::Status {
    return Index() == 0 ? absl::DataLossError("on purpose") : absl::OkStatus();
  }),
              StatusIs(absl::StatusCode::kDataLoss, HasSubstr("on purpose")));
  EXPECT_OK(GoodRun(1, 4));
  EXPECT_THAT(launch(), StatusIs(absl::StatusCode::kFailedPrecondition,
                                 AllOf(HasSubstr("a graph cannot be launched without its "
                                                 "communicator"),
                                       HasSubstr("capture it again"))));
  EXPECT_OK(capture());
  EXPECT_OK(launch());
}

TEST_F(NcclTest, RailsThatDoNotComeUpAgainBreakTheWorld) {
  WorldOptions options = OptionsOf(absl::Seconds(20));
  options.arrival_timeout = absl::Seconds(3);
  MakeWorld(2, options);
  if (IsSkipped()) return;
  ASSERT_OK(world_.status());
  SetFaultsOfLast({.init_fails = true});
  EXPECT_THAT(world().Run([&](Rank& /*rank*/) -> absl::Status {
    return Index() == 0 ? absl::DataLossError("on purpose") : absl::OkStatus();
  }),
              StatusIs(absl::StatusCode::kUnavailable,
                       AllOf(HasSubstr("the rails have not come up again after"),
                             HasSubstr("on purpose"))));
  EXPECT_THAT(world().Agree("anything", "1"), StatusIs(absl::StatusCode::kFailedPrecondition,
                                                       HasSubstr("has to be started again")));
}

}  // namespace
}  // namespace octet
